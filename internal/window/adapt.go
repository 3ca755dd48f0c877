package window

import (
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// Adaptive pacing gives the provider a flat rate also below the limit. It foresees
// the rate from the arrivals of earlier windows, releases permits at that rate,
// and lets a short queue even out what arrives unevenly. A controller with a
// proportional, an integral and a derivative part (Åström and Hägglund, PID
// Controllers) keeps the queue near the length at which a caller waits for aim
// of the delay allowed; whatever it says, the queue is served fast enough for
// that delay and for the nearest deadline.
//
// It only ever holds back what the even line has released: where the rate cannot
// be foreseen, and in the first windows, pacing is even.
type controller struct {
	at       int64   // of the latest release
	issued   int64   // since the beginning, as of at
	waiting  int64   // permits waited for, as of at
	credit   float64 // permits released and not issued; negative: issued ahead, by phase
	integral float64 // permits per ns, of the rate

	// noted are how many permits had been asked for at some earlier times, the
	// oldest first; what was asked for then is issued within the allowed delay.
	noted []mark

	window  quota.Window // being counted
	began   int64        // when counting it began
	arrived float64      // permits asked for in it
	most    float64      // the furthest that these were ahead of the mean rate
	least   float64      // and behind it: negative
	seen    int          // windows counted
	uneven  float64      // most less least, smoothed: what an even release must store
	mean    float64      // of arrivals per window, smoothed
	stray   float64      // mean distance of a window's arrivals from mean
	level   float64      // permits waited for when the window began
	slope   float64      // by how much more than when the one before it began
}

// mark is how many permits had been asked for since the beginning, at an instant.
type mark struct{ at, asked int64 }

const (
	aim        = 0.35 // of the allowed delay: the longest that the queue is kept
	keep       = 0.6  // of what must be stored: how long it is kept
	margin     = 0.95 // of the allowed delay: everybody is served within that
	marks      = 32   // times within the allowed delay at which arrivals are noted
	remember   = 0.25 // weight of the newest window
	warm       = 3    // windows before anything is foreseen
	strayMost  = 0.5  // of mean: more cannot be foreseen
	gain       = 0.15 // proportional, per allowed delay
	gainTime   = 0.05 // integral, per allowed delay squared
	gainSlope  = 0.1  // derivative, per allowed delay
	integralAt = 0.25 // of the foreseen rate: the integral's bound (anti-windup)
)

// observe counts what has arrived since the latest call.
func (c *controller) observe(now int64, w quota.Window, issued, waiting int64) {
	if c.window != w {
		if c.window.Length == w.Length && w.Index == c.window.Index+1 {
			c.learn(float64(c.waiting))
		} else {
			*c = controller{at: now, issued: issued, waiting: waiting}
		}
		c.window, c.began, c.arrived, c.most, c.least = w, now, 0, 0, 0
	}
	c.arrived += float64(issued - c.issued + waiting - c.waiting)
	ahead := c.arrived - c.mean*float64(now-c.began)/float64(w.Length)
	c.most, c.least = max(c.most, ahead), min(c.least, ahead)
	c.credit = max(-1, c.credit-float64(issued-c.issued))
	c.issued, c.waiting = issued, waiting
}

// learn takes the arrivals of a window that is over.
func (c *controller) learn(waiting float64) {
	c.slope, c.level = waiting-c.level, waiting
	if c.seen++; c.seen == 1 {
		c.mean, c.uneven = c.arrived, c.arrived
		return
	}
	c.uneven += remember * (c.most - c.least - c.uneven)
	c.stray += remember * (math.Abs(c.arrived-c.mean) - c.stray)
	c.mean += remember * (c.arrived - c.mean)
}

// foreseen reports whether the coming arrivals can be told from the earlier ones.
func (c *controller) foreseen() bool {
	return c.seen >= warm && c.mean >= 1 && c.stray <= strayMost*c.mean
}

// required is the rate at which everybody is served within the allowed delay.
func (c *controller) required(now, delay int64) (rate float64) {
	step := delay / marks
	for len(c.noted) > 0 && c.noted[0].asked <= c.issued {
		c.noted = slices.Delete(c.noted, 0, 1)
	}
	if n := len(c.noted); n == 0 || now-c.noted[n-1].at >= step {
		c.noted = append(c.noted, mark{now, c.issued + c.waiting})
	}
	for _, m := range c.noted {
		left := max(float64(m.at-now)+margin*float64(delay), 1)
		rate = max(rate, float64(m.asked-c.issued)/left)
	}
	return rate
}

// release returns how many permits may be issued now. delay is what a caller may
// be held back for at most, nearest the nearest deadline of those who wait, most
// the rate that is never exceeded, in permits per nanosecond. phase, 0 to 1, sets
// apart instances whose callers come all at once after a pause.
func (c *controller) release(now, delay, nearest int64, most, phase float64) int64 {
	elapsed := float64(max(0, now-c.at))
	c.at = now
	if !c.foreseen() {
		c.credit, c.integral, c.noted = 0, 0, nil
		return math.MaxInt64
	}
	d, mean, queue := float64(delay), c.mean/float64(c.window.Length), float64(c.waiting)
	off := queue - min(aim*mean*d, keep*c.uneven)
	rate := mean + gain*off/d + c.integral + gainSlope*c.slope/d
	// The integral stops where the rate is at a bound, so that it does not wind up.
	if rate > 0 && rate < most {
		c.integral = min(max(c.integral+gainTime*off/d/d*elapsed, -integralAt*mean), integralAt*mean)
	}
	rate = max(rate, c.required(now, delay))
	if nearest != Forever {
		rate = max(rate, queue/float64(max(1, nearest-now)))
	}
	rate = min(max(rate, 0), most)
	c.credit += rate * elapsed
	store := 0.0
	if queue > 0 {
		store = max(1, catchUp*rate*float64(sliceOf(c.window.Length)))
	}
	c.credit = min(c.credit, store)
	return int64(max(0, c.credit+phase))
}
