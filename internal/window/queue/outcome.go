package queue

// Outcome is what a caller is told: a verdict, and the window of its permits if it has any.
type Outcome struct {
	Grant   Grant
	Verdict Verdict
}

// Grant tells for which window permits were issued. The zero Grant is of no
// window.
type Grant struct {
	// Start and End bound the shortest limit's window, in corrected wall time,
	// nanoseconds since the Unix epoch. Where aligned windows do not bind, it is
	// one that begins with the slot of time in which the permits were issued.
	Start, End int64
	// At is the monotonic instant from which the permits could be had.
	At int64
	// Epoch numbers the spans in which no limit's window changes: a permit may
	// be given back in its own epoch only, where aligned windows bind. It is 0 for
	// a call that shadow mode lets pass, which has nothing to give back. InFlight is added for calls
	// that count until they end: Start is then that of the part of time in which they began, and End is
	// when they must be over. Large is added for permits of a large call that waited, which are counted apart.
	// They are in one word since each segment has a Grant, which each call reads.
	Epoch uint64
}

// Added to an Epoch, which is less.
const (
	InFlight = 1 << 32
	Large    = 1 << 33
)

// InFlight reports whether the grant's calls count until they end.
func (g *Grant) InFlight() bool { return g.Epoch&InFlight != 0 }

// Large reports whether the permits are of a large call that waited.
func (g *Grant) Large() bool { return g.Epoch&Large != 0 }

// Small returns the grant without Large.
func (g Grant) Small() Grant {
	g.Epoch &^= Large
	return g
}

// Verdict says what became of a request for permits.
type Verdict uint8

// The verdicts.
const (
	// Granted: the permits were issued.
	Granted Verdict = iota
	// Passed: the permits were not issued; shadow mode lets the call pass.
	Passed
	// Queued: the waiter has its place; it will be told.
	Queued
	// Limited: there are no permits now, or none will come in time. The verdicts after it say the
	// same where something else decided it than a limit that is used up; see Refused.
	Limited
	// Owes: a debt is paid first.
	Owes
	// Behind: others wait before it, and the first has not got its permits.
	Behind
	// Kept: what is left is kept for critical calls.
	Kept
	// Paced: the window has more, which pacing releases later.
	Paced
	// TooLarge: no share will hold so many permits, now or soon.
	TooLarge
	// Full: the queue has no place.
	Full
	// Displaced: a call of a higher class took the waiter's place in a full queue.
	Displaced
	// Closed: the gate, or the waiter's owner, is closed.
	Closed
)

// Refused reports whether the verdict is that there are no permits now, or that none will come in
// time: Limited, or one that names what decided it.
func (v Verdict) Refused() bool { return v >= Limited && v <= Paced }
