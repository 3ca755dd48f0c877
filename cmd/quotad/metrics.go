package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// metricsService is the way in for Prometheus, which does not reach the Unix socket.
type metricsService struct {
	address string
	files   listen.Files
}

// Bounds of what a client of the metrics can hold.
const (
	maxScrapers = 16 // connections
	scrapeTime  = 10 * time.Second
	maxHeader   = 4 << 10 // bytes
)

func (s *metricsService) Register(set *pflag.FlagSet) {
	set.StringVar(&s.address, "metrics", "", "`address` to serve /metrics at too, host:port, such as 127.0.0.1:9464")
	s.files.Register(set, "metrics", "scrapers")
}

func (s *metricsService) Check() error {
	switch {
	case s.address != "":
		return s.files.Check("metrics", s.address)
	case s.files != listen.Files{}:
		return errors.New("--metrics-tls-cert, --metrics-tls-key and --metrics-tls-client-ca are for --metrics: give its address too")
	}
	return nil
}

func (s *metricsService) Listen(h *host.Host, log *slog.Logger) (Server, error) {
	if s.address == "" {
		return nil, nil
	}
	var config *tls.Config
	var err error
	if s.files.Cert != "" {
		if config, err = s.files.TLS("http/1.1"); err != nil {
			return nil, fmt.Errorf("--metrics: %w", err)
		}
	}
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	log.Info("serving metrics", "address", l.Addr().String(), "tls", config != nil)
	if l = netutil.LimitListener(l, maxScrapers); config != nil {
		l = tls.NewListener(l, config)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.Metrics())
	return &listen.HTTP{Listeners: []net.Listener{l}, Server: &http.Server{
		Handler: mux, ReadTimeout: scrapeTime, WriteTimeout: scrapeTime, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}
