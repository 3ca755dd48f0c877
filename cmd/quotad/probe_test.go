package main

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// A probe's exit status is that of the quotad at the socket.
func TestProbe(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	probe := func(what string) (int, string) {
		var said strings.Builder
		return quotad(t.Context(), []string{"--socket", socket, "--probe", what}, func(string) string { return "" }, io.Discard, &said, nil), said.String()
	}
	if status, said := probe("readyz"); status != exitFailed || !strings.Contains(said, "no such file") {
		t.Errorf("without a quotad: %d, %s", status, said)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.Error(w, "no session", http.StatusServiceUnavailable)
		}
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	for what, want := range map[string]struct {
		status int
		says   string
	}{
		"healthz": {exitDone, ""}, "readyz": {exitFailed, "503 Service Unavailable: no session"}, "metrics": {exitUsage, "must be healthz or readyz"},
	} {
		if status, said := probe(what); status != want.status || !strings.Contains(said, want.says) {
			t.Errorf("%s: %d, %s", what, status, said)
		}
	}
}
