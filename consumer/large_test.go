package consumer_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// taker takes permits.
type taker interface {
	Take(ctx context.Context, n int64, maxWait time.Duration) (consumer.Permit, error)
	Acquire(ctx context.Context, maxWait time.Duration) error
}

// limited is what a limit is of: the provider, or a key of it.
type limited string

const (
	provider limited = "provider"
	key      limited = "key"
	paced    limited = "provider with pacing"
)

// limitedKinds are the limits that each test here is played with.
var limitedKinds = []limited{provider, key, paced}

// fleet returns limiters of so many instances, and what takes permits of a limit that they share.
func (of limited) fleet(t *testing.T, permits int64, instances int) (all []*consumer.Limiter, takers []taker) {
	t.Helper()
	policy := policyOf(t, fmt.Sprintf("%d/s", permits))
	switch of {
	case key:
		policy.Keys.Limits = policy.Limits
		policy.Limits = policyOf(t, fmt.Sprintf("%d/s", 100*permits)).Limits
	case paced:
		policy.Pacing = quota.PacingEven
	}
	all = openAll(t, fleet(t, policy, instances))
	for _, l := range all {
		if of == key {
			takers = append(takers, l.Key("k"))
		} else {
			takers = append(takers, l)
		}
	}
	return all, takers
}

// play calls run in a bubble with what fleet returns. When run returns, play ends ctx, and waits for what run has started by
// running.
func (of limited) play(t *testing.T, permits int64, instances int, run func(t *testing.T, ctx context.Context, running *sync.WaitGroup, all []*consumer.Limiter, takers []taker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all, takers := of.fleet(t, permits, instances)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		run(t, ctx, &running, all, takers)
	})
}

// loop has a caller take n permits again and again. It counts the calls that were served.
func loop(ctx context.Context, l taker, n int64, maxWait time.Duration, served, refused *atomic.Int64) {
	for ctx.Err() == nil {
		switch _, err := l.Take(ctx, n, maxWait); {
		case err == nil:
			served.Add(1)
		case ctx.Err() == nil:
			refused.Add(1)
			time.Sleep(time.Millisecond)
		}
	}
}

// openAll opens a limiter on each instance of a fleet.
func openAll(t *testing.T, fleet *limittest.Fleet) (all []*consumer.Limiter) {
	t.Helper()
	for _, i := range fleet.Instances() {
		all = append(all, open(t, i, consumer.Options{}))
	}
	return all
}

// issuedBy returns how many permits limiters have issued together.
func issuedBy(all []*consumer.Limiter) (n int64) {
	for _, l := range all {
		n += l.Status().Issued
	}
	return n
}

// TestAKeysCallThatIsLargeForItsProvider: a call for a key that is small for the key, and large for the provider, leaves small
// calls what they will want of the provider's permits, as one for the provider does.
func TestAKeysCallThatIsLargeForItsProvider(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			policy := policyOf(t, "40/s")
			policy.Keys.Limits = policyOf(t, "400/s").Limits
			all := openAll(t, fleet(t, policy, 4))
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			running.Go(func() { // ten a second, which is the share
				for ctx.Err() == nil {
					time.Sleep(100 * time.Millisecond)
					all[0].TryAcquire()
				}
			})
			time.Sleep(5 * time.Second)
			borrowed, err := all[0].Take(ctx, 25, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range all[1:] {
				other.TryTake(other.Status().Limits[0].Left) // now it lends no more, and does not ask either
			}
			borrowed.Release()
			left := all[0].Status().Limits[0].Left
			var by taker = all[0]
			if byKey {
				by = all[0].Key("k")
			}
			if _, err := by.Take(ctx, left-2, 5*time.Millisecond); err == nil {
				t.Errorf("by key %v: a call for %d of %d has what small ones will want", byKey, left-2, left)
			}
			if _, err := by.Take(ctx, left/2, 5*time.Millisecond); err != nil {
				t.Errorf("by key %v: %d of %d are refused: %v", byKey, left/2, left, err)
			}
		})
	}
}

