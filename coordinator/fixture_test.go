package coordinator

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// One server serves all tests that do not stop it; each has a prefix of its own.
var server *etcdtest.Cluster

func TestMain(m *testing.M) {
	var err error
	if server, err = etcdtest.Start(etcdtest.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	// The server's own goroutines are many; ours must be gone.
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, ours := range []string{"coordinator.(*Session)", "coordinator.(*place)"} {
		if i := bytes.Index(stacks, []byte(ours)); i >= 0 && code == 0 {
			fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", stacks[max(0, i-500):min(len(stacks), i+1500)])
			code = 1
		}
	}
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

var quiet = slog.New(slog.DiscardHandler)

// eventually waits for a condition; 30 s is far more than any of them needs.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s for: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

type fixture struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	admin  *Admin

	sessions []*Session
}

func setup(t *testing.T) *fixture { return setupOn(t, etcdtest.NewClient(t, server)) }

func setupOn(t *testing.T, client *clientv3.Client) *fixture {
	t.Helper()
	f := &fixture{t: t, client: client, prefix: "/" + strings.ReplaceAll(t.Name(), "/", "-") + "/"}
	admin, err := NewAdmin(client, AdminOptions{Prefix: f.prefix, Author: "ann@host"})
	if err != nil {
		t.Fatal(err)
	}
	f.admin = admin
	return f
}

func (f *fixture) set(provider, limits string) Stored {
	f.t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := f.admin.Put(f.t.Context(), provider, quota.Policy{Limits: l}, AnyRevision)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) join(o Options) *Session {
	f.t.Helper()
	o.Prefix, o.Logger = f.prefix, quiet
	s, err := Join(f.t.Context(), f.client, o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.sessions = append(f.sessions, s)
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return s
}

func (f *fixture) subscribe(s *Session, provider string) (*recorder, feed.Subscription) {
	f.t.Helper()
	sub, err := s.Subscribe(provider, func() feed.Sink { return &recorder{} })
	if err != nil {
		f.t.Fatal(err)
	}
	return sub.Sink().(*recorder), sub
}

// only returns the place behind a recorder.
func (f *fixture) only(r *recorder) *place {
	f.t.Helper()
	for _, s := range f.sessions {
		for _, p := range s.all() {
			if p.sink == feed.Sink(r) {
				return p
			}
		}
	}
	f.t.Fatal("no place has this sink")
	return nil
}
