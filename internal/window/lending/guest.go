package lending

import "math"

// Guest is the state of an instance that asks for permits. The zero Guest has not asked.
type Guest struct {
	rounds int     // asks in this window; rounds that again skips count too
	late   int     // asks in this window after Rules.Rounds
	fails  int     // asks in a row for which nothing came
	at     float64 // instant of the latest ask
	lacked float64 // instant at which it first lacked permits in this window; +Inf if it has not
	calls  float64 // that had come by then: Flow.Seen
	wanted int64   // permits that it needed at the latest ask
	had    int64   // permits that it had borrowed in this window by then
	// part is how much the next ask asks for all in all, as a multiple of the need. It doubles after an ask that
	// brought less than half, grows eightfold after one that brought less than a sixteenth, and halves after one
	// that brought more than was needed.
	part   float64
	rate   float64 // rate of calls by which the latest ask was made
	lately bool    // it asked in the window before
	bare   bool    // it had no share of its own at the latest ask
	vain   int     // of the windows in which it asked, not bare, so many in a row have brought nothing
	quiet  int     // so many windows, with this one, in which it asks only if it is poor and has a share, or is New
}

// Has is what a guest has.
type Has struct {
	Phase, Length float64 // how much of the window has passed, and its length
	Rest          float64 // for how long permits can still be issued in the window
	Left          int64   // permits that may be issued
	Kept          int64   // those of Left that only critical calls get
	Waiting       int64   // permits that callers wait for, or that are owed
	Issued        int64   // permits issued to own callers in this window
	Borrowed      int64   // permits borrowed in this window
	Own           int64   // its own share of the window
	New           bool    // it has no share yet: hosts lend it a part of theirs unasked
	Fair          float64 // Total divided equally among all instances
	Total         int64   // permits that all instances have together in the window
}

// Ask is what a guest asks all hosts together for.
type Ask struct {
	Permits int64 // that it needs, before Part raises that
	// Poor are those of Permits that it lacks to its fair share of the window from its
	// first call on.
	Poor int64
	// Critical are those that critical calls lack.
	Critical int64
	// Sure says that it will use what it is lent: callers wait, or it owes permits, or it expects many calls.
	Sure bool
	// Large says that large calls wait for some of them.
	Large bool
	// Edge are permits of the next window, for a large call that stands: each instance lends
	// its part of them at the window's edge.
	Edge int64
	// Whole says that each host is asked for all of Permits, not for a part of them.
	Whole bool
	// Quiet says that no sample is asked, as there are too many such asks: see Noise.
	Quiet bool
	Part  float64 // how much is asked for all in all, as a multiple of Permits
	Fails int     // asks before this one, in a row, for which nothing came
}

// Begin notes that another window begins. borrowed permits were borrowed in the one before.
func (g *Guest) Begin(borrowed int64) {
	g.quiet = max(0, g.quiet-1)
	switch {
	case g.rounds == 0:
	case borrowed > 0:
		g.vain = 0
	case g.bare: // a fleet that starts has no shares yet
	default: // nobody had any
		if g.vain++; g.vain > 2 { // not only because the permits of one window were spent
			g.quiet = min(4, 1<<min(g.vain-3, 4))
		}
	}
	*g = Guest{lately: g.rounds > 0, vain: g.vain, quiet: g.quiet, part: 1, at: math.Inf(-1), lacked: math.Inf(1)}
}

// Asked reports whether it has asked in this window.
func (g *Guest) Asked() bool { return g.rounds > 0 }

// InVain reports whether it asked in a window before this one, and the last time that it did nothing came in all of the
// window. Windows in which it had no share of its own do not count.
func (g *Guest) InVain() bool { return g.vain > 0 }

// Busy reports whether it has asked in this window, or in the last one.
func (g *Guest) Busy() bool { return g.lately || g.rounds > 0 }

