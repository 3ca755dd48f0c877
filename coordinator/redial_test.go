package coordinator

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// network is a way to etcd that can be cut: what was sent or asked for in the cut, or on a connection
// of before, never comes through. New connections do once it is mended.
type network struct {
	mu  sync.Mutex
	cut chan struct{} // closed by a cut
	up  bool
}

func newNetwork() *network { return &network{cut: make(chan struct{}), up: true} }

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	cut, up := n.cut, n.up
	n.mu.Unlock()
	if !up {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	return conn{Conn: c, cut: cut, closed: make(chan struct{}), once: new(sync.Once)}, err
}

func (n *network) set(up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up = up; up {
		n.cut = make(chan struct{})
	} else {
		close(n.cut)
	}
}

// conn is a connection that stands still after a cut, until it is closed.
type conn struct {
	net.Conn
	cut, closed chan struct{}
	once        *sync.Once
}

func (c conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.cut:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c conn) Write(b []byte) (int, error) {
	select {
	case <-c.cut:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestAConnectionThatStandsStill: after a cut the connections of before never tell anything, and gRPC
// does not know. The session goes on, and hears asks, by others. The endpoints are what they were.
func TestAConnectionThatStandsStill(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	way := newNetwork()
	endpoints := server.Endpoints()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithContextDialer(way.dial)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	other, _ := f.subscribe(f.join(Options{Name: "other"}), "p")
	behind := *f
	behind.client, behind.sessions = client, nil
	r, _ := behind.subscribe(behind.join(Options{Name: "behind"}), "p")
	both := func(r *recorder) bool { return proved(r) && members(2)(r) && r.carrier != nil }
	for _, one := range []*recorder{r, other} {
		await.Until(t, "both are there", one.is(both))
	}
	await.Until(t, "an ask is heard", func() bool {
		other.carrier.Ask(other.told().self, asksOf(r.told().self, 1))
		return r.is(func(r *recorder) bool { return len(r.asked) > 0 })()
	})
	self := r.told().self
	way.set(false)
	await.Until(t, "the others see it gone", other.is(members(1)))
	way.set(true)
	await.Until(t, "it is there again", func() bool { return r.is(both)() && r.told().self != self })
	r.is(func(r *recorder) bool { r.asked = nil; return true })()
	await.Until(t, "an ask is heard again", func() bool {
		other.carrier.Ask(other.told().self, asksOf(r.told().self, 2))
		return r.is(func(r *recorder) bool { return len(r.asked) > 0 })()
	})
	if now := client.Endpoints(); len(now) != 1 || now[0] != endpoints[0] {
		t.Errorf("the client has %v, and had %v", now, endpoints)
	}
}

// TestTheLogSaysWhyEtcdDoesNotAnswer: a program that runs says in its log what keeps etcd from answering.
func TestTheLogSaysWhyEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	cluster, client := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, client)
	f.set("p", "100/s")
	var log lines
	r, _ := f.subscribe(f.join(Options{TTL: minTTL, Logger: slog.New(slog.NewTextHandler(&log, nil))}), "p")
	await.Until(t, "a proof", r.is(proved))
	cluster.Stop(0)
	await.Until(t, "the log says that nobody listens", func() bool {
		return log.has("etcd answers nothing", "found=", cluster.Endpoints()[0]+": ", "connection refused: start it, or correct the address")
	})
	if err := cluster.Restart(0); err != nil { // the session ends by it
		t.Fatal(err)
	}
}

// TestWhenConnectionsAreMadeAnew: only while nothing is answered, and the rarer the larger the fleet is.
func TestWhenConnectionsAreMadeAnew(t *testing.T) {
	const s = int64(time.Second)
	for what, c := range map[string]struct {
		instances   int
		fails       []int64 // when calls fail, in tenths of a second
		answered    int64   // when one is answered; 0 if none is
		retry, anew []int64 // the failures that must do something; others may make connections anew, by chance
		kept        []int64 // the failures that must not make connections anew
	}{
		"one failure":              {10, []int64{10}, 0, []int64{10}, nil, []int64{10}},
		"failures in a row":        {10, []int64{10, 14, 30, 54, 80}, 0, []int64{10, 30, 54, 80}, []int64{30, 80}, []int64{10, 14, 54}},
		"an answer in between":     {10, []int64{10, 30, 34, 43, 60}, 31, []int64{10, 30, 43, 60}, []int64{30, 60}, []int64{10, 34, 43}},
		"a fleet of four thousand": {4000, []int64{10, 109, 210, 309, 410}, 0, []int64{10, 109, 210, 309, 410}, []int64{210, 410}, []int64{10, 109, 309}},
	} {
		t.Run(what, func(t *testing.T) {
			var r redialing
			asks := 0 // how often connections were made anew since a call was answered
			for _, at := range c.fails {
				if c.answered != 0 && c.answered < at {
					r.answered()
					c.answered, asks = 0, 0
				}
				retry, anew, ask := r.failed(at*s/10, c.instances)
				if anew {
					asks++
				}
				if ask != (anew && asks == 1) {
					t.Errorf("a failure at %d/10 s: connections made anew for time %d, and asked why: %v", at, asks, ask)
				}
				if slices.Contains(c.retry, at) != retry || slices.Contains(c.anew, at) && !anew || slices.Contains(c.kept, at) && anew {
					t.Errorf("a failure at %d/10 s: retry %v, anew %v", at, retry, anew)
				}
			}
		})
	}
}

// An etcd that refuses who the program is has answered: no connection is made anew.
func TestARefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, err := range []error{rpctypes.ErrGRPCUserEmpty, rpctypes.ErrAuthFailed, classify(t.Context(), "read", rpctypes.ErrPermissionDenied)} {
		s := &Session{}
		s.redial.silent = true
		if s.failed(err); s.redial.silent {
			t.Errorf("%v: no answer", err)
		}
	}
}
