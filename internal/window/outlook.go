package window

import "github.com/quotient-limiter/quotient/quota"

// lookAhead is how many windows ahead a forecast looks for a larger share, where
// other shapes than aligned windows bind.
const lookAhead = 4

// outlook is one limit of such a shape, on a walk: the share that it has, and the
// larger ones that it will have.
type outlook struct {
	account *account
	grows   [lookAhead + 2]larger
	n       int
	end     int64 // how far ahead was looked
}

// larger is a share, and from when on it is.
type larger struct{ share, from int64 }

// outlookLocked looks ahead for one limit.
func (g *Gate) outlookLocked(o *outlook, a *account) {
	now, offset, shape := g.mu.last, g.shares.Offset(), g.mu.terms.Shape
	*o = outlook{account: a, n: 1}
	o.grows[0] = larger{a.bound, now}
	most := a.bound
	for i := range int64(lookAhead + 1) {
		w := quota.Window{Length: a.window.Length, Index: a.window.Index + i}
		end := w.End() - 1 - offset
		share := g.mu.forecast.bound(g.shares, w, end)
		share = g.mu.ledger.warmth.of(share, w.Start()-offset, shape.WarmUp)
		if o.end = end; share > most && share != Unbounded {
			most = share
			from := min(shape.Grows(w.Length, max(w.Start(), now+offset)-1)-offset, end)
			if shape.WarmUp > 0 {
				from = w.Start() - offset // it may have grown by that alone
			}
			o.grows[o.n] = larger{share, max(now, from)}
			o.n++
		}
	}
}

// shapedWalkLocked starts a walk where other shapes than aligned windows bind.
// taken permits of the running segment are not booked yet.
func (g *Gate) shapedWalkLocked(w *walk, taken int64) *walk {
	if w.outlooks == nil {
		w.outlooks = new([2 * quota.MaxLimits]outlook)
	}
	w.given, w.unbooked = 0, unbooked{taken, g.mu.edge}
	for i := range g.mu.ledger.accounts {
		a := &g.mu.ledger.accounts[i]
		if a.binds && a.bound != Unbounded && w.n < len(w.outlooks) {
			g.outlookLocked(&w.outlooks[w.n], a)
			w.n++
		}
	}
	return w
}

// comes returns the instant at which the n-th permit from now on can be issued,
// and whether it is known: at the earliest by any of the shares.
func (o *outlook) comes(n, now int64, u unbooked) (when int64, known bool) {
	when = Forever
	for _, g := range o.grows[:o.n] {
		when = min(when, max(g.from, o.account.comes(n, g.share, now, u)))
	}
	if when == Forever {
		return o.end, false
	}
	return when, true
}

// ahead returns the instant at which the last of n more permits can be issued,
// under all limits. Of several limits the latest counts, as if each were alone:
// that is never too late.
func (w *walk) ahead(n int64) int64 {
	w.given = addCapped(w.given, n)
	w.when = max(w.g.mu.last, w.g.mu.opens)
	if w.given <= w.avail {
		return w.when // the segment has them, whenever what was taken will be booked
	}
	for i := range w.n {
		at, known := w.outlooks[i].comes(w.given, w.g.mu.last, w.unbooked)
		if w.when = max(w.when, at); !known {
			w.edges = horizon + 1
		}
	}
	return w.when
}
