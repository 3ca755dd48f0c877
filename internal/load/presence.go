package load

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Presence is how many instances of a fleet were active over time, in order.
// The zero Presence is none.
type Presence struct {
	samples []sample
}

type sample struct {
	at     int64
	active int
}

// Record says that so many instances were active at the instant at, which must
// not be before the one recorded last. An instance becomes active only as a
// window starts, so a rise is dated back to the start of the window of the
// given length.
func (p *Presence) Record(at int64, active int, length time.Duration) {
	if n := len(p.samples); n > 0 {
		last := p.samples[n-1]
		if last.active == active {
			return
		}
		if active > last.active {
			at = max(last.at, quota.WindowAt(length, at).Start())
		}
	}
	p.samples = append(p.samples, sample{at, active})
}

// Least returns the smallest number that was active at any time in [start,
// end). Between two records the earlier one holds.
func (p *Presence) Least(start, end int64) int {
	least, found := 0, false
	for i, s := range p.samples {
		if s.at >= end {
			break
		}
		if i+1 < len(p.samples) && p.samples[i+1].at <= start {
			continue
		}
		if !found || s.active < least {
			least, found = s.active, true
		}
		if i == 0 && s.at > start {
			least = 0 // nothing was recorded at the start
		}
	}
	return least
}
