package coordinator

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// One server serves all tests that do not stop it; each has a prefix of its own.
var server *embedded.Cluster

func TestMain(m *testing.M) {
	await.Together(4)
	var err error
	if server, err = embedded.Start(embedded.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(server.Close(), await.Leaks()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// layout is that of the default prefix.
var layout = func() keys.Layout {
	l, err := keys.New("")
	if err != nil {
		panic(err)
	}
	return l
}()

var quiet = slog.New(slog.DiscardHandler)

type fixture struct {
	t      *testing.T
	client *clientv3.Client
	kv     clientv3.KV // of its sessions; nil: the client's own
	prefix string
	keys   keys.Layout
	admin  *admin.Client

	sessions []*Session
}

func setup(t *testing.T) *fixture { return setupOn(t, etcdtest.NewClient(t, server)) }

func setupOn(t *testing.T, client *clientv3.Client) *fixture {
	t.Helper()
	f := &fixture{t: t, client: client, prefix: "/" + strings.ReplaceAll(t.Name(), "/", "-") + "-" + rand.Text()[:8] + "/"} // also with -count
	var err error
	if f.keys, err = keys.New(f.prefix); err != nil {
		t.Fatal(err)
	}
	if f.admin, err = admin.New(client, admin.Options{Prefix: f.prefix, Author: "ann@host", Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) set(provider, limits string) admin.Stored {
	f.t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := f.admin.Put(f.t.Context(), provider, quota.Policy{Limits: l})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// instances returns the provider's live instances.
func (f *fixture) instances(provider string) ([]protocol.InstanceStatus, error) {
	found, err := feed.Inside(f.admin).Fleet(f.t.Context(), provider)
	return found.Instances, err
}

func (f *fixture) join(o Options) *Session {
	f.t.Helper()
	o.Prefix, o.Logger = f.prefix, cmp.Or(o.Logger, quiet)
	var s *Session
	await.Until(f.t, "a session", func() bool { // again where etcd takes its time
		var err error
		if s, err = join(f.t.Context(), f.client, f.kv, o); err != nil && !errors.Is(err, ErrUnreachable) {
			f.t.Fatal(err)
		}
		return err == nil
	})
	s.closing = time.Minute // a busy machine takes its time
	f.sessions = append(f.sessions, s)
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return s
}

func (f *fixture) subscribe(s *Session, provider string) (r *recorder, leave func() error) {
	f.t.Helper()
	sink, leave, err := s.subscribe(provider, func() feed.Sink { return &recorder{} })
	if err != nil {
		f.t.Fatal(err)
	}
	return sink.(*recorder), leave
}

// only returns the membership behind a recorder.
func (f *fixture) only(r *recorder) *membership {
	f.t.Helper()
	for _, s := range f.sessions {
		for _, p := range s.all() {
			if p.Sink == feed.Sink(r) {
				return p
			}
		}
	}
	f.t.Fatal("no membership has this sink")
	return nil
}

// onlyWatch returns the watch of a session that has one line. Session.mu is held.
func (s *Session) onlyWatch() (only *watch) {
	for _, only = range s.mu.watches {
	}
	return only
}

// deaf has a session whose only watch is open take no more answers of it, until it has opened another
// one. It returns the stream that nobody hears.
func (s *Session) deaf() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.onlyWatch()
	s.stepLocked(session.WatchEnded{Line: w.line})
	return w.open
}

// among returns a session that follows p among so many instances, under a policy. It has no etcd.
func among(t *testing.T, o settings, instances int, policy string) *Session {
	t.Helper()
	s := &Session{keys: layout, ctx: t.Context(), o: o}
	s.begin()
	m := s.mu.Machine
	do := func(e session.Event) []session.Effect { return m.Step(e, session.Instant{}) }
	line := do(session.Opened{})[0].(session.Follow).Line
	do(session.WatchOpened{Line: line})
	do(session.WatchAnswer{Line: line, Created: true, Revision: 1, Cluster: 1})
	do(session.Leased{Lease: session.Lease{ID: 7}})
	do(session.Subscribed{Member: newMembership(s, "p", &recorder{}).Member})
	batch, _ := m.NextBatch(1, false)
	j := batch[0]
	j.Revision, j.Cluster, j.Incarnation = 7, 1, session.Incarnation{ID: "0", Key: "key", Lease: 7, Created: 7}
	j.All = []view.Key{{Kind: view.Policy, Value: []byte(policy), Revision: 7}}
	for i := range instances {
		j.All = append(j.All, view.Key{Kind: view.Instance, ID: fmt.Sprint(i), Value: []byte(`{"schema":1,"name":"a"}`), Revision: 7})
	}
	do(session.JoinEnded{Joining: j})
	return s
}
