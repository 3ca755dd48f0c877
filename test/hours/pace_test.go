//go:build load

package hours_test

import (
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// capacity is a provider that answers 429 to more calls than it takes in a second of its
// own clock.
type capacity struct {
	mu       sync.Mutex
	takes    int64
	second   int64
	came     int64
	calls    int64 // since the last reading
	refusals int64
}

func (p *capacity) call(permits int64) (refused int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if second := time.Now().Add(400 * time.Millisecond).Unix(); second != p.second {
		p.second, p.came = second, 0
	}
	p.came += permits
	refused = min(permits, max(0, p.came-p.takes))
	p.calls, p.refusals = p.calls+permits, p.refusals+refused
	return refused
}

func (p *capacity) take(n int64) { p.mu.Lock(); defer p.mu.Unlock(); p.takes = n }

// read returns the part of the calls during d that were refused, and the part of the
// capacity that was used.
func (p *capacity) read(d time.Duration) (refused, used float64) {
	p.mu.Lock()
	p.calls, p.refusals = 0, 0
	p.mu.Unlock()
	pass(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.refusals) / float64(max(1, p.calls)), float64(p.calls-p.refusals) / (float64(p.takes) * d.Seconds())
}

const fleetOf, fleetLimit = 20, 1000

// TestALimitFollowsTheProvider: the limit is 1,000/s, and the provider takes 1,000, then
// 600, then 1,000. With a pace the fleet uses nearly all that it takes and few calls are
// refused; no pace is for comparison.
func TestALimitFollowsTheProvider(t *testing.T) {
	for _, how := range []string{"pace", "none"} {
		t.Run(how, func(t *testing.T) {
			p := quota.Policy{Throttling: quota.Throttling{Backoff: quota.BackoffInstance}}
			if how == "pace" {
				p = quota.Policy{Throttling: quota.Throttling{Adaptive: quota.Adaptive{Floor: 20}}}
			}
			inCrew(t, fleetOf, fleetLimit, p, func(c *crew) {
				provider := &capacity{takes: fleetLimit}
				c.calls = func(_ *hand, permits int64) int64 {
					refused := provider.call(permits)
					if how == "pace" {
						return refused
					}
					return 0 // nobody pauses
				}
				c.offer(func(int) int64 { return fleetLimit * 3 / 2 / fleetOf })
				provider.read(5 * time.Second)
				tell := func(what string, d time.Duration) (refused, used float64) {
					refused, used = provider.read(d)
					t.Logf("%s: %.1f%% refused, %.1f%% of the capacity used", what, 100*refused, 100*used)
					return refused, used
				}
				provider.take(600)
				tell("the first 10 s at 600/s", 10*time.Second)
				refused, used := tell("then, for a minute", time.Minute)
				provider.take(fleetLimit)
				tell("the first 50 s at 1,000/s", 50*time.Second)
				_, minute := tell("then 10 s", 10*time.Second)
				again, most := tell("then, for a minute", time.Minute)
				if how == "pace" && (refused > 0.02 || again > 0.02 || used < 0.9 || minute < 0.9 || most < 0.9) {
					t.Error("want at most 2% refused, and at least 90% used")
				}
			})
		})
	}
}
