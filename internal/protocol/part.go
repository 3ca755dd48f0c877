package protocol

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// A sliding limit counts by parts of time, all as long: a hundredth of the window, rounded up. What is issued in
// a part by the clock of the instance arrives at the provider within the part, or earlier or later by the error of
// that clock, or later by the time of a call. Let e bound the errors and E such times, and 2e + E be less than a
// part (quota.Policy.Validate). Then what arrives within a window's length was issued within that and one part
// more, which meets at most 102 parts. So the limit holds if any 102 in a row hold at most its permits.
const counted = quota.SlidingParts + 2

// A limit in flight counts by parts of time too: eighths of its hold, the longest time of a call. Permits of a part
// begin calls while that part runs by its instance, which for each begins later by a time of its own, less than a part
// by 2e + E: BudgetAt. So a call ends before the tenth part after its own begins, by any clock, and the limit
// holds if any 10 parts in a row hold at most its permits that were not given back. The latest that a call may end by
// its permit is the hold after its part.
const held = quota.HoldParts + 2

// countedOf is how many parts in a row hold at most the permits of a limit that slides.
func countedOf(l *quota.Limit) int64 {
	if l.InFlight {
		return held
	}
	return counted
}

// Part is a part of time of a sliding limit, or of one in flight; the zero value is of another limit.
type Part struct {
	Number  int64 // since the Unix epoch
	Counted int64 // so many parts in a row hold at most the limit
}

// ByParts reports whether it is of a limit that counts by parts of time.
func (p Part) ByParts() bool { return p.Counted > 0 }

// partLength is how long the parts of a sliding limit are.
func partLength(l *quota.Limit) time.Duration {
	if l.InFlight {
		return l.Window / quota.HoldParts
	}
	return (l.Window + quota.SlidingParts - 1) / quota.SlidingParts
}

// latest is by how much later than others an instance may begin the parts of a limit in flight, at most.
func latest(l *quota.Limit, p *quota.Policy) time.Duration {
	return max(0, partLength(l)-2*p.ClockError-p.Guard)
}

// Part returns which part of time the window of a sliding limit is.
func (b *Budget) Part() Part {
	if !b.ByParts() {
		return Part{}
	}
	return b.PartAt(b.Start)
}

// PartAt returns the part of time in which a part of a sliding limit begins, by any instance.
func (b *Budget) PartAt(start int64) Part {
	return Part{quota.WindowAt(partLength(&b.Limit), start).Index, countedOf(&b.Limit)}
}

// Since returns the start of all that may count in the window: its own or, of a sliding limit, that of
// everything that may have been handed out and still counts, by any clock.
func (b *Budget) Since() int64 {
	if !b.ByParts() {
		return b.Start
	}
	return b.Start - (countedOf(&b.Limit)+1)*int64(partLength(&b.Limit))
}

// Until returns when what is issued in the window counts no more.
func (b *Budget) Until() int64 {
	if !b.ByParts() {
		return b.End
	}
	return b.End + countedOf(&b.Limit)*int64(partLength(&b.Limit))
}

// After returns the start of the part that begins so many parts later.
func (b *Budget) After(parts int64) int64 { return b.Start + parts*int64(partLength(&b.Limit)) }

// Begun returns by when the part that begins so many parts later has begun at every instance: the parts of a limit in flight
// begin later at some than at others, by less than a part.
func (b *Budget) Begun(parts int64) int64 {
	at := b.After(parts)
	if b.InFlight {
		return quota.WindowAt(partLength(&b.Limit), at).End()
	}
	return at
}

// GuardOf returns the guard at the window's edges, in nanoseconds, where that of the policy is as given: a limit that
// counts by parts needs none.
func (b *Budget) GuardOf(guard time.Duration) int64 {
	if b.ByParts() {
		return 0
	}
	return int64(guard)
}

// Lease returns for how many seconds the lease lasts that a write gives the window's total, whose entry in etcd is
// at a revision, 0 if there is none. It is 0 if the entry keeps the lease that it has. The first write gives it one
// or, of a sliding limit, each: that may have been granted up to a window's length before.
func (b *Budget) Lease(revision int64) (seconds int64) {
	switch {
	case b.ByParts():
		return int64(3 * b.Window / time.Second)
	case revision == 0:
		return int64(2 * b.Window / time.Second)
	}
	return 0
}

// Ends is until when calls may be under way that begin in the window of a limit in flight.
func (b *Budget) Ends() int64 { return b.End + int64(b.Window) }

// Shown is the start of the window as people see it: of a sliding limit it is one that ends with the part.
func (b *Budget) Shown() int64 {
	if b.ByParts() {
		return b.End - int64(b.Window)
	}
	return b.Start
}
