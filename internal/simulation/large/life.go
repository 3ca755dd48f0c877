package large

import (
	"math/rand/v2"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// life is one instance while it is played.
type life struct {
	*script
	*actor
	r    *rand.Rand
	rate int64 // ppm by which its monotonic clock runs fast
	err  int64 // of its wall clock, constant

	history share.History
	next    int     // the commit that is delivered next
	due     int64   // true time of its delivery
	hangs   int64   // until then nothing is delivered
	recent  int     // commits delivered since counted
	counted int64   // true time
	opens   int64   // until then the watch is closed, because commits came fast
	used    []int64 // by window, from 0
}

func (l *life) mono(at int64) int64 { return at + at/1_000_000*l.rate }
func (l *life) wall(at int64) int64 { return epoch + at + l.err }

// play lives through one instance's history and adds what it issues to the windows.
func (l *life) play(issued []int64) {
	l.rate, l.err = l.r.Int64N(1001)-500, l.r.Int64N(2*clockError+1)-clockError
	listed := l.commits[l.joins].at + 1 + l.r.Int64N(20*ms)
	l.history.Reset(l.mono(listed), l.first.ID, l.view(l.joins))
	l.next, l.opens = l.joins+1, listed+heldBack
	l.schedule(listed)
	l.used = make([]int64, len(issued))
	for at := listed; at < min(end, l.dies); {
		l.deliver(at)
		l.ask(at)
		at = l.after(at)
	}
	for w, n := range l.used {
		issued[w] += n
	}
}

// after draws when it asks next: at random, or right before or at the next window's
// start.
func (l *life) after(at int64) int64 {
	next := at + 1 + l.r.Int64N(450*ms)
	if edge := l.wall(next)/second*second - epoch - l.err; edge > at && l.r.IntN(2) == 0 {
		return max(at+1, edge-l.r.Int64N(2))
	}
	return next
}

// schedule draws when the next commit is delivered: soon mostly, now and then late,
// and sometimes so late that the view is no longer fresh.
func (l *life) schedule(now int64) {
	if l.next == len(l.commits) {
		return
	}
	delay := 1 + l.r.Int64N(10*ms)
	if now > l.hangs && l.r.IntN(len(l.actors)) < 4 {
		l.hangs = now + l.r.Int64N(3*second)
	}
	l.due = max(now, l.opens, l.commits[l.next].at+delay, min(l.hangs, l.commits[l.next].at+4*second))
}

// held closes the watch for a little when commits come fast, as sessions do in
// large fleets; a new one's is closed to begin with.
func (l *life) held(at int64) {
	if at-l.counted > heldBack {
		l.recent, l.counted = 0, at
	}
	if l.recent++; l.recent > rushChanges && l.opens < at {
		l.opens = at + heldBack/2 + l.r.Int64N(heldBack/2)
	}
}

// deliver applies what has come by a true time, one revision after the other.
func (l *life) deliver(at int64) {
	for l.next < len(l.commits) && l.due <= at {
		l.history.Apply(l.mono(l.due), l.commits[l.next].change)
		l.next++
		l.held(l.due)
		l.schedule(l.due)
	}
}

// ask takes all that the settle rule allows at a true time, if the view is fresh:
// if a proof can exist, at best, that is younger than the freshness.
func (l *life) ask(at int64) {
	if l.next < len(l.commits) {
		// A read that was sent after this commit returns a revision that the watch
		// has not delivered.
		sent := l.commits[l.next].at
		if max(l.mono(at)-l.mono(sent), at-sent) >= int64(quota.DefaultFreshness) {
			return
		}
	}
	w := quota.WindowAt(second1, l.wall(at))
	i := w.Index - epoch/second
	if i < 0 || i >= int64(len(l.used)) {
		return
	}
	b := l.history.Bound(w, l.mono(at), l.wall(at)-l.mono(at), share.NotFrozen)
	if b.Permits != share.Unbounded {
		l.used[i] = max(l.used[i], b.Permits)
	}
}
