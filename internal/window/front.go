package window

import (
	"sync/atomic"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// Front is what calls can have of a key's Account without its lock: some of the permits that are left,
// or the answer that none are. It is to the account what a Segment is to the provider's. Whoever takes
// the account's lock shuts the front first, which tells what calls had of it; so under the lock the
// account counts every permit. The zero Front is shut.
//
// A call takes the key's permits from the front and then the provider's from its segment. If the segment
// gives them, it is not sealed yet, so no later plan is published. The front was then opened by the plan
// of the segment: it names that plan's windows, and is opened only while the segment is not sealed. So
// the bounds in force count both. If the segment gives none, the call takes the key's permits back out of
// the account: see Account.Uncharge.
type Front struct {
	// windows are those of the account when the front was opened last.
	windows atomic.Pointer[plans.Windows]
	// state is a Part: the front's mode with its count, and what does not change while it is open.
	//
	//	shut     -> open(n)     Open, under the account's lock
	//	shut     -> spent(0)    Refuse, under the account's lock
	//	open(n)  -> open(n-k)   any caller that takes k <= n, by compare-and-swap
	//	spent(n) -> spent(n+k)  any caller to whom k are refused, by compare-and-swap
	//	any      -> shut        Shut, under the account's lock; the swap returns the exact count, and
	//	                        nothing changes it any more
	state atomic.Uint64
}

// Part is the state of a Front. Its bits are, from the lowest: the permits left, or those refused (8); the
// permits that the front was opened with (8); which of the windows that run bind the key (8); the mode
// (8); and the account's epoch (32).
type Part uint64

const (
	partOut   = 8
	partBinds = 16
	partMode  = 24
	partEpoch = 32

	partOpen  Part = 1 << partMode
	partSpent Part = 2 << partMode
	// partTrades says of either that the account has a Trade, which is told the class of a call.
	partTrades Part = 4 << partMode

	// MostOut is the most permits that lie in a front, and that it counts as refused.
	MostOut = 255
)

func (p Part) count() int64 { return int64(p & MostOut) }

func (p Part) out() int64 { return int64(p >> partOut & MostOut) }

// Epoch is that of the account for the permits that were taken.
func (p Part) Epoch() uint32 { return uint32(p >> partEpoch) }

// Span is Account.Span for permits that were taken in a segment with these windows.
func (p Part) Span(windows *plans.Windows) (start, end int64) {
	end = clock.Forever
	for i, w := range windows.Running {
		if p>>(partBinds+i)&1 != 0 {
			start, end = max(start, w.Start()), min(end, w.End())
		}
	}
	return start, end
}

// Fronted is what a Front says to a call.
type Fronted uint8

const (
	Ask     Fronted = iota // the account is to be asked, under its lock
	Taken                  // it has the permits of the key and of the provider
	Refused                // the key has none; that is counted
	Torn                   // it has the key's, but the provider's were gone: Account.Uncharge is due
)

// Take takes n permits of the key and of the provider for a call of class c at the monotonic instant now.
// s is a segment with keys. refuses says that a call for which there are none is refused.
func (f *Front) Take(s *Segment, now, n int64, c queue.Class, refuses bool) (Part, Fronted) {
	if f.windows.Load() != &s.Keys.Windows {
		return 0, Ask
	}
	for {
		p := Part(f.state.Load())
		switch {
		case p&partTrades != 0 && c != queue.Default:
			return 0, Ask
		case p&partOpen != 0 && n <= p.count():
			if s.left.Load()-s.keeps(c) < n {
				return 0, Ask
			}
			if !f.state.CompareAndSwap(uint64(p), uint64(p)-uint64(n)) {
				continue
			}
			if s.Take(now, n, c) {
				return p, Taken
			}
			return p, Torn
		case p&partSpent != 0 && refuses && n <= MostOut-p.count():
			if f.state.CompareAndSwap(uint64(p), uint64(p)+uint64(n)) {
				return p, Refused
			}
		default:
			return 0, Ask
		}
	}
}

// Open lays up to most of the permits that the account has left into the front, if it is shut and the
// account has no long limits, each use of which is looked at. Those stay out of it with which callers will
// soon lack some, until others are to be asked (Low). The account's windows are those of a segment that was
// not sealed when the caller already had the account's lock.
func (f *Front) Open(a *Account, most int64) {
	n := min(most, a.Left(), MostOut)
	if t := a.trade; t != nil && !a.Low() {
		n = min(n, a.LeftToBorrowers()-t.low)
	}
	if n <= 0 || len(a.budgets) > 0 || len(a.windows.Running) > partMode-partBinds {
		return
	}
	p := partOpen | Part(a.epoch)<<partEpoch | Part(n)<<partOut | Part(n)
	for i, w := range a.windows.Running {
		if s := a.span(w); s != nil && s.Bound != shape.Unbounded {
			p |= 1 << (partBinds + i)
		}
	}
	f.set(a, p)
}

// Refuse has the front refuse calls, if the account has nothing left and no long limits. The caller has
// refused one by the segment that runs, under the account's lock, and has looked whether to ask others.
func (f *Front) Refuse(a *Account) {
	if a.Left() == 0 && len(a.budgets) == 0 {
		f.set(a, partSpent)
	}
}

func (f *Front) set(a *Account, p Part) {
	if a.trade != nil {
		p |= partTrades
	}
	if f.windows.Load() != a.windows {
		f.windows.Store(a.windows)
	}
	f.state.Store(uint64(p))
}

// Shut closes the front, and books in the account what calls took and were refused since it was opened,
// which it returns. It is called as soon as the account's lock is taken.
func (f *Front) Shut(a *Account) (taken, refused int64) {
	switch p := Part(f.state.Swap(0)); {
	case p&partOpen != 0:
		taken = p.out() - p.count()
		a.Charge(taken)
	case p&partSpent != 0:
		if refused = p.count(); refused > 0 && a.windows.Lending.Borrows {
			a.Refused(refused, queue.Default, false)
		}
	}
	return taken, refused
}
