package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/internal/webconfig"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// metrics is the service for Prometheus, which does not reach the Unix socket.
type metrics struct {
	address string
	config  string // of TLS and users; empty: none
}

// Bounds of what a client of the metrics can hold.
const (
	maxScrapers = 16              // connections; the oldest is closed for one more
	headerTime  = 2 * time.Second // to send a request
	scrapeTime  = 10 * time.Second
	maxHeader   = 4 << 10 // bytes
)

func (m *metrics) Register(set *pflag.FlagSet) {
	set.StringVar(&m.address, "metrics", "", "`address` host:port to serve /metrics at too")
	webconfig.Register(set, &m.config, "of --metrics")
}

func (m *metrics) Check() error {
	switch {
	case m.address != "":
		return webconfig.Check("--metrics", m.address, m.config)
	case m.config != "":
		return fmt.Errorf("--%s %s: it is of --metrics: give that too", webconfig.Flag, m.config)
	}
	return nil
}

func (m *metrics) Listen(h *host.Host, log *slog.Logger) (listen.Server, error) {
	if m.address == "" {
		return nil, nil
	}
	connections := listen.NewOccupancy("connections", listen.Bounds{All: maxScrapers})
	l, err := net.Listen("tcp", m.address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	log.Info("serving metrics", "address", l.Addr().String(), "tls", webconfig.Secure(m.config))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.Metrics())
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: scrapeTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)    // the bounds are of requests, and HTTP/2 would have many in a connection
	server.SetKeepAlivesEnabled(false) // a scrape comes every 15 s or so
	bounded := &listen.Bounded{Listener: l, Occupancy: connections, Peer: listen.AnyTCP}
	return &scraped{&listen.HTTP{Listeners: []net.Listener{bounded}, Server: server}, m.config}, nil
}

// scraped serves by a web configuration.
type scraped struct {
	*listen.HTTP
	config string
}

func (s *scraped) Serve() error {
	if err := webconfig.Serve(s.Listeners[0], s.Server, s.config); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
