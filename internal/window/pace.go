package window

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Pacing releases a window's share along the window instead of at its start. It
// says how many of the permits that the share allows may be issued at once; it
// never allows more than the share, so it cannot break the sum.
//
// Instances are out of step: each begins its slices, and releases its few permits
// where they are fewer than slices, at places of its own (Terms.Phase).

const (
	// slice is the time in which permits are released together: shorter ones are
	// lost in the lateness of timers. Windows shorter than spareSlices of them
	// have shorter ones.
	slice       = 10 * time.Millisecond
	spareSlices = 50
	// catchUp bounds the rate at which what was not taken in time is released,
	// as a multiple of the even rate: a caller that comes late in the window
	// finds no burst waiting.
	catchUp = 1.5
	// spur is by how much that rate exceeds the one that would just do until the
	// window's end: a short pause is made good in the rest of the window, not in
	// a burst after it.
	spur = 1.05
	// early is how many slices before the window's end everything is due, so
	// that a timer that is late loses no permit.
	early = 3
)

// sliceOf is the slice of windows of that length.
func sliceOf(length time.Duration) int64 { return int64(min(slice, length/spareSlices)) }

// line is the even release of a window's share.
type line struct {
	start, end int64 // monotonic, of the span of time in which permits are due
	slice      int64
	share      int64
	phase      float64 // 0 to 1: where in its gap a permit is due
}

// lineOf returns the line of a window that starts at the monotonic instant start.
func lineOf(w quota.Window, start, guard, share int64, phase uint64) line {
	l := line{start: start + guard, end: start + int64(w.Length) - guard, slice: sliceOf(w.Length), share: share}
	if l.end-l.start > 2*early*l.slice {
		l.end -= early * l.slice
	}
	l.phase = phaseOf(phase, w)
	return l
}

// due returns how many permits are due by the instant now.
func (l *line) due(now int64) int64 {
	switch {
	case now < l.start:
		return 0
	case now >= l.end:
		return l.share
	}
	x := float64(now-l.start) / float64(l.end-l.start)
	return min(max(int64(math.Floor(x*float64(l.share)-l.phase))+1, 0), l.share)
}

// at returns the earliest instant at which n permits are due.
func (l *line) at(n int64) int64 {
	if n <= 0 {
		return l.start
	}
	x := (float64(n-1) + l.phase) / float64(max(1, l.share))
	t := l.start + int64(x*float64(l.end-l.start))
	for t < l.end && l.due(t) < n { // rounding
		t++
	}
	return min(max(t, l.start), l.end)
}

// step returns the end of the slice in which now lies.
func (l *line) step(now int64) int64 {
	begin := l.start - int64(l.phase*float64(l.slice))
	return begin + ((now-begin)/l.slice+1)*l.slice
}

// release returns how many permits may be issued now, when used were issued in
// the window, and the instant at which to ask again.
func (l *line) release(now, used int64) (permits, next int64) {
	if now < l.start {
		return 0, l.start
	}
	next = l.step(now)
	if behind := l.due(now) - used; behind > 0 {
		// The permits of a slice at that rate, rounded up, and the time they take.
		rate := l.pull(now, used)
		most := max(1, int64(math.Ceil(rate*float64(l.slice))))
		if behind > most {
			next = now + max(int64(float64(most)/rate), l.slice/2)
		}
		return min(behind, most), next
	}
	if used >= l.share {
		return 0, Forever
	}
	return 0, max(next, l.at(used+1))
}

// pull is the rate, in permits per nanosecond, at which what was not taken in time
// is released: so that all is by the end, within the bounds of catchUp.
func (l *line) pull(now, used int64) float64 {
	even := float64(l.share) / float64(max(1, l.end-l.start))
	needed := float64(l.share-used) / float64(max(1, l.end+l.slice-now))
	return min(max(spur*needed, even), catchUp*even)
}

// phaseOf turns an instance's phase into that of one window: another one in each,
// so that nobody is always first.
func phaseOf(phase uint64, w quota.Window) float64 {
	x := phase ^ uint64(w.Index)*0x9e3779b97f4a7c15 ^ uint64(w.Length)
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
