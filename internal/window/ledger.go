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
	bound  int64 // permits that may be issued in it; only ever lowered while aligned windows bind
	used   int64 // permits issued in it
	// binds is false once the limit is gone. The account is then kept to the end
	// of its window, in case that the limit comes back.
	binds  bool
	slide  *ring   // what was issued lately, while the shape Sliding binds
	bucket *bucket // what has accrued, while the shape Bucket binds
	began  int64   // since when both of them have counted
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
	// shrunk says that some bound has shrunk since the forecast was last asked
	// about all who wait.
	shrunk bool
	shape  Shape // as of the latest roll
	warmth warmth
	off    safeguard.Set
}

// roll moves every account to the window of the instant now and asks for the
// bounds again. Within a window a bound only shrinks, and a window index never
// goes back, whatever the clock does.
func (l *ledger) roll(now int64, shares Shares, shape Shape) {
	l.shape = shape
	wall := now + shares.Offset()
	lengths := shares.Lengths(now)
	kept := l.accounts[:0]
	for _, a := range l.accounts {
		if wall < l.ends(&a) || contains(lengths, a.window.Length) {
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
			*a = account{window: w, bound: Unbounded, slide: a.slide, bucket: a.bucket, began: a.began}
			l.epoch++
			if l.off.Off(safeguard.SpanWhole) {
				a.slide = nil
			}
		}
		if a.binds = contains(lengths, a.window.Length); a.binds {
			l.bind(a, now, shares)
		}
		l.reshape(a, now, shares)
	}
}

// ends returns until when an account whose limit is gone is kept: its permits
// count to the end of their window, or of every span that holds them.
func (l *ledger) ends(a *account) int64 {
	if l.shape.Any() {
		return a.window.End() + 2*int64(a.window.Length) + l.shape.Skew
	}
	return a.window.End()
}

// bind takes the account's bound as of now.
func (l *ledger) bind(a *account, now int64, shares Shares) {
	b := shares.Bound(a.window, now)
	if warm := l.shape.WarmUp; warm > 0 || !l.warmth.began {
		b = l.warm(b, a.window, shares.Offset(), now)
	}
	before := a.bound
	if a.bound = min(a.bound, b); l.shape.Unaligned {
		a.bound = b
	}
	l.shrunk = l.shrunk || a.bound < before
}

// warm returns what a warm-up leaves of a share. The first share that there is
// begins it.
func (l *ledger) warm(share int64, w quota.Window, offset, now int64) int64 {
	if !l.warmth.began && share > 0 && share != Unbounded {
		l.warmth = warmth{began: true, since: now}
	}
	warm := l.warmth.of(share, w.Start()-offset, l.shape.WarmUp)
	if l.off.Off(safeguard.WarmBelow) && share != Unbounded {
		return share + max(0, share-warm)
	}
	return warm
}

// reshape keeps what the shapes that bind count by, and nothing for others.
func (l *ledger) reshape(a *account, now int64, shares Shares) {
	switch {
	case !l.shape.Sliding:
		a.slide = nil
	case a.slide == nil:
		a.slide, a.began = newRing(a.window.Length, now), now
	}
	if a.slide != nil {
		a.slide.roll(now)
	}
	if !l.shape.Bucket {
		a.bucket = nil
		return
	}
	if a.bucket == nil {
		a.bucket, a.began = newBucket(a.window.Length), now
	}
	if a.binds && a.bound != Unbounded {
		if l.off.Off(safeguard.BucketContinues) && a.bucket.share != a.bound {
			a.bucket = newBucket(a.window.Length)
		}
		a.bucket.roll(now, a.bound, shares.Burst(a.window, now))
	}
}

// charge books n issued permits in every account. They were issued at the instant
// at or before, in the slot of the latest roll.
func (l *ledger) charge(n, at int64) {
	l.beyond += max(0, n-l.budget())
	for i := range l.accounts {
		a := &l.accounts[i]
		a.used += n
		if a.slide != nil {
			a.slide.add(n)
		}
		if a.bucket != nil {
			a.bucket.take(n, at)
		}
	}
}

// refund takes n permits of the grant out again, if they count still.
func (l *ledger) refund(n int64, grant Grant, now int64) bool {
	same := grant.Epoch == l.epoch || l.off.Off(safeguard.ReturnsInWindow)
	if !same && !l.shape.Unaligned {
		return false
	}
	for i := range l.accounts {
		if l.shape.Any() && now-grant.At >= int64(l.accounts[i].window.Length) {
			return false
		}
	}
	for i := range l.accounts {
		a := &l.accounts[i]
		if same {
			a.used -= n
		}
		if grant.At < a.began {
			continue // they were issued before this limit was there
		}
		if a.slide != nil {
			a.slide.undo(grant.At, n)
		}
		if a.bucket != nil {
			a.bucket.undo(grant.At, n, now)
		}
	}
	return true
}

// budget returns how many permits may be issued now: the least that any account
// has left; 0 when nothing is known to bind, because no knowledge is no share.
func (l *ledger) budget() int64 {
	least := Unbounded
	for i := range l.accounts {
		if a := &l.accounts[i]; a.binds && a.bound != Unbounded {
			least = min(least, a.left(l.shape.Unaligned))
		}
	}
	if least == Unbounded {
		return 0
	}
	return max(0, least)
}

// left returns how many permits the account's limit leaves.
func (a *account) left(unaligned bool) int64 {
	left := a.bound - a.used
	if unaligned {
		left = a.bound
	}
	if a.slide != nil {
		left = min(left, a.bound-a.slide.sum)
	}
	if a.bucket != nil {
		left = min(left, a.bucket.left)
	}
	return left
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
