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
	return float64(c.Observe(c.now, Calls{Issued: c.used, Refused: c.refused})) / 1000
}

func newCalls() *calls {
	c := &calls{Rand: rand.New(rand.NewPCG(1, 2))}
	c.Observe(0, Calls{})
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
// demand by waiting, and it grows until nobody waits; also where they try first
// and wait then, or others try who do not wait.
func TestWaitersAreDemand(t *testing.T) {
	t.Parallel()
	for _, tries := range []int64{0, 1, 40} {
		var d Demand
		c, share, now := Calls{}, 100.0, int64(0)
		d.Observe(now, c)
		const most = 5000.0 // per second, that the workers could use
		for range 15 {
			now += int64(time.Second)
			c.Waiting = 0
			if share < most {
				c.Waiting = 8
				c.Refused += tries
			}
			c.Issued += int64(min(share, most))
			share = float64(d.Observe(now, c)) / 1000
		}
		if share < most || share > growth*most+8+float64(tries) {
			t.Errorf("workers that could use %v/s claim %v/s, while %d/s are refused", most, share, tries)
		}
	}
}

// TestWaitersThatComeAndGoAreNotCountedTwice: callers that wait and are refused
// in the end show their whole demand by asking.
func TestWaitersThatComeAndGoAreNotCountedTwice(t *testing.T) {
	t.Parallel()
	var d Demand
	d.Observe(0, Calls{})
	for second := int64(1); second < 60; second++ {
		// Of 100 a second 70 are issued; the last 10 wait, to be refused later.
		c := Calls{Issued: 70 * second, Refused: 30*second - 10, Unmet: 30*second - 10, Waiting: 10}
		if got := d.Observe(second*int64(time.Second), c); second > 3 && (got < 95_000 || got > 105_000) {
			t.Fatalf("demand is %d after %d s, want 100/s", got, second)
		}
	}
}

func TestDemandIgnoresCallsTooCloseTogether(t *testing.T) {
	t.Parallel()
	var d Demand
	d.Observe(0, Calls{})
	if got := d.Observe(int64(demandEvery)-1, Calls{Issued: 1000}); got != 0 {
		t.Errorf("demand is %d after too short a time", got)
	}
	if got := d.Observe(int64(time.Second), Calls{Issued: 1000}); got != 1_000_000 {
		t.Errorf("demand is %d, want 1000/s", got)
	}
}
