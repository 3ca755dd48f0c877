package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker that refuses connections, or never answers, is named within seconds, before the
// consumer takes a share: there is no etcd here.
func TestABrokerThatCannotBeReached(t *testing.T) {
	err := consume(t.Context(), config{brokers: "127.0.0.1:1", endpoints: "127.0.0.1:1", provider: "p"})
	if err == nil || !strings.HasPrefix(err.Error(), "--brokers 127.0.0.1:1: no Kafka has answered within 5s: ") {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		silent := kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		began := time.Now()
		err := reach(t.Context(), silent)
		if err == nil || time.Since(began) != kafkaTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// logged returns what the default log says from now on.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &text
}
