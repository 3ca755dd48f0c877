package consumer

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/window"
)

// Permit is the right to make N calls between Start and Until. The zero Permit
// is the right to none. A Permit may be copied; it is given back once.
type Permit struct {
	core   *core
	grant  window.Grant
	serial uint64
	n      int64
	issued int64 // of n; the rest passed in shadow mode
}

// permit returns the permit for n permits of which issued count.
func (k *core) permit(g window.Grant, n, issued int64) Permit {
	return Permit{core: k, grant: g, serial: k.serials.Add(1), n: n, issued: issued}
}

// N returns the number of permits.
func (p Permit) N() int64 { return p.n }

// Start returns the beginning of the window for which the permits were issued,
// that of the policy's shortest limit: corrected wall-clock time, without a
// monotonic reading.
func (p Permit) Start() time.Time { return time.Unix(0, p.grant.Start) }

// Until returns the end of that window. A call that starts at or after it is not
// covered. Under the shapes sliding and bucket with a guard, the call must reach the
// provider before Until.
func (p Permit) Until() time.Time { return time.Unix(0, p.grant.End) }

// Valid reports whether a call that takes at most margin to reach the provider is
// still covered, by the clock that the limiter goes by. Ask at the moment of
// sending, and Release a permit that is not valid any more. It is false for the
// zero Permit.
func (p Permit) Valid(margin time.Duration) bool {
	if p.core == nil || p.n == 0 {
		return false
	}
	left := p.grant.End - p.core.clock.Latest(p.core.clock.Now())
	return left > 0 && time.Duration(left) > margin
}

// Release gives unused permits back, for other callers of this instance. It reports
// whether it did: false once the window is over, for permits that were given back
// before, and for those that shadow mode let pass. With several limits whose
// windows are no multiples of each other, the end of any window counts.
func (p Permit) Release() bool {
	k := p.core
	return k != nil && p.issued > 0 && k.gate.Refund(k.clock.Now(), p.grant, p.serial, p.issued)
}
