package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// lockedBuffer is written and read at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// freePort returns an address on which a program can listen.
func freePort(t *testing.T) string {
	t.Helper()
	free, err := embedded.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return free[0]
}

// TestDevStartsAgainOnItsData runs dev twice on one folder: the second finds the
// policy that was set meanwhile, and a fleet uses it.
func TestDevStartsAgainOnItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen := freePort(t)
	session := func(f func(b *bench)) string {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out lockedBuffer
		a := &app{stdout: &out, stderr: &out, env: os.Getenv, etcd: &etcdflags.Flags{Prefix: etcdflags.DefaultPrefix}, format: format.Table}
		done := make(chan error, 1)
		go func() { done <- a.dev(ctx, &devFlags{listen: listen, data: dir, instances: 2}) }()
		await.Until(t, "dev says how to end it", func() bool {
			select {
			case err := <-done:
				t.Fatalf("dev ended: %v\n%s", err, out.String())
			default:
			}
			return strings.Contains(out.String(), "Ctrl-C ends it.")
		})
		b := newBench(t, server)
		b.env["QUOTIENT_ENDPOINTS"], b.env["QUOTIENT_PREFIX"] = listen, etcdflags.DefaultPrefix
		f(b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return out.String()
	}
	said := session(func(b *bench) {
		await.Until(t, "both instances have registered", func() bool {
			stdout, _ := b.want(exitDone, "instances", sampleProvider)
			return strings.Contains(stdout, "demo-1") && strings.Contains(stdout, "demo-2")
		})
		stdout, _ := b.want(exitDone, "set", sampleProvider, "500/s", "--wait")
		if !strings.Contains(stdout, "1000/s -> 500/s") || !strings.Contains(stdout, "applied by 2 of 2 instances") {
			t.Error(stdout)
		}
		_, stderr := b.want(exitFailed, "dev", "--listen", freePort(t), "--dashboard", "", "--data", dir)
		if !strings.Contains(stderr, dir+" is in use by another etcd; --data takes another folder") {
			t.Errorf("a second dev on the folder: %s", stderr)
		}
	})
	for _, want := range []string{"etcd is at http://" + listen, "kept in " + dir, "loadgen --endpoints http://" + listen, "provider demo/api has 1000/s, and 2 instances use it"} {
		if !strings.Contains(said, want) {
			t.Errorf("dev does not say %q:\n%s", want, said)
		}
	}
	session(func(b *bench) {
		if stdout, _ := b.want(exitDone, "get", sampleProvider); !strings.Contains(stdout, "500/s") {
			t.Errorf("the data was not kept: %s", stdout)
		}
	})
}

// An etcd that starts may wait for long, and cannot be told to give up.
func TestAnInterruptEndsADevThatHasNotStarted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	given, late := make(chan struct{}), errors.New("late")
	start := func() (*embedded.Cluster, error) {
		interrupt()
		<-given
		return nil, late
	}
	if _, err := started(ctx, start); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
	close(given)
	if _, err := started(t.Context(), func() (*embedded.Cluster, error) { return nil, late }); !errors.Is(err, late) {
		t.Errorf("without one: %v", err)
	}
}

// What dev says to type exports its address only where programs would not look there by themselves: loadgen, which they
// start next, takes an etcd that is exported in place of one of its own.
func TestDevExportsAnAddressThatProgramsDoNotFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		listen, env string
		exports     bool
	}{{defaultListen, "", false}, {"127.0.0.1:12379", "", true}, {defaultListen, "https://etcd-1:2379", true}} {
		var out lockedBuffer
		a := &app{stdout: &out, env: func(string) string { return c.env }, etcd: &etcdflags.Flags{Prefix: etcdflags.DefaultPrefix}}
		a.devSays([]string{"http://" + c.listen}, "in memory", "1000/s", &devFlags{listen: c.listen})
		if said := out.String(); strings.Contains(said, "\n  export QUOTIENT_ENDPOINTS=http://"+c.listen+"\n") != c.exports || !strings.Contains(said, ":\n\n  ") {
			t.Errorf("%+v: %s", c, said)
		}
	}
}

func TestDevSaysThatItsAddressIsTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := newBench(t, server)
	if _, stderr := b.want(exitFailed, "dev", "--listen", l.Addr().String(), "--dashboard", freePort(t)); !strings.Contains(stderr, "--listen takes another address") {
		t.Error(stderr)
	}
	b.want(exitUsage, "dev", "--instances", "-1")
	if _, stderr := b.want(exitUsage, "dev", "--listen", freePort(t), "--endpoints", "127.0.0.1:2379"); !strings.Contains(stderr, "etcd of its own") {
		t.Error(stderr)
	}
	// The page's port: refused at once, before an etcd is started.
	if _, stderr := b.want(exitFailed, "dev", "--listen", freePort(t), "--dashboard", l.Addr().String()); !strings.Contains(stderr, "--dashboard takes another address") {
		t.Error(stderr)
	}
	for _, flag := range []string{"--listen", "--dashboard"} {
		for _, address := range []string{"127.0.0.1", "localhost:"} {
			if _, stderr := b.want(exitUsage, "dev", flag, address); !strings.Contains(stderr, flag+" "+address+": lacks a host or a port; write it like 127.0.0.1:") {
				t.Error(stderr)
			}
		}
	}
	for _, open := range []string{"0.0.0.0:2379", ":2379", "192.0.2.1:2379"} {
		if _, stderr := b.want(exitUsage, "dev", "--listen", open); !strings.Contains(stderr, "loopback") {
			t.Error(stderr)
		}
	}
}

// TestNoWebPageReachesTheEmbeddedEtcd: the JSON gateway, which answers every origin
// and every host name, is off.
func TestNoWebPageReachesTheEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.Endpoints()[0]+"/v3/kv/range", strings.NewReader(`{"key":"AA==","range_end":"AA=="}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "http://evil.test")
	r.Host = "evil.test"
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("%s with %v", answer.Status, answer.Header)
	}
}
