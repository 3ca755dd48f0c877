package protocol

import (
	"math/bits"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Long returns a policy's limits of windows of more than quota.MaxWindow: the budgets.
func Long(p *quota.Policy) []quota.Limit { return p.Limits[countShort(p):] }

// Short returns a policy's other limits, without announced ones. Beside budgets alone it is
// one that binds nobody: Free.
func Short(p *quota.Policy) []quota.Limit { return orFree(p.Limits[:countShort(p):countShort(p)]) }

// LimitsAt returns the Short limits in force for a window that starts at wall; nil if none
// are in force yet.
func LimitsAt(p *quota.Policy, wall int64) []quota.Limit { return orFree(p.LimitsAt(wall)) }

// MinLending is the shortest window in which lending is worth its messages.
const MinLending = 250 * time.Millisecond

// Lends reports whether instances lend to each other, where windows and their shape allow it: the provider's by
// plans.Plan.Lendable, and keys' by share.Planner.Plan.
func Lends(p *quota.Policy) bool {
	return p.WarmUp <= 0 && !p.InFlight() && (p.Lend == "" || p.Lend == "on")
}

var free = []quota.Limit{{Permits: quota.MaxPermits, Window: time.Second}}

func orFree(limits []quota.Limit) []quota.Limit {
	if limits != nil && len(limits) == 0 {
		return free
	}
	return limits
}

func countShort(p *quota.Policy) int {
	n := 0
	for n < len(p.Limits) && !p.Limits[n].Long() {
		n++
	}
	return n
}

// PermitsFor returns the policy's total for window w: the limit of its length in force
// for it. inForce is false if the policy is not in force yet; limited is false
// if it is, but does not limit windows of this length.
//
// A limit in force at a window's start rules that window. One whose length
// comes into force within the window rules all of it: otherwise nothing would
// bind between the change and the length's next boundary.
func PermitsFor(p *quota.Policy, w quota.Window) (permits int64, limited, inForce bool) {
	start := w.Start()
	limits := LimitsAt(p, start)
	if limits == nil {
		return 0, false, false
	}
	if permits, limited = LimitOf(limits, w.Length); limited {
		return permits, true, true
	}
	for i := range p.Next {
		if from := p.Next[i].From; from.After(time.Unix(0, start)) && from.Before(time.Unix(0, w.End())) {
			if n, ok := LimitOf(p.Next[i].Limits, w.Length); ok && (!limited || n < permits) {
				permits, limited = n, true
			}
		}
	}
	return permits, limited, true
}

// LimitOf returns the permits of the limit with windows of that length, if there is one.
func LimitOf(limits []quota.Limit, length time.Duration) (permits int64, ok bool) {
	for i := range limits {
		if limits[i].Window == length {
			return limits[i].Permits, true
		}
	}
	return 0, false
}

// FullBurst returns the policy's burst of a limit under quota.ShapeBucket: all of the limit if the policy's is 0 or more.
func FullBurst(p *quota.Policy, l quota.Limit) int64 {
	if p.Burst > 0 {
		return min(p.Burst, l.Permits)
	}
	return l.Permits
}

// BurstOf returns how many permits of a limit may be issued at once under quota.ShapeBucket: its FullBurst less what
// accrues within the guard, because calls may meet on their way.
func BurstOf(p *quota.Policy, l quota.Limit) int64 {
	if l.Permits <= 0 {
		return 0
	}
	burst, meet := FullBurst(p, l), ceil(l.Permits, min(max(0, p.Guard), l.Window), l.Window) // at most l.Permits
	return max(1, burst-meet)
}

// ceil is n*part/whole, rounded up; none is negative.
func ceil(n int64, part, whole time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	lo, carry := bits.Add64(lo, uint64(whole-1), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(whole))
	return int64(q)
}

// Shaped reports whether the policy's limits have another shape than
// quota.ShapeFixed.
func Shaped(p *quota.Policy) bool { return p.Shape != "" && p.Shape != quota.ShapeFixed }

// DriftBound is the largest rate error of a host's monotonic clock, and of the
// correction applied to it, that the settle rule (quota.MinSettleFor) allows for: 1 part in
// DriftBound, that is 1000 ppm. (NTP daemons slew by 500 ppm at most.)
const DriftBound = 1000

// slots is how many slots of time a window is divided into by shapes that do
// not count in fixed windows.
const slots = 500

// Turn is how many windows of one length the same instances have the permits that
// do not come out even, under shapes other than quota.ShapeFixed: what changes hands
// is held back for a window, so it does so seldom.
const Turn = 64

// SlotOf returns the length of the slots in which shapes other than
// quota.ShapeFixed count: a 500th of the window. It is also twice the most by which
// a host's clock can err over a window (DriftBound).
func SlotOf(window time.Duration) time.Duration { return window / slots }

// ReachOf returns how far back the views and windows of a permit go, under shapes
// other than quota.ShapeFixed: a window's length and the guard, what clocks drift
// over them, and twice the clocks' error.
func ReachOf(window, guard, clockError time.Duration) time.Duration {
	return window + guard + 2*SlotOf(window) + 2*clockError
}

// WindowName returns the length of a limit's windows as text, such as 1s or 10m.
func WindowName(l quota.Limit) string {
	_, window, _ := strings.Cut(quota.Limit{Window: l.Window}.String(), "/")
	if window == "s" {
		return "1s"
	}
	return window
}
