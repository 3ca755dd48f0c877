package limittest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// way takes permits of a limit that a fleet has: of the provider, or of one of its keys.
type way struct {
	byKey  bool
	owners int64
}

func (w way) String() string {
	switch {
	case w.owners > 0:
		return fmt.Sprintf("a key with %d owners", w.owners)
	case w.byKey:
		return "a key"
	}
	return "the provider"
}

// fleet returns limiters of n instances that share so many permits a second, at the beginning of one.
func (w way) fleet(t *testing.T, permits int64, n int) (all []*consumer.Limiter) {
	p := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}
	if w.byKey {
		p.Limits[0].Permits *= 1000
		p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Owners: w.owners}
	}
	f, err := limittest.New(p, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Instances() {
		all = append(all, open(t, i))
	}
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	return all
}

func (w way) try(l *consumer.Limiter) bool {
	if w.byKey {
		return l.Key("key").TryAcquire()
	}
	return l.TryAcquire()
}

func (w way) acquire(l *consumer.Limiter, wait time.Duration) bool {
	if w.byKey {
		return l.Key("key").Acquire(context.Background(), wait) == nil
	}
	return l.Acquire(context.Background(), wait) == nil
}

// A hot instance that moves gets nearly all of the limit: the callers of the one before have fallen
// silent.
func TestAMovingHotInstanceGetsTheLimit(t *testing.T) {
	for _, w := range []way{{}, {byKey: true}, {byKey: true, owners: 2}} {
		fleets := map[int]int64{20: 1000, 96: 2000}
		if w.owners > 0 { // in a large fleet two owners are asked less often: 0.93
			delete(fleets, 96)
		}
		t.Run(w.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n, permits := range fleets {
					const seconds, moves = 15, 3
					all, got := w.fleet(t, permits, n), int64(0)
					for second := range seconds {
						for range 200 {
							for range permits * 13 / 2000 { // 1.3 times the limit
								if w.try(all[second/moves*7%n]) {
									got++
								}
							}
							time.Sleep(5 * time.Millisecond)
						}
					}
					if used := float64(got) / float64(permits*seconds); used < 0.97 {
						t.Errorf("%.4f of the limit of %d was used, want 0.97", used, n)
					}
				}
			})
		})
	}
}

// served counts the calls that waiting callers of each instance have got in so many seconds. Each instance
// has the same number of callers, that call again at once.
func (w way) served(all []*consumer.Limiter, callers, seconds int, wait time.Duration) []int64 {
	counts := make([]atomic.Int64, len(all))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, l := range all {
		for range callers {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if w.acquire(l, wait) {
						counts[i].Add(1)
					} else {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	var each []int64
	for i := range counts {
		each = append(each, counts[i].Load())
	}
	close(stop)
	wg.Wait()
	return each
}

// Callers of a key that another instance owns have their part of it while the owner's own callers wait.
func TestAnOwnerServesCallersElsewhereWhileItsOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := way{byKey: true, owners: 1}
		const n, permits, seconds = 3, 10, 20
		sum := int64(0)
		each := w.served(w.fleet(t, permits, n), 1, seconds, 5*time.Second)
		for i, served := range each {
			if sum += served; served < permits*seconds/n*7/10 {
				t.Errorf("instance %d has %d of %d permits, want a third or nearly", i, served, permits*seconds)
			}
		}
		if sum < permits*seconds*95/100 {
			t.Errorf("%v permits of %d were used", each, permits*seconds)
		}
	})
}

// Critical calls of one instance come before those of others that are not, under overload, too.
func TestCriticalCallsComeFirstInTheFleet(t *testing.T) {
	for _, w := range []way{{}, {byKey: true}} {
		t.Run(w.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, permits, seconds = 6, 60, 20
				all := w.fleet(t, permits, n)
				for i, l := range all {
					if all[i] = l.Class(consumer.Sheddable); i < n/2 {
						all[i] = l.Class(consumer.Critical)
					}
				}
				var critical, sum atomic.Int64
				var wg sync.WaitGroup
				for range 20 * seconds { // each instance calls for twice its share
					for i, l := range all {
						wg.Go(func() {
							if !w.acquire(l, 1200*time.Millisecond) {
								return
							}
							if sum.Add(1); i < n/2 {
								critical.Add(1)
							}
						})
						time.Sleep(50 * time.Millisecond / n)
					}
				}
				wg.Wait()
				if part := critical.Load() * 100 / (permits * seconds); part < 80 || sum.Load() < permits*seconds*97/100 {
					t.Errorf("critical calls have %d%% of the limit, want 80%%; all have %d of %d permits", part, sum.Load(), permits*seconds)
				}
			})
		})
	}
}

// An instance whose critical calls find their permits keeps some for those to come, though critical calls
// elsewhere lack some.
func TestAHostKeepsPermitsForItsCriticalCalls(t *testing.T) {
	for _, w := range []way{{}, {byKey: true}} {
		t.Run(w.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, permits, seconds = 3, 90, 20
				all := w.fleet(t, permits, n)
				for i, l := range all {
					all[i] = l.Class(consumer.Critical)
				}
				got := 0
				for range 20 * seconds {
					if w.try(all[0]) { // 20 a second of a share of 30
						got++
					}
					for range 4 {
						w.try(all[1])
						w.try(all[2])
					}
					time.Sleep(50 * time.Millisecond)
				}
				if got < 20*seconds*95/100 {
					t.Errorf("%d of %d calls have a permit", got, 20*seconds)
				}
			})
		})
	}
}
