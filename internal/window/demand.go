package window

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Demand estimates what callers ask for: permits issued, refused and waited for
// in a time, per time. It is smoothed, so that chance does not look like change;
// what is more than chance counts at once upwards, and downwards when it was seen
// twice, so that a pause between two bursts does not give the claim away.
//
// What is asked for is counted when it comes: issued, refused, or newly waiting.
// But callers that ask again only when served (workers in a loop) show no more of
// their demand than they get. Such are those that wait all the time and are never
// refused: then those who wait count on top, and the demand is taken to be growth
// times what was issued at least.
//
// The zero Demand has seen nothing. It is not safe for concurrent use.
type Demand struct {
	started       bool
	at            int64
	used, refused int64
	waiting       int64
	rate          float64 // permits per second
	below         bool    // the latest observation was far below rate
}

const (
	// demandEvery is the least time between two observations that count.
	demandEvery = 500 * time.Millisecond
	// demandSmooth is the time constant of the smoothing.
	demandSmooth = 5 * time.Second
	// waitersServed is the time in which those who wait shall be served.
	waitersServed = time.Second
	growth        = 1.5
	// chance is by how many standard deviations arrivals that are independent of
	// each other stray.
	chance = 4
)

// Observe takes how many permits were issued and refused since the beginning,
// and how many are waited for at the instant now. It returns the demand in
// permits per 1,000 seconds, at most quota.MaxDemand. Calls closer together than
// half a second change nothing.
func (d *Demand) Observe(now, used, refused, waiting int64) int64 {
	elapsed := time.Duration(now - d.at)
	switch {
	case !d.started:
		*d = Demand{started: true, at: now, used: used, refused: refused, waiting: waiting}
	case elapsed >= demandEvery:
		d.observe(elapsed.Seconds(), used-d.used, refused-d.refused, waiting)
		d.at, d.used, d.refused, d.waiting = now, used, refused, waiting
	}
	return int64(math.Min(math.Ceil(1000*d.rate), float64(quota.MaxDemand)))
}

// observe takes what was issued and refused in so many seconds.
func (d *Demand) observe(seconds float64, used, refused, waiting int64) {
	rate := float64(max(0, used+refused+waiting-d.waiting)) / seconds // permits can be given back
	if refused == 0 && waiting > 0 && d.waiting > 0 {
		rate = max(rate+float64(waiting)/waitersServed.Seconds(), growth*float64(used)/seconds)
	}
	off := (rate - d.rate) * seconds
	usual := chance * math.Sqrt(max(1, d.rate*seconds))
	switch {
	case off > usual, off < -usual && d.below:
		d.rate, d.below = rate, false
	case off < -usual:
		d.below = true
	default:
		d.rate += (rate - d.rate) * -math.Expm1(-seconds/demandSmooth.Seconds())
		d.below = false
	}
}
