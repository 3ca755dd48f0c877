package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// metrics is the service for Prometheus, which does not reach the Unix socket.
type metrics struct {
	tls     *listen.TLS
	address string
}

// Bounds of what a client of the metrics can hold.
const (
	maxScrapers = 16              // connections; the oldest is closed for one more
	headerTime  = 2 * time.Second // to send a request
	scrapeTime  = 10 * time.Second
	maxHeader   = 4 << 10 // bytes
)

func (m *metrics) Register(set *pflag.FlagSet) {
	set.StringVar(&m.address, "metrics", "", "`address` host:port to serve /metrics at too; beyond loopback it needs TLS")
}

func (m *metrics) Check() error { return m.tls.CheckAddress("metrics", m.address) }

func (m *metrics) Listen(h *host.Host, log *slog.Logger) (listen.Server, error) {
	if m.address == "" {
		return nil, nil
	}
	connections := listen.NewOccupancy("connections", listen.Bounds{All: maxScrapers})
	l, err := m.tls.Listen(m.address, "http/1.1", func(l net.Listener) net.Listener {
		return &listen.Bounded{Listener: l, Occupancy: connections, Peer: listen.AnyTCP}
	})
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	log.Info("serving metrics", "address", l.Addr().String(), "tls", m.tls.Secure())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.Metrics())
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: scrapeTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // a scrape comes every 15 s or so
	return &listen.HTTP{Listeners: []net.Listener{l}, Server: server}, nil
}