// Large requests of several instances do not block each other: together they have 0.9 of what one
// limiter with all of the limit serves.
func TestLargeRequestsDoNotBlockEachOther(t *testing.T) {
	all := []struct {
		instances, asking int
		limit, n          int64
	}{
		{3, 3, 1000, 350}, {12, 12, 600, 590}, {10, 10, 1000, 150}, {10, 10, 1000, 250}, {12, 6, 600, 480},
	}
	if testing.Short() {
		all = all[:2]
	}
	for _, c := range all {
		for _, of := range limitedKinds {
			t.Run(fmt.Sprintf("%d of %d ask for %d of %d, by %s", c.asking, c.instances, c.n, c.limit, of), func(t *testing.T) {
				of.play(t, c.limit, c.instances, func(t *testing.T, ctx context.Context, running *sync.WaitGroup, _ []*consumer.Limiter, takers []taker) {
					var served, refused atomic.Int64
					for i, by := range takers[:c.asking] {
						running.Go(func() {
							time.Sleep(time.Duration(i) * time.Millisecond)
							loop(ctx, by, c.n, 5*time.Second, &served, &refused)
						})
					}
					const windows = 20
					time.Sleep(windows * time.Second)
					one := windows * (c.limit / c.n)
					t.Logf("%d served, %d refused; one limiter serves %d", served.Load(), refused.Load(), one)
					if served.Load()*10 < one*9 {
						t.Errorf("%d served, one limiter serves %d", served.Load(), one)
					}
				})
			})
		}
	}
}

// A large request and small ones of its instance are served beside each other.
func TestSmallCallsPassALargeOne(t *testing.T) {
	// small returns what small calls and the fleet have in a second, the fleet's as a part of the limit, and how many
	// large calls were served. The callers of other instances want so many times their share.
	small := func(t *testing.T, of limited, large bool, others float64) (rate, fleetUse float64, served int64) {
		of.play(t, 1000, 4, func(t *testing.T, ctx context.Context, running *sync.WaitGroup, all []*consumer.Limiter, takers []taker) {
			var smalls, larges, refused atomic.Int64
			for i, by := range takers {
				callers, demand := 40, 266.0
				if i > 0 {
					demand *= others
				}
				every := time.Duration(float64(time.Second) * float64(callers) / demand)
				for c := range callers {
					running.Go(func() {
						r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
						for ctx.Err() == nil {
							began := time.Now()
							if by.Acquire(ctx, 3*time.Second) == nil && i == 0 {
								smalls.Add(1)
							}
							next := time.Duration((0.5 + r.Float64()) * float64(every))
							select {
							case <-time.After(max(time.Millisecond, next-time.Since(began))):
							case <-ctx.Done():
							}
						}
					})
				}
			}
			time.Sleep(5 * time.Second)
			if large {
				running.Go(func() { loop(ctx, takers[0], 260, 3*time.Second, &larges, &refused) })
			}
			// From just before an edge to just before another, when what a window has is issued: who waits for an edge
			// may be served before or after it is looked at there.
			time.Sleep(5*time.Second - 10*time.Millisecond)
			was, before := smalls.Load(), issuedBy(all)
			const seconds = 30
			time.Sleep(seconds * time.Second)
			rate, fleetUse, served = float64(smalls.Load()-was)/seconds, float64(issuedBy(all)-before)/seconds/1000, larges.Load()
			t.Logf("large %v, others %.2f: small %.0f/s, fleet %.3f, large %d served %d refused", large, others, rate, fleetUse, served, refused.Load())
		})
		return rate, fleetUse, served
	}
	// The small calls keep 0.9 of what they have. A call of 260 fits only where they leave as much in a
	// window; what is less is of use to nobody. So where the others want less than their shares, a use of
	// 0.97 cannot be had: 0.79 to 0.93 of the limit fits, and the fleet serves at least that. It serves more where others
	// want so little that what the small calls leave makes room for another large one now and then.
	all := []float64{0.5, 1, 0.01, 0.47, 0.7, 1.5}
	if testing.Short() {
		all = all[:2]
	}
	for _, of := range limitedKinds {
		for _, others := range all {
			t.Run(fmt.Sprintf("%s, others %.2f", of, others), func(t *testing.T) {
				without, alone, _ := small(t, of, false, others)
				with, use, larges := small(t, of, true, others)
				fits := alone + math.Floor((1-alone)/0.26)*0.26
				least := fits - 0.005
				if others < 0.6 && of != paced {
					least = fits + 0.01
				}
				if with < 0.9*without || larges == 0 || others >= 1 && use < 0.97 || use < least {
					t.Errorf("small calls %.0f/s beside a large one, %.0f/s without; %d large ones were served, use %.3f, %.3f without, %.3f fits", with, without, larges, use, alone, fits)
				}
			})
		}
	}
}

