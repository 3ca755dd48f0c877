package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// probeTime bounds a probe.
const probeTime = 5 * time.Second

// ask asks the quotad that serves a socket whether it is well: for containers, which have
// no other program that could. The error has the start of its answer.
func ask(ctx context.Context, socket, path string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://quotad/"+path, nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("--probe: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return fmt.Errorf("--probe: %s: %s", answer.Status, text)
	}
	return nil
}
