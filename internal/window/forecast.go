package window

import "github.com/quotient-limiter/quotient/quota"

// horizon bounds how many edges a forecast looks ahead. Beyond it nobody is
// refused: it is better to let somebody wait in vain than to refuse somebody
// who could have been served.
const horizon = 64

// forecast remembers the shares of windows to come, which cost a hash of every
// instance each, until something changes.
type forecast struct {
	bounds map[quota.Window]int64
}

func (f *forecast) forget() { clear(f.bounds) }

func (f *forecast) bound(shares Shares, w quota.Window, now int64) int64 {
	if b, ok := f.bounds[w]; ok {
		return b
	}
	if f.bounds == nil {
		f.bounds = make(map[quota.Window]int64)
	}
	b := shares.Bound(w, now)
	f.bounds[w] = b
	return b
}

// future is one limit on a walk: the window that the walk has reached, and what
// it has left.
type future struct {
	window quota.Window
	left   int64
	share  int64
}

// walk goes from edge to edge into the future and hands out the permits of
// each, to tell when the queue's waiters will be served if nothing changes. It
// is optimistic where the truth is not known: it ignores limits that will be
// added, and how permits fall into a request for many.
type walk struct {
	g      *Gate
	limits [2 * quota.MaxLimits]future
	n      int   // limits in use
	when   int64 // instant that the walk has reached
	avail  int64 // permits to be had there
	edges  int   // passed

	shaped   bool // other shapes than aligned windows bind: see outlook
	given    int64
	unbooked unbooked
	outlooks *[2 * quota.MaxLimits]outlook
}

// walkLocked starts a walk at the present, at the head of the queue. There is
// one walk at a time, in the gate: on the stack it would double that of every
// goroutine that parks.
func (g *Gate) walkLocked() *walk {
	left := g.segment.Load().Left()
	w := &g.mu.ahead
	w.g, w.n, w.edges = g, 0, 0
	w.when, w.avail = g.mu.last, g.mu.held+left
	taken := g.mu.published - left
	if w.shaped = g.mu.terms.Shape.Any(); w.shaped {
		return g.shapedWalkLocked(w, taken)
	}
	for i := range g.mu.ledger.accounts {
		a := &g.mu.ledger.accounts[i]
		if a.binds && a.bound != Unbounded && w.n < len(w.limits) {
			w.limits[w.n] = future{a.window, max(0, a.bound-a.used-taken), a.bound}
			w.n++
		}
	}
	return w
}

// next hands out n permits and returns the instant at which the last of them
// can be had. It gives up, with the instant it has reached, after the deadline
// and at the horizon.
func (w *walk) next(n, deadline int64) (when int64) {
	if w.shaped {
		return w.ahead(n)
	}
	for {
		k := min(n, w.avail)
		n -= k
		w.avail -= k
		for i := range w.n {
			w.limits[i].left -= k
		}
		if n > 0 && w.g.mu.terms.Pacing.Even {
			n -= w.paced(n)
		}
		if n == 0 || !w.step() || w.when > deadline {
			return w.when
		}
	}
}

// paced hands out at most n of the permits that the windows reached have still to
// release, and goes on to the instant at which the last of those is due. The delay
// that adaptive pacing adds is not known in advance and not counted.
func (w *walk) paced(n int64) int64 {
	for i := range w.n {
		n = min(n, max(0, w.limits[i].left))
	}
	if n == 0 || w.when < w.g.mu.opens {
		return 0
	}
	t, offset := &w.g.mu.terms, w.g.shares.Offset()
	for i := range w.n {
		f := &w.limits[i]
		f.left -= n
		l := lineOf(f.window, f.window.Start()-offset, t.Guard, f.share, t.Pacing.Phase)
		w.when = max(w.when, l.at(f.share-f.left))
	}
	return n
}

// serves reports whether n permits can be had by the deadline. If not, the walk
// stays where it is, for the next in line.
func (w *walk) serves(n, deadline int64) bool {
	if w.shaped {
		if deadline != Forever && w.ahead(n) > deadline {
			w.given -= n
			return false
		} else if deadline == Forever {
			w.given = addCapped(w.given, n)
		}
		return true
	}
	before := &w.g.mu.before
	*before = *w
	if w.next(n, deadline) <= deadline {
		return true
	}
	*w = *before
	return false
}

// step goes on to the next edge. It returns false at the horizon.
func (w *walk) step() bool {
	if w.edges++; w.edges > horizon || w.n == 0 {
		return false
	}
	offset, opens := w.g.shares.Offset(), w.g.mu.opens
	edge := Forever
	for i := range w.n {
		edge = min(edge, w.limits[i].window.End()-offset)
	}
	if opens > w.when && opens < edge {
		w.when = opens
	} else {
		for i := range w.n {
			if f := &w.limits[i]; f.window.End()-offset <= edge {
				f.window.Index++
				f.left = w.g.mu.forecast.bound(w.g.shares, f.window, w.g.mu.last)
				f.share = f.left
			}
		}
		w.when = edge + w.g.mu.terms.Guard
	}
	if w.avail = 0; w.when >= opens {
		w.avail = w.limits[0].left
		for i := range w.n {
			w.avail = min(w.avail, w.limits[i].left)
		}
		w.avail = max(0, w.avail)
	}
	if w.g.mu.terms.Pacing.Even {
		w.avail = 0 // released later: see paced
	}
	return true
}
