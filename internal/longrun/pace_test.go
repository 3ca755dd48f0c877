package longrun_test

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

// alone is AIMD in each instance by itself, by the figures of an adaptive policy.
type alone struct {
	mu    sync.Mutex
	hands map[*hand]*aimd
}

type aimd struct {
	part            float64 // of its share
	calls, refused  int64   // since the last change
	changed         time.Time
	allowed, second int64
}

func (a *alone) of(h *hand) *aimd {
	if a.hands[h] == nil {
		a.hands[h] = &aimd{part: 1, changed: time.Now()}
	}
	return a.hands[h]
}

func (a *alone) spares(h *hand, n int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.of(h)
	if second := time.Now().Unix(); second != x.second {
		x.second, x.allowed = second, int64(x.part*fleetLimit/fleetOf)
		switch age := time.Since(x.changed); {
		case age >= 2*time.Second && x.refused >= 3 && 100*x.refused > x.calls:
			x.part = max(0.2, x.part*(1-min(0.3, float64(x.refused)/float64(x.calls)+0.02)))
			x.calls, x.refused, x.changed = 0, 0, time.Now()
		case age >= 5*time.Second:
			x.part = min(1, x.part+0.03)
			x.calls, x.refused, x.changed = 0, 0, time.Now()
		}
	}
	n = min(n, x.allowed)
	x.allowed -= n
	return n
}

const fleetOf, fleetLimit = 20, 1000

// TestALimitFollowsTheProvider: the limit is 1,000/s, and the provider takes 1,000, then
// 600, then 900. With a pace the fleet uses nearly all that it takes and few calls are
// refused; what each instance finds by itself, and no pace, are for comparison.
func TestALimitFollowsTheProvider(t *testing.T) {
	for _, how := range []string{"pace", "each alone", "none"} {
		t.Run(how, func(t *testing.T) {
			p := quota.Policy{Backoff: quota.BackoffInstance}
			if how == "pace" {
				p = quota.Policy{Adaptive: quota.Adaptive{Floor: 20}}
			}
			inCrew(t, fleetOf, fleetLimit, p, func(c *crew) {
				provider := &capacity{takes: fleetLimit}
				self := &alone{hands: map[*hand]*aimd{}}
				c.calls = func(h *hand, permits int64) int64 {
					refused := provider.call(permits)
					self.mu.Lock()
					defer self.mu.Unlock()
					x := self.of(h)
					x.calls, x.refused = x.calls+permits, x.refused+refused
					if how != "pace" { // nobody pauses
						return 0
					}
					return refused
				}
				if how == "each alone" {
					c.spares = self.spares
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
				provider.take(900)
				tell("the first 50 s at 900/s", 50*time.Second)
				_, minute := tell("then 10 s", 10*time.Second)
				again, most := tell("then, for a minute", time.Minute)
				if how == "pace" && (refused > 0.02 || again > 0.02 || used < 0.9 || minute < 0.9 || most < 0.9) {
					t.Error("want at most 2% refused, and at least 90% used")
				}
			})
		})
	}
}