// An instance whose callers want only large calls has its fair share of the limit, also where others want
// all of it, and what it cannot use of a window is lent to them.
func TestLargeCallsAloneHaveTheirShare(t *testing.T) {
	for _, c := range []struct {
		instances int
		n         int64
		wait      time.Duration // of the others' callers
		refused   bool          // other large calls of the instance do not wait
	}{{2, 30, 30 * time.Second, false}, {2, 40, 30 * time.Second, false}, {4, 15, 30 * time.Second, false}, {2, 30, 0, false}, {2, 30, 30 * time.Second, true}} {
		for _, of := range limitedKinds {
			t.Run(fmt.Sprintf("%d of 40 among %d, others wait %v, some are refused %v, by %s", c.n, c.instances, c.wait, c.refused, of), func(t *testing.T) {
				of.play(t, 40, c.instances, func(t *testing.T, ctx context.Context, running *sync.WaitGroup, all []*consumer.Limiter, takers []taker) {
					for _, by := range takers[1:] {
						for range 40 {
							running.Go(func() {
								for ctx.Err() == nil {
									if _ = by.Acquire(ctx, c.wait); c.wait == 0 {
										time.Sleep(10 * time.Millisecond)
									}
								}
							})
						}
					}
					time.Sleep(5*time.Second + 123*time.Millisecond)
					var larges, refused atomic.Int64
					running.Go(func() { loop(ctx, takers[0], c.n, 20*time.Second, &larges, &refused) })
					if c.refused {
						running.Go(func() {
							for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
								_, _ = takers[0].Take(ctx, c.n, 0)
							}
						})
					}
					time.Sleep(5 * time.Second)
					before, was := issuedBy(all), larges.Load()
					const seconds = 40
					time.Sleep(seconds * time.Second)
					use, large := float64(issuedBy(all)-before)/40/seconds, float64((larges.Load()-was)*c.n)/seconds
					t.Logf("use %.3f; large calls have %.1f/s of a share of %d, %d refused", use, large, 40/c.instances, refused.Load())
					least := 0.97
					if of == paced { // the last of what it leaves comes too late to be lent
						least = 0.95
					}
					if share := 40 / float64(c.instances); use < least || large < 0.7*share || large > 1.05*share || refused.Load() > 0 {
						t.Errorf("use %.3f; large calls have %.1f/s of a share of %.0f, %d refused", use, large, share, refused.Load())
					}
				})
			})
		}
	}
}

// twoWindows are two windows, and some time for the permits of a large call to come together.
const twoWindows = 2*time.Second + 100*time.Millisecond

// Where others want all of the limit, a call for more than the share is served within two windows, if no other large
// one was served for as many windows as it wants shares. That a caller gives up after these two windows, and comes
// again, costs it nothing: it has its share of the limit.
func TestALargeCallIsServedWithinTwoWindows(t *testing.T) {
	sizes, patience := []int64{900, 300, 500, 750}, []time.Duration{twoWindows, 3 * time.Second, 10 * time.Second}
	if testing.Short() {
		sizes, patience = sizes[:2], patience[:1]
	}
	for _, of := range limitedKinds {
		t.Run(string(of), func(t *testing.T) {
			of.play(t, 1000, 4, func(t *testing.T, ctx context.Context, running *sync.WaitGroup, _ []*consumer.Limiter, takers []taker) {
				var busy, lacked atomic.Int64 // of the others' calls
				for _, by := range takers[1:] {
					for range 40 {
						running.Go(func() { loop(ctx, by, 10, 30*time.Second, &busy, &lacked) })
					}
				}
				time.Sleep(5*time.Second + 123*time.Millisecond)
				for _, n := range sizes {
					shares := (n + 249) / 250
					if _, err := takers[0].Take(ctx, n, twoWindows); err != nil {
						t.Errorf("%d permits, the first call: %v", n, err)
					}
					for _, waits := range patience {
						const windows = 24
						served := int64(0)
						for end := time.Now().Add(windows * time.Second); time.Now().Before(end); {
							if _, err := takers[0].Take(ctx, n, waits); err == nil {
								served++
							} else if refused, ok := limitError(err); ok {
								time.Sleep(time.Until(refused.RetryAt))
							}
						}
						t.Logf("%d permits, %v: %d served in %d windows", n, waits, served, windows)
						if served < windows/(shares+3) {
							t.Errorf("%d permits, again and again within %v: %d served in %d windows", n, waits, served, windows)
						}
					}
					time.Sleep(time.Duration(shares) * time.Second)
				}
			})
		})
	}
}

