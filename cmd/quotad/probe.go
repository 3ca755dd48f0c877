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
func ask(socket, path string) error {
	client := &http.Client{Timeout: probeTime, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	answer, err := client.Get("http://quotad/" + path)
	if err != nil {
		return fmt.Errorf("--probe: no quotad answers at --socket %s: %w", socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return fmt.Errorf("--probe: %s: %s", answer.Status, text)
	}
	return nil
}
