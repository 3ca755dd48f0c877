package window

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/safeguard"
	"github.com/quotient-limiter/quotient/quota"
)

// Unbounded is the bound of a window that no limit constrains.
const Unbounded = int64(math.MaxInt64)

// account is what was issued in the current window of one limit.
type account struct {
	window quota.Window
	bound  int64 // permits that may be issued in it; only ever lowered
	used   int64 // permits issued in it
	// binds is false once the limit is gone. The account is then kept to the end
	// of its window, in case that the limit comes back.
	binds bool
}

// ledger holds an account for every window length that binds, or did bind
// within the running window of that length. Guarded by the gate's lock.
type ledger struct {
	accounts []account
	// epoch counts the moments at which any account moved to another window.
	epoch uint64
	// beyond counts permits that were booked though a bound did not allow them. It
	// is checked where permits are booked, not where they are counted out.
	beyond int64
	off    safeguard.Set
}

// roll moves every account to the window of the instant now and asks for the
// bounds again. Within a window a bound only shrinks, and a window index never
// goes back, whatever the clock does.
func (l *ledger) roll(now int64, shares Shares) {
	wall := now + shares.Offset()
	lengths := shares.Lengths(now)
	kept := l.accounts[:0]
	for _, a := range l.accounts {
		if wall < a.window.End() || contains(lengths, a.window.Length) {
			kept = append(kept, a)
		} else {
			l.epoch++
		}
	}
	l.accounts = kept
	for _, length := range lengths {
		if l.find(length) < 0 {
			l.accounts = append(l.accounts, account{window: quota.Window{Length: length, Index: math.MinInt64}})
		}
	}
	for i := range l.accounts {
		a := &l.accounts[i]
		if w := quota.WindowAt(a.window.Length, wall); w.Index > a.window.Index ||
			w.Index < a.window.Index && l.off.Off(safeguard.WindowsForward) {
			*a = account{window: w, bound: Unbounded}
			l.epoch++
		}
		if a.binds = contains(lengths, a.window.Length); a.binds {
			a.bound = min(a.bound, shares.Bound(a.window, now))
		}
	}
}

// charge books n issued permits in every account.
func (l *ledger) charge(n int64) {
	if n > 0 {
		l.beyond += max(0, n-l.budget())
	}
	for i := range l.accounts {
		l.accounts[i].used += n
	}
}

// budget returns how many permits may be issued now: the least that any account
// has left; 0 when nothing is known to bind, because no knowledge is no share.
func (l *ledger) budget() int64 {
	least := Unbounded
	for i := range l.accounts {
		if a := &l.accounts[i]; a.binds && a.bound != Unbounded {
			least = min(least, a.bound-a.used)
		}
	}
	if least == Unbounded {
		return 0
	}
	return max(0, least)
}

// shortest returns the binding account with the shortest window, or nil.
func (l *ledger) shortest() *account {
	var s *account
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.binds && (s == nil || a.window.Length < s.window.Length) {
			s = a
		}
	}
	return s
}

func (l *ledger) find(length time.Duration) int {
	for i := range l.accounts {
		if l.accounts[i].window.Length == length {
			return i
		}
	}
	return -1
}

func contains(lengths []time.Duration, length time.Duration) bool {
	return slices.Contains(lengths, length)
}
