package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// A member that does not answer must not cost the time of all questions.
func TestFirstOf(t *testing.T) {
	const never = time.Hour
	bad := errors.New("bad")
	type answer struct {
		after time.Duration
		err   error
	}
	for _, test := range []struct {
		name    string
		answers []answer
		want    error
		took    time.Duration
		asked   int64
	}{
		{"the first answers", []answer{{10 * time.Millisecond, nil}}, nil, 10 * time.Millisecond, 1},
		{"one member never does", []answer{{never, nil}, {10 * time.Millisecond, nil}}, nil, 510 * time.Millisecond, 4},
		{"nobody does", nil, context.DeadlineExceeded, 1600 * time.Millisecond, 4},
		{"a bad answer is not waited for", []answer{{0, bad}, {0, nil}}, nil, 500 * time.Millisecond, 4},
		{"all are bad", []answer{{0, bad}, {0, bad}, {0, bad}, {0, bad}}, bad, 1600 * time.Millisecond, 4},
		{"the lease is gone", []answer{{never, nil}, {0, rpctypes.ErrLeaseNotFound}}, rpctypes.ErrLeaseNotFound, 500 * time.Millisecond, 4},
		{"the slow one is first after all", []answer{{700 * time.Millisecond, nil}}, nil, 700 * time.Millisecond, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			var s Session
			var asked atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), 1600*time.Millisecond)
			began := time.Now()
			ask := func() error {
				a := answer{never, nil}
				if n := int(asked.Add(1)); n <= len(test.answers) {
					a = test.answers[n-1]
				}
				select {
				case <-time.After(a.after):
					return a.err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			err := s.firstOf(ctx, 500*time.Millisecond, ask, ask, ask, ask)
			took := time.Since(began)
			synctest.Wait() // whoever asks at this instant has asked
			cancel()
			s.wg.Wait()
			if !errors.Is(err, test.want) || took != test.took || asked.Load() != test.asked {
				t.Errorf("%s: %v after %v, %d questions; want %v after %v, %d", test.name, err, took, asked.Load(), test.want, test.took, test.asked)
			}
		})
	}
}

// etcd that shuts down takes no new streams, and ends leases while it waits for those that are
// open: a lease that nobody renews ends, that of a session does not, though its time is shorter.
func TestLeaseInAServerThatShutsDown(t *testing.T) {
	t.Parallel()
	etcd, client := etcdtest.New(t, embedded.Options{Gateway: true, Slow: true})
	f := setupOn(t, client)
	f.set("p", "10/s")
	s := f.join(Options{TTL: 4 * time.Second})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "its first proof", r.is(proved))
	self := r.told().self
	foreign := f.prefix + "foreign"
	for told := false; !told; { // again if etcd has ended before the lease has
		left := int64(math.MaxInt64)
		await.Until(t, "the session's lease is renewed", func() bool {
			a, err := client.TimeToLive(t.Context(), clientv3.LeaseID(f.only(r).current().Lease))
			before := left
			if err == nil {
				left = a.TTL
			}
			return left > before
		})
		await.Until(t, "etcd takes a lease that nobody renews", func() bool {
			l, err := client.Grant(t.Context(), 5)
			if err != nil {
				return false
			}
			_, err = client.Put(t.Context(), foreign, "", clientv3.WithLease(l.ID))
			return err == nil
		})
		ctx, end := context.WithCancel(t.Context())
		watch := client.Watch(ctx, foreign, clientv3.WithCreatedNotify())
		<-watch
		ended := etcd.Terminate(0)
		for waiting := true; waiting; {
			select {
			case a := <-watch:
				told = slices.ContainsFunc(a.Events, func(e *clientv3.Event) bool { return e.Type == clientv3.EventTypeDelete })
				waiting = !told
			case <-ended:
				waiting = false
			}
		}
		end()
		etcd.Stop(0)
		if err := etcd.Restart(0); err != nil {
			t.Fatal(err)
		}
	}
	before := r.told().proofs
	await.Until(t, "proofs go on", r.is(func(r *recorder) bool { return r.proofs > before }))
	if now := r.told(); now.self != self {
		t.Errorf("it was %s and is %s: %s", self, now.self, now.log)
	}
}

