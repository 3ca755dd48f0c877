package shape

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Pacing releases a window's share along the window instead of at its start. It
// never allows more than the share, so it cannot break the sum. A call that is larger
// than the share, and what is lent at the window's start, do not wait until it releases
// them: what is left of the share then comes evenly.
//
// Instances are out of step: each begins its ticks, and releases its few permits
// where they are fewer than ticks, at places of its own (Pacing.Phase).

const (
	// tick is the time in which permits are released together: shorter ones are
	// lost in the lateness of timers. Windows shorter than ticksLeast of them have
	// shorter ones.
	tick       = 10 * time.Millisecond
	ticksLeast = 50
	// ticksSpare is how many ticks before the window's end all permits are due,
	// so that a late timer loses none.
	ticksSpare = 3
)

// line is the release of one window's share: permits come at a steady rate from
// the instant from on, and all that are left at the instant end. Those that come
// within one tick are due together, at its end.
type line struct {
	neutral
	window   quota.Window
	tick     int64
	grid     int64   // ticks end at grid + k*tick
	from     int64   // where the steady rate begins
	released int64   // permits that were due by then
	gap      float64 // nanoseconds from permit to permit
	phase    float64 // 0 to 1: where in its gap a permit is due
	end      int64
	share    int64
	even     float64 // gap, had the whole window been used evenly
	now      int64   // as of the latest set
}

func (l *line) set(c *Count, t Terms) {
	switch now := max(t.Now, l.from); {
	case l.window != c.Window || l.share != c.Bound:
		*l = newLine(c, t, l.window == c.Window || c.Used > 0)
	case c.Used > l.due(t.Now) && now < l.end: // some were issued, or lent, before they were due: see Schedules.Unpaced
		l.from, l.released = now, c.Used
		l.gap = max(1, l.rest())
	}
	l.now = t.Now
}

func (l *line) left(c *Count) int64 { return l.due(l.now) - c.Used }

func (l *line) when(c *Count, n int64, as Present) int64 {
	return max(as.Now, l.at(c.Used+as.Taken+n))
}

// spread leaves need, and the others that come due in one tick with the last of them.
func (l *line) spread(c *Count, need, now int64) {
	most, due := max(0, need-1), l.due(now)-c.Used
	if now < l.end && due > most && due-most > l.perTick() {
		l.restart(now, c.Used, min(c.Bound, c.Used+most+l.perTick()))
	}
}

// newLine returns the line of the count's window. It begins at the window's start, or
// at the terms' instant if the bound has changed within the window.
func newLine(c *Count, t Terms, changed bool) line {
	w := c.Window
	start, end := w.Start()-t.Offset+t.Guard, w.End()-t.Offset-t.Guard
	l := line{window: w, tick: max(1, int64(min(tick, w.Length/ticksLeast))), share: c.Bound, phase: phaseOf(t.Phase, w)}
	if end-start > 2*ticksSpare*l.tick {
		end -= ticksSpare * l.tick
	}
	l.end, l.even = end, float64(end-start)/float64(max(1, c.Bound))
	l.grid = start - int64(l.phase*float64(l.tick))
	l.from, l.gap, l.released = start, l.even, 0
	if changed {
		l.restart(max(t.Now, start), c.Used, c.Used)
	}
	return l
}

// restart goes on at the instant now, at which used permits were issued and as
// many as released are due: the rest comes evenly until the end.
func (l *line) restart(now, used, released int64) {
	l.from, l.released = now, released
	l.gap = max(1, min(l.even, l.rest()))
	if released > used {
		l.phase = 1 // the next one is a whole gap away
	}
}

// rest returns the gap with which what is not released yet comes evenly from l.from until the end.
func (l *line) rest() float64 { return float64(l.end-l.from) / float64(max(1, l.share-l.released)) }

// at returns the instant at which n permits of the window are due.
func (l *line) at(n int64) int64 {
	if n <= l.released {
		return math.MinInt64
	}
	t := float64(n-l.released-1) * l.gap
	if t += l.phase * l.gap; t >= float64(l.end-l.from) {
		return l.end
	}
	at := l.from + int64(t)
	if l.gap < float64(l.tick) {
		at = l.grid + ((at-l.grid)+l.tick-1)/l.tick*l.tick
	}
	return min(at, l.end)
}

// due returns how many permits of the window are due by the instant now: the
// largest n with at(n) <= now, and the share once the line has ended.
func (l *line) due(now int64) int64 {
	if now >= l.end {
		return l.share
	}
	ticked := now
	if l.gap < float64(l.tick) {
		ticked = now - ((now-l.grid)%l.tick+l.tick)%l.tick
	}
	n := l.released + int64(math.Floor(float64(ticked-l.from)/l.gap-l.phase)) + 1
	n = min(max(n, l.released), l.share)
	for n > l.released && l.at(n) > now { // rounding
		n--
	}
	for n < l.share && l.at(n+1) <= now {
		n++
	}
	return n
}

// perTick is how many permits come due together at most.
func (l *line) perTick() int64 {
	return int64(math.Ceil(float64(l.tick) / l.gap))
}

// phaseOf turns an instance's phase into that of one window: another one in each,
// so that no instance is always first.
func phaseOf(phase uint64, w quota.Window) float64 {
	const step = 0x9e3779b97f4a7c15 // of Mix, which adds it
	return float64(protocol.Mix((phase^uint64(w.Index)*step^uint64(w.Length))-step)>>11) / (1 << 53)
}
