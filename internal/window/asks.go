package window

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// asks are the guests' latest asks that a host keeps. By these it lends at the edge of a window, before
// its own callers who wait take all:
//
//   - to a guest without a share the part of the own share that it would have, or what it needed if that
//     was less;
//   - to one whose critical calls lacked permits, what they lacked;
//   - to a large call that stands, what it wants of this host.
type asks []asked

// asked is a guest's latest ask.
type asked struct {
	guest string // ID of the instance
	// permits and critical are how much of the ask is not lent yet, in the window in which it came: 0 in later
	// ones. The ask is open while permits is above 0. poor is as the guest asked.
	permits, poor, critical int64
	sure                    bool // the guest will use what it is lent
	large                   bool // large calls of the guest wait for some of permits
	// part bounds what a guest without a share is lent unasked at the edge of a window: what it had been lent
	// in the window of the ask when it asked, plus what it still lacked. It counts in windows that begin before
	// the corrected wall time until.
	until, part int64
	// urgent bounds in the same way what is lent unasked for the guest's critical calls, in windows that begin
	// before urgentUntil.
	urgent, urgentUntil int64
	// edge is what a large call of the guest wants of this instance at the edge of the window with the index
	// edgeOf.
	edge, edgeOf int64
}

const (
	// mostAsked bounds the asks that are kept.
	mostAsked = 1024
	// edgeWindows bounds the windows in which a guest is lent some without another ask: its
	// callers may have gone. One that has enough by that asks no more.
	edgeWindows = 4
)

// askOf returns the ask of a guest, in window w, for what it needs of the host with this hash, which has lent it
// lent permits in that window before. from is the corrected wall time from which the guest has a share.
func askOf(guest string, n protocol.Need, hash uint64, w quota.Window, lent, from int64) asked {
	a := asked{guest: guest, permits: n.Whole(n.Permits, hash), poor: n.Whole(n.Poor, hash), critical: n.Whole(n.Critical, hash), sure: n.Sure, large: n.Large}
	last := w.End() + edgeWindows*int64(w.Length)
	a.until = min(from, last)
	a.part = max(1, a.poor) + lent // late in a window a first permit is no poor part
	if a.critical > 0 {
		a.urgent, a.urgentUntil = a.critical+lent, last
	}
	if n.Edge > 0 {
		a.edge, a.edgeOf = n.Whole(n.Edge, hash), w.Index+1
	}
	return a
}

// keep keeps an ask of window w in place of the guest's earlier one, if it is open or counts at a later edge.
func (l *asks) keep(a asked, w quota.Window) {
	*l = slices.DeleteFunc(*l, func(o asked) bool {
		if o.guest != a.guest {
			return false
		}
		if a.edge == 0 { // what the large call wants counts until the edge, whatever else is asked for
			a.edge, a.edgeOf = o.edge, o.edgeOf
		}
		if a.urgent == 0 {
			a.urgent, a.urgentUntil = o.urgent, o.urgentUntil
		}
		return true
	})
	if (a.permits > 0 || max(a.until, a.urgentUntil) > w.End() || a.edgeOf > w.Index) && len(*l) < mostAsked {
		*l = append(*l, a)
	}
}

// enter notes that window w has begun: no ask is open any more, and those that count at no edge are forgotten.
func (l *asks) enter(w quota.Window) {
	*l = slices.DeleteFunc(*l, func(a asked) bool {
		return max(a.until, a.urgentUntil) <= w.Start() && a.edgeOf < w.Index
	})
	for i := range *l {
		(*l)[i].permits = 0
	}
}

// leave forgets the asks of guests to which nothing is lent any more.
func (l *asks) leave(lends func(guest string) bool) {
	*l = slices.DeleteFunc(*l, func(a asked) bool { return !lends(a.guest) })
}

// stand reports whether large calls of guests want permits at the edge of w.
func (l asks) stand(w quota.Window) bool {
	return slices.ContainsFunc(l, func(a asked) bool { return a.edge > 0 && a.edgeOf == w.Index })
}

// standFrom reports whether large calls of guests want permits at the edge of w or of a later window.
func (l asks) standFrom(w quota.Window) bool {
	return slices.ContainsFunc(l, func(a asked) bool { return a.edge > 0 && a.edgeOf >= w.Index })
}

// atEdge returns how many permits the guest is lent at the edge of w. part is what one without a share
// may have of the host's, spare what the host's own critical calls leave, and behind says that a large call of
// the host comes before those of the guest.
func (a *asked) atEdge(w quota.Window, part, spare int64, behind bool) (n int64) {
	if a.until > w.Start() {
		n = min(a.part, part)
	}
	if a.urgentUntil > w.Start() {
		n = max(n, min(a.urgent, spare))
	}
	if a.edgeOf == w.Index && !behind {
		n = max(n, a.edge)
	}
	return n
}