// TestALostLeaseIsOneWarning: the watch tells that the keys are gone, registering that the lease is, and
// nobody waits for the next renewal, which would be hours later.
func TestALostLeaseIsOneWarning(t *testing.T) {
	t.Parallel()
	long := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if grant, ok := in.(*pb.LeaseGrantRequest); ok {
			grant.TTL = 24 * 60 * 60
		}
		return call(ctx, method, in, out, cc, o...)
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{long}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	f := setupOn(t, client)
	f.set("p", "10/s")
	f.set("q", "10/s")
	var log warnings
	s := f.join(Options{Logger: slog.New(&log)})
	r, _ := f.subscribe(s, "p")
	q, _ := f.subscribe(s, "q")
	for range 3 {
		before := r.told().self
		await.Until(t, "both are proved", func() bool { return r.is(proved)() && q.is(proved)() })
		log.clear()
		lost := f.only(r).current().Lease
		if _, err := f.client.Revoke(t.Context(), clientv3.LeaseID(lost)); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "both are there again", func() bool {
			return r.is(func(r *recorder) bool { return proved(r) && r.self != before })() && q.is(proved)() && f.only(q).current().Lease != lost
		})
		if all := log.all(); len(all) != 1 || !strings.Contains(all[0], "the lease has ended") {
			t.Errorf("%d warnings: %q", len(all), all)
		}
	}
}

// warnings keeps the warnings of a log.
type warnings struct {
	slog.Handler
	mu   sync.Mutex
	text []string
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler       { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return nil
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
	return nil
}

func (w *warnings) all() []string { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.text) }
func (w *warnings) clear()        { w.mu.Lock(); defer w.mu.Unlock(); w.text = nil }

func TestLeasesThatRunOutInLargeFleetsGetLonger(t *testing.T) {
	for _, c := range []struct {
		instances int
		set, lost time.Duration
		want      time.Duration
	}{
		{session.ManyInstances - 1, defaultTTL, defaultTTL, defaultTTL},
		{session.ManyInstances, defaultTTL, defaultTTL, 2 * defaultTTL},
		{session.ManyInstances, defaultTTL, 20 * time.Second, mostTTL},
		{session.ManyInstances, defaultTTL, mostTTL, mostTTL},
		{session.ManyInstances, maxTTL, maxTTL, maxTTL},
	} {
		s := among(t, settings{Options: Options{TTL: c.set, Logger: quiet}, Clock: clock.New()}, c.instances, `{"schema":1,"limits":[{"permits":10,"window":"1s"}]}`)
		if got := s.nextTTL(c.lost); got != c.want {
			t.Errorf("%d instances, TTL %v: after a lease of %v one of %v, want %v", c.instances, c.set, c.lost, got, c.want)
		}
	}
}

// slowStream is a stream of the lease service that is never answered: Recv comes back when the test lets it, which is
// after the stream has ended, since a busy machine may take as long as it likes.
type slowStream struct {
	pb.Lease_LeaseKeepAliveClient
	waiting, most atomic.Int64
	back          chan struct{}
}

func (f *slowStream) Send(*pb.LeaseKeepAliveRequest) error { return nil }

func (f *slowStream) Recv() (*pb.LeaseKeepAliveResponse, error) {
	f.most.Store(max(f.most.Load(), f.waiting.Add(1)))
	defer f.waiting.Add(-1)
	<-f.back
	return nil, context.Canceled
}

// Of two that wait for an answer of one stream gRPC leaves one waiting for ever once the stream ends: Close then waits for
// it. So whoever renews by the stream that is open has it for itself.
func TestOneWaitsForAnAnswerOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowStream{back: make(chan struct{})}
		r := &renewing{open: &renewal{f, func() {}}}
		first, end := context.WithCancel(t.Context())
		answers := make(chan error, 2)
		go func() { answers <- r.again(first) }()
		synctest.Wait()
		end() // the stream ends, but its Recv is not back yet
		go func() { answers <- r.again(t.Context()) }()
		synctest.Wait()
		close(f.back)
		if err := errors.Join(<-answers, <-answers); !errors.Is(err, errNoStream) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that there is no stream, and that the first is cancelled", err)
		}
		if most := f.most.Load(); most != 1 || r.open != nil {
			t.Errorf("%d waited for an answer of one stream, and %v is kept; want 1 and none", most, r.open)
		}
	})
}
