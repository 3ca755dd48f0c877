package consumer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// Permit is the right to make N calls between Start and Until. The zero Permit allows
// none. A Permit may be copied and used by several goroutines. It is released or settled
// once, by one copy of it. Under a limit in flight its calls count until Done.
type Permit struct {
	of     *origin
	grant  queue.Grant
	serial uint64
	n      int64
	issued int64 // of n; the rest passed in shadow mode

	key      *keyState // nil if it is of no key
	keyEpoch uint32
	keyLarge bool // the line of the key has served the call as a large one
}

// origin is the core of a permit, its class and its label, in one word of it.
type origin struct {
	core  *core
	class queue.Class
	label *label // nil without one
}

// permit returns the permit for n permits of a class of which issued count.
func (o *origin) permit(g queue.Grant, n, issued int64) Permit {
	return Permit{of: o, grant: g, serial: o.core.serials.Add(1), n: n, issued: issued}
}

// N returns the number of permits.
func (p Permit) N() int64 { return p.n }

// Start returns the beginning of the window for which the permits were issued,
// that of the policy's shortest limit: corrected wall-clock time, without a
// monotonic reading. Under a limit in flight it is at most an eighth of the hold before.
func (p Permit) Start() time.Time { return time.Unix(0, p.grant.Start) }

// Until returns the end of that window. A call that starts at or after it is not
// covered. Under the shapes sliding and bucket with a guard, the call must reach the
// provider before Until. Under a limit in flight the call must be over before Until,
// which is the hold later than the permit, or up to an eighth more: end the call's context
// then, because the provider may count it while others use its place.
func (p Permit) Until() time.Time { return time.Unix(0, p.grant.End) }

// Valid reports whether a call that takes at most margin to reach the provider is still
// covered, by the limiter's clock. Check it at the moment of sending, and Release a
// permit that is no longer valid. It is false for the zero Permit.
func (p Permit) Valid(margin time.Duration) bool {
	if p.of == nil || p.n == 0 {
		return false
	}
	c := p.of.core.clock
	left := p.grant.End - c.Latest(c.Now())
	return left > 0 && time.Duration(left) > margin
}

// Done says that the permit's calls have ended. Under a limit in flight others may begin as many
// calls from then on. Call it once the provider counts the call no more: after its response was
// read to the end. Calls of which nothing is said count until 1.5 times the hold after their permit.
// Under other limits it does nothing: what was used is used. Call it in any case, by defer; only
// the first Done, Release or Settle counts.
func (p Permit) Done() {
	if p.grant.InFlight() {
		p.correct(0)
	}
}

// Release gives unused permits back, for other callers of this instance. It returns false
// after the window's end, for permits that were given back before, and for those that
// shadow mode let pass. If the windows of several limits are not multiples of each other,
// the first end of a window counts. Under a limit in flight it is Done, and returns false if
// the calls had ended before or were not counted any more.
func (p Permit) Release() bool {
	if p.issued <= 0 {
		return false
	}
	_, back := p.correct(0)
	return back
}

// Settle states the cost of the call in permits when it is known only afterwards, such as
// the tokens of an answer. It may be called after Until. Settle a permit instead of
// releasing it.
//
// If actual is less than N, Settle gives the rest back, as Release does. If it is more,
// the difference is a debt of this instance, under every limit of the policy: the instance issues
// and lends nothing until its share, and what others lend, have paid the debt. So in each window
// the permits issued and the debts paid sum to at most the limit. The calls of any span of whole
// windows cost at most the limit, the debt at its end, and the excess not settled by then. Only
// calls that were already running can add to a debt. It survives every change in etcd and ends
// with the process. A debt left at Close is logged, and quota-admin shows it for an hour.
//
// Settle returns ErrInvalid, and changes nothing, if actual is negative or above
// quota.MaxPermits, or if the permit was released or settled within the last window. For
// a debt after Close it returns ErrClosed. Under a limit in flight any cost is Done, and
// returns nil. Of a cost above ten windows of the smallest limit,
// the provider's or the key's, it books these ten windows and returns ErrTooLarge. Calls that
// shadow mode let pass owe nothing.
func (p Permit) Settle(actual int64) error {
	var k *core
	if p.of != nil {
		k = p.of.core
	}
	switch {
	case actual < 0 || actual > quota.MaxPermits:
		return fmt.Errorf("consumer: settle: %w: a cost of %d permits: it must be 0 to %d; settle with the provider's count for this one call", ErrInvalid, actual, quota.MaxPermits)
	case k == nil && actual > 0:
		return fmt.Errorf("consumer: settle: %w: a cost of %d for the zero Permit: acquire permits first", ErrInvalid, actual)
	case k == nil || p.grant.Epoch == 0:
		return nil
	case p.grant.InFlight():
		p.Done()
		return nil
	}
	var mistake error
	if limit, known := k.smallestLimit(p.key); known && p.issued == p.n {
		if most := max(p.n, costWindows*limit.Permits); actual > most {
			mistake = TooLargeError{Provider: k.provider, Asked: actual, Largest: most, Settled: limit}
			actual = most
		}
	}
	excess := max(0, actual-p.n)
	if p.issued < p.n {
		excess = 0 // shadow mode
	}
	if first, _ := p.correct(min(actual, p.issued) + excess); first {
		p.of.settledAt(actual)
		return mistake
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.mu.closed:
		return fmt.Errorf("consumer: %s: settle: %w: the permit was released or settled before: do it once", k.provider, ErrInvalid)
	case excess > 0:
		return fmt.Errorf("consumer: %s: settle: %w: the %d permits beyond the reservation are not counted: settle before Close", k.provider, ErrClosed, excess)
	}
	return nil
}

// costWindows is of how many windows of the smallest limit the cost of one call is booked. More
// is a mistake, and would take all that the fleet has idle for as many windows.
const costWindows = 10

// smallestLimit returns the limit in force with the fewest permits, the provider's or the key's, if
// y is one. known is false without a policy.
func (k *core) smallestLimit(y *keyState) (least quota.Limit, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	policy, _ := k.mu.planner.Policy()
	if policy == nil {
		return least, false
	}
	wall := k.clock.Wall()
	all := slices.Clone(policy.LimitsAt(wall))
	if y != nil {
		for _, l := range policy.Keys.Limits {
			if l.Permits, _ = k.mu.planner.KeyTotal(y.key, quota.WindowAt(l.Window, wall)); l.Permits > 0 {
				all = append(all, l)
			}
		}
	}
	if len(all) == 0 {
		return least, false
	}
	return slices.MinFunc(all, func(a, b quota.Limit) int { return cmp.Compare(a.Permits, b.Permits) }), true
}

// correct books what the permit's calls have cost, as window.Gate.Correct, for its class and
// for its key. A key gets permits back only if the provider does, which knows that it is the
// first time.
func (p *Permit) correct(actual int64) (first, back bool) {
	k := p.of.core
	if first, back = k.gate.Correct(k.clock.Now(), p.grant, p.serial, p.issued, actual); back {
		k.forgetRefusals() // the segment has permits again, so who is refused next asks again
	}
	switch {
	case p.grant.InFlight(): // a call that has ended was made
	case back:
		p.of.counted(actual - p.issued)
	case first: // a debt, which counts for no class
		p.of.labelled(max(0, actual-p.issued), 0)
	}
	if p.key != nil && (back || first && actual > p.issued) {
		k.correct(p.key, p.keyEpoch, p.issued, actual, p.keyLarge)
	}
	return first, back
}