// Ask returns what to ask for now; ok is false if that is nothing. f has the calls of this instance.
func (g *Guest) Ask(f *Flow, r Rules, h Has) (a Ask, ok bool) {
	due := h.Fair*(1-max(0, f.first)/h.Length) - float64(h.Issued) - float64(max(0, h.Left))
	poor := due >= 1                                    // a share is a whole number
	if g.quiet > 0 && (!poor || h.Own == 0 && !h.New) { // nobody keeps a reserve for one that has no share
		return a, false
	}
	rate, free := f.expected(), float64(h.Left-h.Kept-h.Waiting)
	// The first ask of an instance that woke is by a rate of few calls.
	more := g.rounds > 0 && poor && f.used[0] < 0.1*rate && rate > 1.3*g.rate && free < 0.7*rate*h.Rest
	if h.Rest <= 4 || free >= rate*min(lead, h.Rest) && h.Waiting == 0 && !more || free >= 0.95*rate*h.Rest {
		return a, false
	}
	span := h.Rest
	if !g.lately && g.rounds == 0 && !poor {
		span = min(span, horizon)
	}
	wanted := min(f.wants(span, h.Waiting), float64(h.Total))
	need := int64(math.Ceil(wanted)) - max(0, h.Left-h.Kept)
	little := h.Fair / tiny
	if f.used[0] == 0 {
		little = h.Fair / woke
	}
	if need <= 0 || wanted < seldom || float64(need) < little && h.Waiting <= h.Left && h.Own > 0 {
		return a, false
	}
	if h.New && g.lately && g.rounds == 0 && h.Borrowed == 0 { // a host lends a newcomer its part unasked
		if g.lacked = min(g.lacked, f.at); f.at < g.lacked+spacing {
			return a, false
		}
	}
	if g.rounds > 0 && !g.again(f, r, h, poor) {
		return a, false
	}
	if g.rounds >= r.Rounds {
		g.late++
	}
	g.rounds++
	g.bare = h.New
	g.at, g.calls, g.wanted, g.had, g.rate = f.at, f.calls, need, h.Borrowed, f.begun()
	f.Asked(g.rate)
	return Ask{Permits: need, Poor: int64(max(0, min(float64(need), due))), Sure: f.wants(span, 0)-float64(max(0, h.Left-h.Kept)) >= sure, Part: g.part, Fails: g.fails}, true
}

// Divide says of an ask how many permits critical calls lack, and takes out of the poor part what
// sheddable ones lack: no host gives up its reserve for them. The flows are of critical and of sheddable
// calls; criticals and sheddables are the permits that such callers wait for.
func (a *Ask) Divide(h Has, critical, sheddable *Flow, criticals, sheddables int64) {
	if wanted := critical.wants(h.Rest, criticals); wanted > 0 {
		a.Critical = max(0, min(a.Permits, int64(math.Ceil(wanted))-max(0, h.Left)))
	}
	if wanted := sheddable.wants(h.Rest, sheddables); wanted > 0 {
		a.Poor = max(0, min(a.Poor, a.Permits-int64(math.Ceil(wanted))))
	}
}

// PoorFor leaves in the poor part of an ask what small calls lack, and no more: no host gives up its part
// for large ones, or permits would go in circles. small is the flow of small calls, and waiting the permits
// that such callers wait for.
func (a *Ask) PoorFor(h Has, small *Flow, waiting int64) {
	a.Poor = max(0, min(a.Poor, int64(math.Ceil(small.wants(h.Rest, waiting)))-max(0, h.Left-h.Kept)))
}

// Gather widens an ask for a large call, but for the first one of a window: it goes to every host, for all
// that the call lacks. What is left of a window lies here and there, and each host lends what it has to
// the guest that is first in the window's order.
func (g *Guest) Gather(a *Ask) { a.Whole = g.rounds > 1 }

// again reports whether it may ask once more in this window.
func (g *Guest) again(f *Flow, r Rules, h Has, poor bool) bool {
	came, age := h.Borrowed-g.had, f.at-g.at
	if f.calls == g.calls && h.Waiting == 0 { // it wants no more than it has asked for
		return false
	}
	if age < spacing || came == 0 && age < 2*spacing {
		return false
	}
	if h.Own == 0 && g.rounds+g.late >= r.Bare {
		return false
	}
	if g.rounds >= r.Rounds { // the poor may ask more often
		return poor && g.late < r.Rounds
	}
	rounds, fails := g.rounds, 0
	if came == 0 {
		switch fails = g.fails + 1; {
		case g.vain > 0: // nobody had any in the last window either
			rounds = max(rounds, r.Rounds-1)
		case fails > 2: // the reserves are what is left
			rounds, fails = max(rounds, r.Rounds-2), 0
		}
	}
	if !poor {
		// Three rounds at will, the last two at the end, the others along the window.
		if rounds >= 3 && rounds < r.Rounds-2 && h.Phase < h.Length*float64(rounds-2)/float64(r.Rounds-2) {
			return false
		}
		if rounds >= r.Rounds-2 && h.Rest > ends {
			g.rounds = rounds
			return false
		}
	}
	g.rounds, g.fails = rounds, fails
	most := max(1, float64(h.Total)/max(1, h.Fair))
	switch {
	case came < g.wanted/16: // perhaps one host has all, and was asked for an equal part
		g.part = min(8*g.part, most)
	case came < g.wanted/2:
		g.part = min(2*g.part, most)
	case came > g.wanted:
		g.part = max(1, g.part/2)
	}
	return true
}
