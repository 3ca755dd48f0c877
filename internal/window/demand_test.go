package window

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// calls drives a Demand by callers with a known true rate: every second the
// arrivals of that second, of which at most share are issued and the rest refused.
type calls struct {
	*rand.Rand
	Demand
	now, used, refused int64
}

func (c *calls) arrivals(rate float64, poisson bool) int64 {
	if !poisson {
		return int64(rate)
	}
	if rate > 1000 { // the normal approximation
		return int64(math.Round(rate + math.Sqrt(rate)*c.NormFloat64()))
	}
	n := int64(0)
	for t := c.ExpFloat64(); t < rate; t += c.ExpFloat64() {
		n++
	}
	return n
}

func (c *calls) second(rate, share float64, poisson bool) float64 {
	c.now += int64(time.Second)
	n := c.arrivals(rate, poisson)
	issued := min(n, int64(share))
	c.used, c.refused = c.used+issued, c.refused+n-issued
	return float64(c.Observe(c.now, c.used, c.refused, 0)) / 1000
}

func newCalls() *calls {
	c := &calls{Rand: rand.New(rand.NewPCG(1, 2))}
	c.Observe(0, 0, 0, 0)
	return c
}

// TestDemandIsTheTrueRate: whatever part of it is refused.
func TestDemandIsTheTrueRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{1, 3, 10, 100, 1000, 30_000, 1_000_000} {
		for _, share := range []float64{0, rate / 3, 2 * rate} {
			for _, poisson := range []bool{false, true} {
				c := newCalls()
				sum, worst := 0.0, 0.0
				const seconds = 2000
				for i := range seconds {
					got := c.second(rate, share, poisson)
					if i < 30 {
						continue
					}
					sum += got
					worst = max(worst, math.Abs(got-rate))
				}
				mean := sum / (seconds - 30)
				if math.Abs(mean-rate) > 0.04*rate+0.01 {
					t.Errorf("rate %v, share %v, poisson %v: demand is %v on average", rate, share, poisson, mean)
				}
				if bound := 6 * math.Sqrt(max(1, rate)); worst > bound {
					t.Errorf("rate %v, share %v, poisson %v: demand was off by %v, more than %v", rate, share, poisson, worst, bound)
				}
			}
		}
	}
}

func TestDemandFollowsAChange(t *testing.T) {
	t.Parallel()
	c := newCalls()
	for range 20 {
		c.second(100, 50, true)
	}
	if got := c.second(5000, 50, true); got < 4500 {
		t.Errorf("one second after the rate rose to 5000 demand is %v", got)
	}
	c.second(10, 50, true)
	if got := c.second(5000, 50, true); got < 4500 {
		t.Errorf("a pause of one second gave the demand away: %v", got)
	}
	c.second(10, 50, true)
	if got := c.second(10, 50, true); got > 30 {
		t.Errorf("two seconds after the rate fell to 10 demand is %v", got)
	}
	for range 30 {
		c.second(0, 50, false)
	}
	if got := c.second(0, 50, false); got > 0.05 {
		t.Errorf("30 s after the last call demand is %v", got)
	}
}

// TestWaitersAreDemand: callers that ask again only when served show their
// demand by waiting, and it grows until nobody waits.
func TestWaitersAreDemand(t *testing.T) {
	t.Parallel()
	var d Demand
	used, share, now := int64(0), 100.0, int64(0)
	d.Observe(now, 0, 0, 0)
	const most = 5000.0 // per second, that the workers could use
	for range 15 {
		now += int64(time.Second)
		served, waiting := min(share, most), int64(0)
		if share < most {
			waiting = 8
		}
		used += int64(served)
		share = float64(d.Observe(now, used, 0, waiting)) / 1000
	}
	if share < most || share > growth*most+8 {
		t.Errorf("workers that could use %v/s claim %v/s", most, share)
	}
}

// TestWaitersThatComeAndGoAreNotCountedTwice: callers that wait and are refused
// in the end show their whole demand by asking.
func TestWaitersThatComeAndGoAreNotCountedTwice(t *testing.T) {
	t.Parallel()
	var d Demand
	d.Observe(0, 0, 0, 0)
	for second := int64(1); second < 60; second++ {
		// Of 100 a second 70 are issued; the last 10 wait, to be refused later.
		if got := d.Observe(second*int64(time.Second), 70*second, 30*second-10, 10); second > 3 && (got < 95_000 || got > 105_000) {
			t.Fatalf("demand is %d after %d s, want 100/s", got, second)
		}
	}
}

func TestDemandIgnoresCallsTooCloseTogether(t *testing.T) {
	t.Parallel()
	var d Demand
	d.Observe(0, 0, 0, 0)
	if got := d.Observe(int64(demandEvery)-1, 1000, 0, 0); got != 0 {
		t.Errorf("demand is %d after too short a time", got)
	}
	if got := d.Observe(int64(time.Second), 1000, 0, 0); got != 1_000_000 {
		t.Errorf("demand is %d, want 1000/s", got)
	}
}
