package live_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/internal/testkit/opencalls"
	"github.com/quotient-limiter/quotient/quota"
)

// flown are limiters of a fleet with calls in flight, ready to issue. set changes their limit. Places move only between
// instances that etcd has answered within the freshness: it is the default, since where this process has no processor
// for half a second, a shorter one lets no place move.
func flown(t *testing.T, limit string, n int) (all []*consumer.Limiter, set func(limit string)) {
	t.Helper()
	client, prefix := etcdtest.NewClient(t, server), fmt.Sprintf("/%s/%d/", t.Name(), time.Now().UnixNano()) // its own with -count too
	operator, err := admin.New(client, admin.Options{Prefix: prefix, Author: "test", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	set = func(limit string) {
		t.Helper()
		limits, err := quota.ParseLimits(limit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Put(t.Context(), provider, quota.Policy{Limits: limits}); err != nil {
			t.Fatal(err)
		}
	}
	set(limit)
	for range n {
		s, err := coordinator.Join(t.Context(), client, coordinator.Options{Prefix: prefix, Logger: quiet, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		l, err := consumer.Open(t.Context(), s, provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	for _, l := range all {
		await.Until(t, "an instance is ready", func() bool { return l.Status().State == quota.StateActive })
	}
	return all, set
}

// A fleet that calls without a pause never has more calls open than the limit says, and all of them at times. Each
// instance has calls, also one that comes when the others use all. When one forgets its calls, others have their
// places once they count no more.
func TestCallsInFlight(t *testing.T) {
	t.Parallel()
	const limit = 30
	all, _ := flown(t, "30 inflight hold=4s", 3)
	var to opencalls.Provider
	var load sync.WaitGroup
	starts := func(l *consumer.Limiter) (made *opencalls.Provider, stop context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		made = &opencalls.Provider{}
		for range limit + 5 {
			load.Go(func() {
				for {
					p, err := l.Take(ctx, 1, consumer.Forever)
					if err != nil {
						return
					}
					to.Begin()
					made.Begin()
					call := time.NewTimer(time.Duration(rand.Int64N(int64(150 * ms))))
					select {
					case <-call.C:
						to.End()
						p.Done()
					case <-ctx.Done(): // it is never said that it has ended, but it has
						<-time.After(time.Until(p.Until()))
						to.End()
						return
					}
				}
			})
		}
		return made, cancel
	}
	first, kill := starts(all[0])
	await.Until(t, "one instance has all", func() bool { open, _, _ := to.Counts(); return open == limit })
	second, stopSecond := starts(all[1])
	third, stopThird := starts(all[2])
	for _, m := range []*opencalls.Provider{first, second, third} {
		_, _, was := m.Counts()
		await.Until(t, "each instance has calls beside the others", func() bool { _, _, made := m.Counts(); return made > was+100 })
	}
	kill()
	began := time.Now()
	await.Until(t, "the others have all of it", func() bool {
		if open, _, _ := to.Counts(); open < limit {
			return false
		}
		return all[1].Status().Limits[0].Used+all[2].Status().Limits[0].Used >= limit-1
	})
	t.Logf("its places are back %v after it was killed", time.Since(began).Round(ms))
	stopSecond()
	stopThird()
	load.Wait()
	_, most, made := to.Counts()
	if t.Logf("%d calls, at most %d open", made, most); most != limit {
		t.Errorf("%d calls were open at once", most)
	}
}

// How long it takes until a caller who waits has the place of a call that has ended at another instance.
func TestAPlaceMovesToWhoWaits(t *testing.T) {
	t.Parallel()
	const limit, moves = 20, 20
	all, _ := flown(t, "20 inflight hold=10m", 2)
	var taken []consumer.Permit
	for range limit {
		p, err := all[0].Take(t.Context(), 1, consumer.Forever)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, p)
	}
	var took []time.Duration
	for i := range moves {
		asked := make(chan struct{})
		had := make(chan time.Time, 1)
		go func() {
			close(asked)
			if _, err := all[1].Take(t.Context(), 1, consumer.Forever); err == nil {
				had <- time.Now()
			}
		}()
		<-asked
		await.Until(t, "it waits", func() bool { return all[1].Status().Waiting == 1 })
		<-time.After(time.Duration(rand.Int64N(int64(300 * ms))))
		began := time.Now()
		taken[i].Done()
		await.Until(t, "it has the place", func() bool { return len(had) == 1 })
		took = append(took, (<-had).Sub(began))
	}
	slices.Sort(took)
	t.Logf("a place moves in %v (p50), %v (most)", took[moves/2].Round(100*time.Microsecond), took[moves-1].Round(100*time.Microsecond))
	if n := all[1].Status().Limits[0].Used; n != moves {
		t.Errorf("%d calls of %d", n, moves)
	}
}

// Where an operator changes the hold, calls that are under way count in the new limit until they end, and their places
// go on to others then. A number that is lowered beside it binds as well.
func TestAChangeOfHoldCountsOpenCalls(t *testing.T) {
	t.Parallel()
	all, set := flown(t, "10 inflight hold=10m", 2)
	var to opencalls.Provider
	begins := func(l *consumer.Limiter) func() {
		p, err := l.Take(t.Context(), 1, consumer.Forever)
		if err != nil {
			t.Fatal(err)
		}
		to.Begin()
		return func() {
			to.End()
			p.Done()
		}
	}
	var open []func()
	for i := range 10 {
		open = append(open, begins(all[i%2]))
	}
	for _, change := range []struct {
		limit string
		most  int // calls that may be open: what was handed out by a higher number is used to the end of its part
	}{{"10 inflight hold=20m", 10}, {"12 inflight hold=5m", 12}, {"8 inflight hold=10m", 12}, {"8 inflight hold=8s", 12}} {
		set(change.limit)
		for _, l := range all {
			await.Until(t, "an instance hears of the change", func() bool { return len(l.Status().Limits) == 1 && l.Status().Limits[0].Limit.String() == change.limit })
		}
		waits, ended := make(chan func()), 0
		for i := range 4 {
			go func() { waits <- begins(all[i%2]) }()
		}
		for begun := 0; begun < 4; {
			select {
			case end := <-waits:
				begun++
				open = append(open, end)
				if n, _, _ := to.Counts(); n > change.most {
					t.Errorf("%s: %d calls are open", change.limit, n)
				}
			case <-time.After(300 * ms): // nobody waits for longer, but for a call that ends, or on a busy machine
				if len(open) > 0 {
					open[0]()
					open = open[1:]
					ended++
				}
			}
		}
		n, _, _ := to.Counts()
		t.Logf("%s: %d calls are open, %d have ended before 4 began", change.limit, n, ended)
	}
	for _, end := range open {
		end()
	}
}
