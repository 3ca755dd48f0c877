package coordinator

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// The context has no deadline: Join gives up by itself.
func TestJoinWithoutEtcdFailsSoonAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED })
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, DialOptions: []grpc.DialOption{refused}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		began := time.Now()
		_, err = Join(t.Context(), client, Options{Logger: quiet})
		if took := time.Since(began); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") || took != etcdcall.Timeout {
			t.Errorf("%v after %v, want ErrUnreachable with the endpoint after %v", err, took, etcdcall.Timeout)
		}
	})
}

func TestJoinRefusesBadOptions(t *testing.T) {
	f := setup(t)
	for _, o := range []Options{{TTL: time.Second}, {TTL: time.Hour}, {Probe: time.Millisecond}, {Name: strings.Repeat("x", 200)}, {Prefix: "no-slash"}, {NTP: []string{"a", "a"}}, {NTP: []string{"a:b:c"}}, {NTPInterval: time.Hour}} {
		if s, err := Join(t.Context(), f.client, o); err == nil {
			t.Errorf("%+v was taken", o)
			_ = s.Close()
		}
	}
}

// A session reads and writes by the connection itself, so what wraps the client's parts would see
// some of its keys only. It is refused before anything is written, as is what is nil.
func TestAClientThatCannotServeIsRefused(t *testing.T) {
	wrapped := func(wrap func(*clientv3.Client)) *clientv3.Client {
		c := etcdtest.NewClient(t, server)
		wrap(c)
		return c
	}
	inTheClear, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1", "http://127.0.0.1:1"}, TLS: &tls.Config{}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer inTheClear.Close()
	for name, c := range map[string]*clientv3.Client{
		"namespace of keys":    wrapped(func(c *clientv3.Client) { c.KV = namespace.NewKV(c.KV, "team/") }),
		"namespace of watches": wrapped(func(c *clientv3.Client) { c.Watcher = namespace.NewWatcher(c.Watcher, "team/") }),
		"namespace of leases":  wrapped(func(c *clientv3.Client) { c.Lease = namespace.NewLease(c.Lease, "team/") }),
		"ordering": wrapped(func(c *clientv3.Client) {
			c.KV = ordering.NewKV(c.KV, func(clientv3.Op, clientv3.OpResponse, int64) error { return nil })
		}),
		"leasing": wrapped(func(c *clientv3.Client) {
			kv, end, err := leasing.NewKV(c, "leasing/"+rand.Text()+"/")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(end)
			c.KV = kv
		}),
		"nil":           nil,
		"no connection": clientv3.NewCtxClient(t.Context()),
		"in the clear":  inTheClear,
	} {
		want := "wrapped"
		if c == nil || c.KV == nil {
			want = "clientv3.New"
		} else if c == inTheClear {
			want = "http://127.0.0.1:1 is without TLS"
		}
		for _, lazy := range []bool{false, true} {
			if s, err := Join(t.Context(), c, Options{Logger: quiet, Lazy: lazy}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Join answered %v, want an error with %q", name, err, want)
				if s != nil {
					_ = s.Close()
				}
			}
		}
		if _, err := admin.New(c, admin.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: admin.New answered %v, want an error with %q", name, err, want)
		}
	}
	if _, err := Join(nil, etcdtest.NewClient(t, server), Options{}); err == nil || !strings.Contains(err.Error(), "ctx is nil") { //nolint:staticcheck // that is the mistake
		t.Error("a nil context:", err)
	}
}

func TestOldServersAreRefused(t *testing.T) {
	for version, good := range map[string]bool{
		"3.4.38": false, "3.5.21": false, "3.5.22": true, "3.5.30": true, "3.6.0": false, "3.6.1": false,
		"3.6.2": true, "3.6.2-rc.0": true, "3.7.0": true, "4.0.0": true, "what": false,
	} {
		_, err := checkVersionsOf(t.Context(), []string{"e"}, func(context.Context, string) (string, error) { return version, nil })
		if (err == nil) != good {
			t.Errorf("version %s: %v", version, err)
		}
		if err != nil && !strings.Contains(err.Error(), version) {
			t.Errorf("%v does not name the version", err)
		}
	}
}