// Large calls are served also where small ones wait on each instance for more than its share: one for nearly the limit,
// and such of several instances, or of all. Small calls have the rest.
func TestLargeCallsAreServedWhereSmallOnesWaitEverywhere(t *testing.T) {
	all := []struct {
		asking int
		n      int64
		least  int64 // calls that are served in 60 windows
	}{{1, 900, 5}, {4, 260, 38}, {2, 260, 24}, {4, 700, 7}}
	if testing.Short() {
		all = all[:2]
	}
	for _, c := range all {
		for _, of := range limitedKinds {
			t.Run(fmt.Sprintf("%d of 4 ask for %d of 1000, by %s", c.asking, c.n, of), func(t *testing.T) {
				of.play(t, 1000, 4, func(t *testing.T, ctx context.Context, running *sync.WaitGroup, all []*consumer.Limiter, takers []taker) {
					smalls, larges := make([]atomic.Int64, 4), make([]atomic.Int64, 4)
					var lacked, refused atomic.Int64
					for i, by := range takers {
						for range 40 {
							running.Go(func() { loop(ctx, by, 10, 30*time.Second, &smalls[i], &lacked) })
						}
					}
					time.Sleep(5*time.Second + 123*time.Millisecond)
					if c.asking == 1 { // less than two windows' small calls are before it, then it is served within two
						if _, err := takers[0].Take(ctx, c.n, 2*time.Second+twoWindows); err != nil {
							t.Errorf("the first call: %v", err)
						}
					}
					for i, by := range takers[:c.asking] {
						running.Go(func() { loop(ctx, by, c.n, 60*time.Second, &larges[i], &refused) })
					}
					before := issuedBy(all)
					for i := range smalls {
						smalls[i].Store(0)
					}
					const windows = 60
					time.Sleep(windows * time.Second)
					use, served := float64(issuedBy(all)-before)/windows/1000, int64(0)
					for i := range larges {
						small, large := float64(smalls[i].Load()*10)/windows, larges[i].Load()
						served += large
						t.Logf("instance %d: small calls have %.0f/s, %d large ones served", i, small, large)
						if i < c.asking && large == 0 || small < 160 {
							t.Errorf("instance %d: small calls have %.0f/s, %d large ones served", i, small, large)
						}
					}
					if t.Logf("use %.3f, %d served, %d refused", use, served, refused.Load()); served < c.least || use < 0.97 {
						t.Errorf("use %.3f, %d served, want %d", use, served, c.least)
					}
				})
			})
		}
	}
}

// Small calls keep what they have beside large ones of their instance that give back most of what they got.
func TestSmallCallsBesideLargeOnesThatCostLess(t *testing.T) {
	// small returns what small calls have in a second.
	small := func(t *testing.T, of limited, large bool) (rate float64, served int64) {
		of.play(t, 1000, 4, func(t *testing.T, ctx context.Context, running *sync.WaitGroup, _ []*consumer.Limiter, takers []taker) {
			var smalls atomic.Int64
			for i, by := range takers {
				for range 40 {
					running.Go(func() {
						for every := 170 * time.Millisecond; ctx.Err() == nil; {
							began := time.Now()
							if by.Acquire(ctx, time.Second) == nil && i == 0 {
								smalls.Add(1)
							}
							time.Sleep(max(time.Millisecond, every-time.Since(began)))
						}
					})
				}
			}
			if large {
				running.Go(func() {
					for ctx.Err() == nil {
						if p, err := takers[0].Take(ctx, 260, 3*time.Second); err == nil {
							served++
							time.Sleep(50 * time.Millisecond)
							_ = p.Settle(10)
						}
					}
				})
			}
			time.Sleep(5 * time.Second)
			was := smalls.Load()
			const seconds = 20
			time.Sleep(seconds * time.Second)
			rate = float64(smalls.Load()-was) / seconds
		})
		return rate, served
	}
	for _, of := range limitedKinds {
		t.Run(string(of), func(t *testing.T) {
			without, _ := small(t, of, false)
			with, served := small(t, of, true)
			t.Logf("%.0f/s, %.0f/s without large ones, of which %d were served", with, without, served)
			if with < 0.96*without || served == 0 {
				t.Errorf("%.0f/s, %.0f/s without large ones, of which %d were served", with, without, served)
			}
		})
	}
}
