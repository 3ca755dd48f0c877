package consumer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// unheard runs f with a limiter to which nothing was told yet, and its source.
func unheard(t *testing.T, f func(t *testing.T, s *told, l *consumer.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		f(t, s, l)
	})
}

// tellsOf tells the first view: a policy, or none, and this instance.
func (s *told) tellsOf(policy *quota.Policy) {
	s.sink.Reset(s.clock.Now(), "me", protocol.View{Revision: 1, Policy: policy, PolicyRevision: 1, Instances: []protocol.Instance{{ID: "me"}}})
	s.prove()
}

func keyLimits(t *testing.T, keys string) *quota.Policy {
	policy := policyOf(t, "1000/s")
	policy.Keys.Limits = policyOf(t, keys).Limits
	policy = policy.WithDefaults()
	return &policy
}

// Calls for a key that come before etcd has told anything wait for it, as those for the provider do: by
// Take, by TakeFunc and in TakeAll. They are served in order.
func TestAKeysFirstCallWaitsForTheFirstView(t *testing.T) {
	unheard(t, func(t *testing.T, s *told, l *consumer.Limiter) {
		var order []int
		var all sync.WaitGroup
		all.Add(4)
		got := func(i int) func(consumer.Permit, error) {
			return func(_ consumer.Permit, err error) {
				defer all.Done()
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
				if i < 3 {
					order = append(order, i)
				}
			}
		}
		y := l.Key("a")
		y.TakeFunc(1, 10*time.Second, got(0))
		y.TakeFunc(80, 10*time.Second, got(1))
		l.Key("a").TakeFunc(2, 10*time.Second, got(2))
		go func() {
			_, err := consumer.TakeAll(t.Context(), 10*time.Second, map[consumer.Taker]int64{l.Key("b"): 1})
			got(3)(consumer.Permit{}, err)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(order) > 0 {
			t.Fatalf("calls %v were served before there was a limit", order)
		}
		s.tellsOf(keyLimits(t, "80/s"))
		for range 8 { // until the share has settled
			s.prove()
			time.Sleep(500 * time.Millisecond)
		}
		all.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("calls were served in the order %v", order)
		}
	})
}

// What a key's early caller is told if the wait was in vain.
func TestAKeysFirstCallIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		policy *quota.Policy
		tell   bool
		want   string
	}{
		"nothing is told":   {want: "consumer: p: no permit for key \"a\": etcd has told nothing yet"},
		"no policy":         {tell: true, want: "consumer: p: no limit is set: quota-admin set p LIMITS; quota-admin list shows all"},
		"no keys":           {tell: true, policy: func() *quota.Policy { p := policyOf(t, "1000/s").WithDefaults(); return &p }(), want: "consumer: p: no limit is set by key: add some with quota-admin set p 1000/s --keys LIMITS"},
		"no keys in flight": {tell: true, policy: func() *quota.Policy { p := policyOf(t, "3 inflight hold=10s").WithDefaults(); return &p }(), want: "consumer: p: no limit is set by key: under 3 inflight hold=10s there is none; leave the key out, or set a provider for each account, such as: quota-admin set p-ACCOUNT '3 inflight hold=10s'"},
	} {
		t.Run(name, func(t *testing.T) {
			unheard(t, func(t *testing.T, s *told, l *consumer.Limiter) {
				errs := make(chan error, 1)
				go func() {
					_, err := l.Key("a").Take(t.Context(), 1, 2*time.Second)
					errs <- err
				}()
				began := time.Now()
				time.Sleep(time.Second)
				want := 2 * time.Second
				if c.tell {
					s.tellsOf(c.policy)
					want = time.Second
				}
				if err := <-errs; err == nil || err.Error() != c.want || time.Since(began) != want {
					t.Errorf("after %v: %v\nwant %q after %v", time.Since(began), err, c.want, want)
				}
			})
		})
	}
}

// A key's early caller may give up, and a limiter that is closed lets it go.
func TestAKeysFirstCallEnds(t *testing.T) {
	unheard(t, func(t *testing.T, _ *told, l *consumer.Limiter) {
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		go func() { errs <- l.Key("a").Acquire(ctx, consumer.Forever) }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { errs <- l.Key("a").Acquire(t.Context(), consumer.Forever) }()
		l.Key("a").TakeFunc(1, consumer.Forever, func(_ consumer.Permit, err error) { errs <- err })
		synctest.Wait()
		_ = l.Close()
		for range 2 {
			if err := <-errs; !errors.Is(err, consumer.ErrClosed) {
				t.Error(err)
			}
		}
		if l.Key("a").TryAcquire() {
			t.Error("a permit after Close")
		}
	})
}
