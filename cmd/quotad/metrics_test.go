package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// serveMetrics serves the metrics of a host with provider p, and returns the address.
func serveMetrics(t *testing.T, config string) (address string) {
	t.Helper()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}
	log := slog.New(slog.DiscardHandler)
	h, err := host.New(t.Context(), consumer.Fixed(policy), host.Options{Keep: []string{"p"}, Max: 1, Idle: time.Hour, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s := &metrics{"127.0.0.1:0", config}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
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
	return server.(*scraped).Listeners[0].Addr().String()
}

// webConfig writes a web configuration with a certificate and the user ann, whose password is
// swordfish. more is of TLS.
func webConfig(t *testing.T, cert, key, more string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "web.yaml")
	text := fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s%s}\n"+
		"basic_auth_users: {ann: $2a$04$Vfk2DDTxp7xSj54ugIs0V.xaWkHR7BP92VAdGTNOGXCDQWolCj/bW}\n", cert, key, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Scrapers get the metrics by the web configuration: here with a certificate, and as a user.
func TestMetrics(t *testing.T) {
	t.Parallel()
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "localhost")
	address := serveMetrics(t, webConfig(t, cert, key, ", client_ca_file: "+authority.File+", client_auth_type: RequireAndVerifyClientCert"))
	for _, c := range []struct {
		cert, key, path, password string
		want                      int // status; 0: no answer
	}{
		{"", "", "/metrics", "swordfish", 0}, {cert, key, "/metrics", "wrong", http.StatusUnauthorized},
		{cert, key, "/metrics", "swordfish", http.StatusOK}, {cert, key, "/v1/providers", "swordfish", http.StatusNotFound},
	} {
		config, err := certs.Client(authority.File, c.cert, c.key)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		r, err := client.Get("https://ann:" + c.password + "@" + address + c.path)
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
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "localhost")
	trusted, err := certs.Client(authority.File, "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ config, url, request string }{
		{"", "http://", ""}, {"", "http://", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"}, {webConfig(t, cert, key, ""), "https://ann:swordfish@", ""},
	} {
		address := serveMetrics(t, c.config)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		for range 2 * maxScrapers {
			held, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = held.Close() })
			_, _ = io.WriteString(held, c.request)
		}
		r, err := client.Get(c.url + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != http.StatusOK || !r.Close || r.ProtoMajor != 1 {
			t.Errorf("%s by %s, and the connection is kept: %v", r.Status, r.Proto, !r.Close)
		}
	}
}
