package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// serveMetrics serves the metrics of a host with provider p, and returns the address.
func serveMetrics(t *testing.T, files listen.TLS) (address string) {
	t.Helper()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}
	log := slog.New(slog.DiscardHandler)
	h, err := host.New(t.Context(), consumer.Fixed(policy), host.Options{Keep: []string{"p"}, Max: 1, Idle: time.Hour, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s := &metrics{&files, "127.0.0.1:0"}
	server, err := s.Listen(h, log)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(server.Shutdown(context.Background()), <-served, h.Close()); err != nil {
			t.Error(err)
		}
	})
	return server.(*listen.HTTP).Listeners[0].Addr().String()
}

// Scrapers with a certificate get the metrics, and others nothing.
func TestMetrics(t *testing.T) {
	t.Parallel()
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "localhost")
	address := serveMetrics(t, listen.TLS{Cert: cert, Key: key, ClientCA: authority.File})
	for _, c := range []struct {
		cert, key, path string
		want            int // status; 0: no answer
	}{{"", "", "/metrics", 0}, {cert, key, "/metrics", http.StatusOK}, {cert, key, "/v1/providers", http.StatusNotFound}} {
		config, err := certs.Client(authority.File, c.cert, c.key)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		r, err := client.Get("https://" + address + c.path)
		if (err != nil) != (c.want == 0) {
			t.Fatalf("%+v: %v", c, err)
		}
		if err != nil {
			continue
		}
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || r.StatusCode != c.want || strings.Contains(string(text), `quotient_share_permits{provider="p",window="1s"} 100`) != (c.want == http.StatusOK) {
			t.Errorf("%+v: %s, %v: %s", c, r.Status, err, text)
		}
	}
}

// Clients that hold connections, with requests and without, do not shut a scraper out.
func TestHeldConnectionsShutNoScraperOut(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"} {
		address := serveMetrics(t, listen.TLS{})
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for range 2 * maxScrapers {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			_, _ = io.WriteString(c, request)
		}
		r, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != http.StatusOK || !r.Close {
			t.Errorf("%s, and the connection is kept: %v", r.Status, !r.Close)
		}
	}
}
