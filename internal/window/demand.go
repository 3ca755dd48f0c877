package window

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Demand estimates the rate at which callers request permits. It is smoothed, so
// that chance does not look like change. A rise by more than chance counts at once;
// a fall counts when it was seen twice, so that a pause between two bursts does not
// give the claim away.
//
// A request counts when it comes: issued, refused, or newly waiting. But callers
// that ask again only when served (workers in a loop) show no more demand than they
// get. We assume such callers when some are always waiting and none times out. Then
// the waiting permits count on top, and the demand is at least growth times the
// issued permits. Refusals of callers that do not wait say nothing about them.
//
// The zero Demand has seen nothing. It is not safe for concurrent use.
type Demand struct {
	started bool
	at      int64
	last    Calls
	rate    float64 // permits per second
	below   bool    // the latest observation was far below rate
}

// Calls are the outcomes of requests since the beginning, in permits; Waiting is
// how many are waited for now.
type Calls struct {
	Issued, Refused int64
	Unmet           int64 // refused to callers that were ready to wait
	Waiting         int64
}

const (
	// demandEvery is the least time between two observations that count.
	demandEvery = 500 * time.Millisecond
	// demandSmooth is the time constant of the smoothing.
	demandSmooth = 5 * time.Second
	// waitersServed is the time in which waiters shall be served.
	waitersServed = time.Second
	growth        = 1.5
	// chance is by how many standard deviations arrivals that are independent of
	// each other stray.
	chance = 4
)

// Observe takes the outcomes until the instant now. It returns the demand in
// permits per 1,000 seconds, at most protocol.MaxDemand. Calls closer together than
// half a second change nothing.
func (d *Demand) Observe(now int64, c Calls) int64 {
	elapsed := time.Duration(now - d.at)
	switch {
	case !d.started:
		*d = Demand{started: true, at: now, last: c}
	case elapsed >= demandEvery:
		d.observe(elapsed.Seconds(), c)
		d.at, d.last = now, c
	}
	return int64(math.Min(math.Ceil(1000*d.rate), float64(protocol.MaxDemand)))
}

// observe takes the outcomes of so many seconds.
func (d *Demand) observe(seconds float64, c Calls) {
	issued, refused := c.Issued-d.last.Issued, c.Refused-d.last.Refused
	rate := float64(max(0, issued+refused+c.Waiting-d.last.Waiting)) / seconds // permits can be given back
	if c.Unmet == d.last.Unmet && c.Waiting > 0 && d.last.Waiting > 0 {
		rate = max(rate+float64(c.Waiting)/waitersServed.Seconds(), growth*float64(issued)/seconds)
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
