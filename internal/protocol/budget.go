package protocol

import (
	"math/bits"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Budget is a limit of a long window, and the window that runs. Of a limit that counts by parts of time it is the part
// that runs: see Part.
type Budget struct {
	quota.Limit
	Start, End int64 // corrected wall time, nanoseconds since the Unix epoch
	// Whole says that all of it is this instance's, which takes nothing from etcd.
	Whole bool
}

// Name is the window's length as in a limit, in the names of totals. A sliding limit has other totals.
func (b Budget) Name() string { return LimitName(b.Limit) }

// LimitName is the length of a limit's windows as text, and how else it counts than in windows, such as 1s, h-sliding
// or 10m-inflight.
func LimitName(l quota.Limit) string {
	switch {
	case l.InFlight:
		return WindowName(l) + "-inflight"
	case l.Sliding:
		return WindowName(l) + "-sliding"
	}
	return WindowName(l)
}

// Order is how a window stands to another one.
type Order uint8

const (
	Same    Order = iota // it is that window: what was issued in that one is issued in it
	Later                // it comes after it
	Earlier              // it comes before it
	Other                // it is of other windows than that one
)

// Order says how the window stands to o, of a limit of the same Window. Windows of one limit do not overlap. So where two
// do that begin at different times, it has become another limit: of another phase, or of the days or months of another zone.
// Of a limit that counts by parts it is the number of the part that decides: an instance begins the parts of a limit
// in flight at other times under another guard. If o is the next part but overlaps this one, it has begun by a higher guard,
// and goes on.
func (b *Budget) Order(o *Budget) Order {
	at, was := b.Start, o.Start
	if b.ByParts() {
		at, was = b.Part().Number, o.Part().Number
	}
	switch {
	case b.Sliding != o.Sliding || b.InFlight != o.InFlight:
		return Other
	case at == was, b.InFlight && at < was && o.Start < b.End:
		return Same
	case !b.ByParts() && b.Start < o.End && o.Start < b.End:
		return Other
	case at > was:
		return Later
	}
	return Earlier
}

// TotalStart is the start that the name of the window's total has: a sliding limit has one total.
func (b *Budget) TotalStart() int64 {
	if b.ByParts() {
		return 0
	}
	return b.Start
}

// Free reports whether a limit binds nobody, as that of a policy with budgets alone: see
// Short.
func Free(l quota.Limit) bool { return l == free[0] }

// LimitsShort reports whether a policy limits windows of up to quota.MaxWindow, of the provider or of each key, now or
// later.
func LimitsShort(p *quota.Policy) bool {
	return countShort(p) > 0 || len(p.Next) > 0 || slices.ContainsFunc(p.Keys.Limits, func(l quota.Limit) bool { return !l.Long() })
}

// BudgetsAt returns the windows of a policy's budgets that contain the instant wall.
func BudgetsAt(p *quota.Policy, wall int64) (all []Budget) {
	zone, err := time.LoadLocation(p.Zone)
	if err != nil {
		zone = time.UTC // the policy is not valid
	}
	for _, l := range Long(p) {
		all = append(all, BudgetAt(l, zone, wall))
	}
	return all
}

const (
	day   = 24 * time.Hour
	month = 31 * day // as a limit has it: it is the calendar's
)

// KeyBudgetsAt returns the windows, at the instant wall, of the long limits that a policy gives each
// key.
func KeyBudgetsAt(p *quota.Policy, wall int64) []Budget {
	if p = OfKeys(p); p == nil {
		return nil
	}
	return BudgetsAt(p, wall)
}

// BudgetAt returns the window of a policy's budget that contains the instant wall. Windows
// shorter than a day are aligned to the Unix epoch, and days and months are the zone's; a phase
// is by how much later each begins. Of a limit in flight it is the part of time that runs where none begins later.
func BudgetAt(l quota.Limit, zone *time.Location, wall int64) Budget {
	if b := (Budget{Limit: l}); b.ByParts() {
		w := quota.WindowAt(partLength(&l), wall)
		b.Start, b.End = w.Start(), w.End()
		return b
	}
	if l.Phase < 0 || l.Phase >= l.Window {
		l.Phase = 0 // the policy is not valid, and nobody follows it
	}
	if l.Window < day {
		w := quota.WindowAt(l.Window, wall-int64(l.Phase))
		return Budget{Limit: l, Start: w.Start() + int64(l.Phase), End: w.End() + int64(l.Phase)}
	}
	y, m, d := time.Unix(0, wall).In(zone).Date()
	start := func(k int) int64 { return startOfDay(y, int(m), d+k, l.Phase, zone) }
	if l.Window > day {
		start = func(k int) int64 { return startOfDay(y, int(m)+k, 1, 0, zone) }
	}
	k := 0
	for wall < start(k) { // a date may come twice
		k--
	}
	for wall >= start(k+1) {
		k++
	}
	return Budget{Limit: l, Start: start(k), End: start(k + 1)}
}

// BudgetOf is BudgetAt for an instance with a hash. Of a limit in flight each begins the parts later by a time of its
// own: so they move their permits to the next part one after another.
func BudgetOf(l quota.Limit, p *quota.Policy, zone *time.Location, wall int64, hash uint64) Budget {
	if !l.InFlight {
		return BudgetAt(l, zone, wall)
	}
	part, _ := bits.Mul64(Mix(hash), uint64(latest(&l, p))) // in proportion, so that another guard moves it by little
	later := int64(part)
	b := BudgetAt(l, zone, wall-later)
	b.Start, b.End = b.Start+later, b.End+later
	return b
}

// startOfDay returns the instant at which a day begins that begins so much after the first
// instant of a date, by the clocks of the zone. Month and day may be out of their bounds.
func startOfDay(y, m, d int, phase time.Duration, zone *time.Location) int64 {
	seconds := int(phase / time.Second)
	want := time.Date(y, time.Month(m), d, 0, 0, seconds, 0, time.UTC)
	t := time.Date(y, time.Month(m), d, 0, 0, seconds, 0, zone)
	if t.Day() != want.Day() { // clocks were set ahead at midnight
		_, t = t.ZoneBounds()
	}
	return t.UnixNano()
}

// BudgetUse is what an instance does with its part of a budget.
type BudgetUse struct {
	Budget
	Taken int64 // from etcd, in this window; of a fleet's, by all instances
	// Spent says that there is nothing to be had at present, Away that etcd did not
	// answer.
	Spent, Away bool
	Used        int64 // issued in the window
	// Left is what nobody had taken when etcd was read last; negative if it was not.
	Left int64
	// Stated is until when, in corrected wall time, there is less to be had than of the limit, since the
	// provider has said so; 0 if it has not. Named says that the provider has named the limit that it counts; else it has
	// asked for a pause.
	Stated int64
	Named  bool
	// Withheld says why nothing more is handed out in the window; empty if more is. Resumes is when that ends by
	// itself, in corrected wall time; 0 if that is not known.
	Withheld string
	Resumes  int64
	// Places, of an instance's limit in flight, is in how many places calls may begin in the part of time that runs, if
	// etcd gives no more: those that are free, and those whose calls have begun in this part.
	Places int64
	// Over, of an instance's, is when it has as many permits as are asked for, in corrected wall time; 0 if it may have them
	// as soon as etcd answers, and of a limit in flight.
	Over int64
	// Back, of a fleet's, is when nothing counts any more of what is handed out now, in wall time.
	Back int64
}
