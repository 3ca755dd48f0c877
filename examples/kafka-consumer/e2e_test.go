//go:build e2e

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// The demonstration on a real Apache Kafka, which is stopped once in good order
// and once killed, and started again each time.
func TestRealKafka(t *testing.T) {
	b := newBroker(t)
	b.start(t)
	b.ready(t)

	c, err := parse([]string{
		"--brokers", b.address, "--records", "20000", "--limit", "2000/2s", "--guard", "600ms", "--poison", "1000", "--timeout", "3m",
	}, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var restarts sync.WaitGroup
	restart := func(signal os.Signal) func(*demo) error {
		return func(*demo) error {
			restarts.Go(func() { b.stop(t, signal); b.start(t) })
			return nil
		}
	}
	c.extra = []event{
		{0.30, "the broker is restarted", restart(syscall.SIGTERM)},
		{0.55, "the broker is killed, and started again", restart(os.Kill)},
	}
	held, err := demonstrate(t.Context(), c, t.Output())
	restarts.Wait()
	if err != nil || !held {
		t.Errorf("held is %v, error %v", held, err)
	}
}

// broker is a real Kafka. Its start and stop are for one goroutine at a time.
type broker struct {
	address          string
	jars, data       string
	port, controller string
	cmd              *exec.Cmd
	ended            chan struct{}
}

const script = "e2e/kafka.sh"

// newBroker makes sure that all is there that a broker needs.
func newBroker(t *testing.T) *broker {
	t.Helper()
	for _, args := range [][]string{{"check"}, {"fetch", jars(t)}} {
		if out, err := exec.CommandContext(t.Context(), script, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", script, args[0], err, out)
		}
	}
	b := &broker{jars: jars(t), data: t.TempDir(), port: freePort(t), controller: freePort(t)}
	b.address = "127.0.0.1:" + b.port
	t.Cleanup(func() {
		b.stop(t, os.Kill)
		if t.Failed() {
			log, err := os.ReadFile(filepath.Join(b.data, "server.log"))
			t.Logf("the broker's log (%v):\n%s", err, log[max(0, len(log)-20_000):])
		}
	})
	return b
}

// jars is where the jars are kept between runs.
func jars(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../.cache/kafka")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func freePort(t *testing.T) string {
	t.Helper()
	free, err := etcdtest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(free[0])
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (b *broker) start(t *testing.T) {
	b.cmd = exec.Command(script, "run", b.jars, b.data, b.port, b.controller)
	var errs bytes.Buffer
	b.cmd.Stderr = &errs
	if err := b.cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	b.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(b.cmd, b.ended)
}

// stop returns when the broker's process is gone.
func (b *broker) stop(t *testing.T, signal os.Signal) {
	if b.cmd == nil || b.cmd.Process == nil {
		return
	}
	if err := b.cmd.Process.Signal(signal); err != nil && !strings.Contains(err.Error(), "already finished") {
		t.Error(err)
	}
	<-b.ended
}

// ready waits until the broker answers.
func (b *broker) ready(t *testing.T) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for {
		_, err := kadm.NewClient(client).ListBrokers(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the broker at %s does not answer: %v", b.address, err)
		case <-b.ended:
			t.Fatal("the broker ended early")
		case <-time.After(200 * time.Millisecond):
		}
	}
}
