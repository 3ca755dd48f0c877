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

// Part is a part of time of a sliding limit; the zero value is of another limit.
type Part struct {
	Number  int64 // since the Unix epoch
	Counted int64 // so many parts in a row hold at most the limit
}

// Sliding reports whether it is of a sliding limit.
func (p Part) Sliding() bool { return p.Counted > 0 }

// partLength is how long the parts of a sliding limit of a window are.
func partLength(window time.Duration) time.Duration {
	return (window + quota.SlidingParts - 1) / quota.SlidingParts
}

// Part returns which part of time the window of a sliding limit is.
func (b *Budget) Part() Part {
	if !b.Sliding {
		return Part{}
	}
	return Part{quota.WindowAt(partLength(b.Window), b.Start).Index, counted}
}

// Since returns the start of all that may count in the window: its own or, of a sliding limit, that of
// everything that may have been handed out and still counts, by any clock.
func (b *Budget) Since() int64 {
	if !b.Sliding {
		return b.Start
	}
	return b.Start - (counted+1)*int64(partLength(b.Window))
}

// Until returns when what is issued in the window counts no more.
func (b *Budget) Until() int64 {
	if !b.Sliding {
		return b.End
	}
	return b.End + counted*int64(partLength(b.Window))
}

// After returns the start of the part that begins so many parts later.
func (b *Budget) After(parts int64) int64 { return b.Start + parts*int64(partLength(b.Window)) }

// GuardOf returns the guard at the window's edges, where that of the policy is as given: a sliding limit needs none.
func (b *Budget) GuardOf(guard int64) int64 {
	if b.Sliding {
		return 0
	}
	return guard
}

// Lease returns for how many seconds the lease lasts that a write gives the window's total, whose entry in etcd is
// at a revision, 0 if there is none. It is 0 if the entry keeps the lease that it has. The first write gives it one
// or, of a sliding limit, each: that may have been granted up to a window's length before.
func (b *Budget) Lease(revision int64) (seconds int64) {
	switch {
	case b.Sliding:
		return int64(3 * b.Window / time.Second)
	case revision == 0:
		return int64(2 * b.Window / time.Second)
	}
	return 0
}

// Shown is the start of the window as people see it: of a sliding limit it is one that ends with the part.
func (b *Budget) Shown() int64 {
	if b.Sliding {
		return b.End - int64(b.Window)
	}
	return b.Start
}
