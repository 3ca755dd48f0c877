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
	if err == nil || !strings.HasPrefix(err.Error(), "--brokers 127.0.0.1:1: cannot reach Kafka: ") {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		silent := kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		began := time.Now()
		err := reach(t.Context(), kgo.SeedBrokers("silent:9092"), silent)
		if err == nil || !strings.Contains(err.Error(), "no answer within 5s") || time.Since(began) != kafkaTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A file that is not there is an error, not a connection in the clear.
func TestEtcdsCertificates(t *testing.T) {
	if c, err := (config{endpoints: "https://127.0.0.1:1", ca: "none.pem"}).etcd(); err == nil {
		_ = c.Close()
		t.Error("a client without an authority")
	}
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