// TestADeadMemberDoesNotHoldUpJoin: the first good answer waits 250 ms for those of
// others; what they say later is a problem, not an error.
func TestADeadMemberDoesNotHoldUpJoin(t *testing.T) {
	for _, c := range []struct {
		name  string
		says  map[string]string // a version, or how late it is
		after time.Duration
		late  []string
		err   string
	}{
		{"all are well", map[string]string{"a": "3.7.3", "b": "3.7.3"}, 0, nil, ""},
		{"one is silent", map[string]string{"a": "3.7.3", "b": "1h"}, 250 * time.Millisecond, []string{"b"}, ""},
		{"one refuses", map[string]string{"a": "3.7.3", "b": "refused"}, 0, []string{"b"}, ""},
		{"one is too old", map[string]string{"a": "3.7.3", "b": "3.5.1"}, 0, nil, "b: version 3.5.1 is too old"},
		{"none answers", map[string]string{"a": "1h", "b": "1h"}, time.Minute, nil, "no etcd answers at [a b]"},
		{"all refuse", map[string]string{"a": "refused", "b": "refused"}, 0, nil, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, done := context.WithTimeout(t.Context(), time.Minute)
				defer done()
				began := time.Now()
				late, err := checkVersionsOf(ctx, []string{"a", "b"}, func(ctx context.Context, e string) (string, error) {
					if d, err := time.ParseDuration(c.says[e]); err == nil && !sleep(ctx, d) {
						return "", ctx.Err()
					} else if c.says[e] == "refused" {
						return "", errors.New("refused")
					}
					return c.says[e], nil
				})
				if took := time.Since(began); took != c.after || !slices.Equal(late, c.late) {
					t.Errorf("took %v, late are %v; want %v, %v", took, late, c.after, c.late)
				}
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
			})
		})
	}
}

// TestALazySessionWaitsForEtcd: Join returns at once although nobody answers,
// everybody is told why, and all comes by itself when etcd does.
func TestALazySessionWaitsForEtcd(t *testing.T) {
	cluster, client := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, client)
	f.set("p", "10/s")
	cluster.Stop(0)
	s := f.join(Options{Lazy: true})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "it says why", a.is(func(r *recorder) bool { return errors.Is(r.trouble, ErrUnreachable) }))
	b, _ := f.subscribe(s, "q")
	await.Until(t, "it says so to whoever comes later", b.is(func(r *recorder) bool { return errors.Is(r.trouble, ErrUnreachable) }))
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*recorder{a, b} {
		await.Until(t, "a proof, and no trouble", r.is(func(r *recorder) bool { return r.proofs > 0 && r.trouble == nil }))
	}
}

// TestALazySessionEnds: Close does not wait for an etcd that is away.
func TestALazySessionEnds(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := Join(t.Context(), client, Options{Lazy: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	if _, _, err := s.subscribe("p", func() feed.Sink { return r }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !r.told().closed {
		t.Error("its sink was not closed")
	}
}

// TestAMemberThatTurnsOutOldIsAProblem: it answered after Join.
func TestAMemberThatTurnsOutOldIsAProblem(t *testing.T) {
	f := setup(t)
	s := f.join(Options{})
	a, _ := f.subscribe(s, "p")
	s.step(session.Problem{Of: "b:2379", Err: checkVersionOf("b:2379", "3.5.1")})
	await.Until(t, "it is told", a.is(func(r *recorder) bool {
		return r.trouble != nil && strings.Contains(r.trouble.Error(), "b:2379: version 3.5.1 is too old")
	}))
	f.set("p", "10/s")
	await.Until(t, "proofs come all the same", a.is(proved))
	if !a.is(func(r *recorder) bool { return r.trouble != nil })() {
		t.Error("the problem is forgotten")
	}
	s.step(session.Problem{Of: "b:2379"})
	await.Until(t, "it is over", a.is(func(r *recorder) bool { return r.trouble == nil }))
}

// TestJoinSaysWhatIsWrongWithTheConnection: an etcd that wants TLS, and a client
// that knows nothing of it.
func TestJoinSaysWhatIsWrongWithTheConnection(t *testing.T) {
	_, server := authority(t)
	cluster, err := embedded.Start(embedded.Options{TLS: server})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = Join(t.Context(), client, Options{Logger: quiet})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "not trusted") {
		t.Errorf("%v: want ErrUnreachable, and that the certificate is not trusted", err)
	}
}

// With one of three members Join says that more than half must run, and what came of each.
func TestJoinWithOneOfThreeMembers(t *testing.T) {
	cluster, client := etcdtest.New(t, embedded.Options{Members: 3})
	cluster.Stop(0)
	cluster.Stop(1)
	const want = "coordinator: etcd has no leader: more than half of its members must run, and of 3 endpoints 1 answered; "
	var err error
	await.Until(t, "Join says so: on a busy machine the member that runs may answer late", func() bool {
		_, err = Join(t.Context(), client, Options{})
		return err != nil && strings.HasPrefix(err.Error(), want)
	})
	if !errors.Is(err, ErrUnreachable) || strings.Count(err.Error(), "connection refused: start it") != 2 {
		t.Errorf("%v, want two that are to be started", err)
	}
}
