package window

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// This file says when a call is served at the earliest, if there is no news: a lower bound, never a
// copy of the future. A call is refused at once only if even that is too late for it, for waiting in
// vain is better than the refusal of what could have been served.
//
// Each limit is looked at alone, from now on, with all that is issued before the call. The result is the
// latest instant that any of them says.

// room is the most permits that may come of one limit's windows: of the one that runs, of the next one,
// and of any after that. shape.Unbounded: not known.
type room struct{ now, next, later int64 }

// windows returns how many of the limit's windows end before n permits for one call come, behind so many
// before it, and the least number of permits that its last window has issued then. known is false if
// none come of later windows: then it says how many windows end at least.
func (r room) windows(used, before, n int64) (ends, issued int64, known bool) {
	all := queue.Sum(before, n)
	left := r.now - used
	if all <= left {
		return 0, used + all, true
	}
	if all = max(n, all-max(0, left)); all <= r.next { // what one call wants comes of one window
		return 1, all, true
	}
	if all = max(n, all-r.next); r.later <= 0 {
		return 2, n, false
	}
	ends = (all - 1) / r.later
	return queue.Sum(2, ends), max(n, all-ends*r.later), true
}

// after returns the start of the window that comes so many windows after w; false if that is too far
// away to count.
func after(w quota.Window, windows int64) (quota.Window, bool) {
	if windows > (clock.Forever/2-max(0, w.End()))/int64(w.Length) {
		return w, false
	}
	w.Index += windows
	return w, true
}

// Eta returns a monotonic instant, not before now, before which n more permits are surely not here
// beside what is owed, whatever others lend: until then all that the limits let the fleet issue could
// come to this instance. It is clock.Forever if only news can help. most says of a limit how many permits all
// instances may issue in the window that runs, and how many at most in a later one; shape.Unbounded where that
// is not known.
func (a *Account) Eta(n, now int64, most func(quota.Window) (total, later int64)) (at int64) {
	return a.eta(a.debt, n, now, most)
}

// eta is Eta for a call behind so many permits that are issued before.
func (a *Account) eta(before, n, now int64, most func(quota.Window) (total, later int64)) (at int64) {
	at = now
	for s := range a.bounded {
		total, later := most(s.Window)
		ends, _, known := room{total, later, later}.windows(s.Used-s.lent, before, n)
		w, counts := after(s.Window, ends)
		switch {
		case !known || !counts || later <= 0:
			return clock.Forever
		case ends > 0:
			at = max(at, w.Start()-a.windows.Offset)
		}
	}
	return at
}

// foreseen are plans that were made for later instants since the latest news: that of each limit's next
// window, and that after a guard or a pause.
type foreseen struct {
	plans []foreseenPlan
	far   *plans.Plan // of an instant after which no share grows without news
}

type foreseenPlan struct {
	at   int64
	plan *plans.Plan
}

// move drops what lies behind, at the instant now, at which p takes the place of the plan was. It returns
// whether p allows less than was foreseen. If p is not as foreseen, nothing is foreseen any more.
func (f *foreseen) move(was, p *plans.Plan, now int64) (less bool) {
	if now >= was.Until {
		was = nil
		for _, o := range f.plans {
			if o.at <= now && now < o.plan.Until {
				was = o.plan
			}
		}
	}
	if was == nil || p.Worse(was) || was.Worse(p) || p.Offset != was.Offset || p.Until != was.Until {
		less = was == nil || p.Worse(was)
		*f = foreseen{}
	}
	f.plans = slices.DeleteFunc(f.plans, func(o foreseenPlan) bool { return o.plan.Until <= now || o.at <= now })
	return less
}

// foreseeLocked returns the plan for an instant that lies ahead.
func (g *Gate) foreseeLocked(at int64) *plans.Plan {
	f := &g.mu.foreseen
	for i := range f.plans {
		if f.plans[i].at == at {
			return f.plans[i].plan
		}
	}
	p := g.planner.Foresee(at)
	f.plans = append(f.plans, foreseenPlan{at, &p})
	return &p
}

// farAhead is further ahead than any warm-up or settle time lasts: all views of today are forgotten by then.
const farAhead = int64(24 * time.Hour)

// farLocked returns the plan for so far ahead. For all that ask in one day it is that of one instant, so
// that the instances in its windows are counted once.
func (g *Gate) farLocked() *plans.Plan {
	if f := &g.mu.foreseen; f.far == nil {
		far := g.planner.Foresee((max(g.mu.last.Mono, g.planLocked().PausedUntil)/farAhead + 2) * farAhead)
		f.far = &far
	}
	return g.mu.foreseen.far
}

// laterLocked returns the most permits that the share has in any later window as long as w, and the most
// of them at once under Shape.Bucket, if there is no news. If the policy announces another limit, it is all
// of the highest one, for neither of the plans at hand has the share just before the change.
func (g *Gate) laterLocked(w quota.Window) (permits, burst int64) {
	now, far := g.planLocked().LimitOf(w), g.farLocked().LimitOf(w)
	if now.Later > now.Limit || far.Later > far.Limit || far.Limit < now.Limit {
		later := max(now.Later, far.Later)
		return later, later
	}
	return max(now.Permits, now.Most, far.Permits, far.Most), max(now.Burst, far.Burst)
}

func (g *Gate) presentLocked() shape.Present {
	return shape.Present{Now: g.mu.last.Mono, Edge: g.mu.edge, Taken: g.takenLocked()}
}

// opensLocked returns from when on permits are issued, as far as guards and pauses decide that.
func (g *Gate) opensLocked() int64 {
	p, at := g.planLocked(), g.mu.last.Mono
	for range 4 { // a guard, that of the next window, a pause, and the guard in which it ends
		if !p.Shut || p.Until == clock.Forever {
			break
		}
		at = max(at, p.Until, p.PausedUntil)
		p = g.foreseeLocked(at)
	}
	return max(at, g.planLocked().PausedUntil)
}

// mayBorrowLocked reports whether others may lend to this instance, now or later: to one that is alone
// too, for another may join.
func (g *Gate) mayBorrowLocked() bool {
	p := g.planLocked()
	return p.Known && p.Lending.Borrows
}

// etaLocked returns an instant before which no call of class c has n permits, behind others that want so
// many before it. loans says that others may lend some: then all that the limits allow could come to
// this instance. known is false if permits come by news only, or at an instant that is not known.
func (g *Gate) etaLocked(n, before int64, c queue.Class, loans bool) (at int64, known bool) {
	p, l, as := g.planLocked(), &g.mu.ledger, g.presentLocked()
	before = queue.Sum(before, l.debt)
	from, all := g.opensLocked(), queue.Sum(queue.Sum(before, n), as.Taken)
	at = max(from, l.spentUntil(all))
	if g.onlyNewsLocked(all) {
		return clock.Forever, false
	}
	if b := l.inFlight(); b != nil && !b.couldHave(all) {
		return at, false // nobody knows when calls end
	}
	if loans {
		at = l.eta(queue.Sum(before, as.Taken), n, at, func(w quota.Window) (total, later int64) {
			limit := l.limit(w)
			return limit.Limit, limit.Later
		})
		return at, at != clock.Forever
	}
	from = max(from, p.Begins)
	if _, lacks := l.SpentUntil(all); !lacks && !g.comesLocked(c) && g.segment.Load().left.Load() != sealed {
		at = max(at, g.mu.edge) // who is not served now waits for it
	}
	due := from                                // by the shares
	known = p.Begins > 0 && len(p.Limits) == 0 // the policy is not in force yet
	for s := range l.bounded {
		t, ok := g.etaOfLocked(s, n, before, from, c)
		if due, known = max(due, t), ok; !ok {
			break
		}
	}
	if !known { // no share is known: a later call knows more
		due = max(due, p.Until)
	}
	at = max(at, due)
	return at, known && at != clock.Forever
}

// onlyNewsLocked reports whether n permits come by news only: the policy is paused, or a limit is 0.
func (g *Gate) onlyNewsLocked(n int64) bool {
	for s := range g.mu.ledger.bounded {
		if g.planLocked().LimitOf(s.Window).Later <= 0 && n > s.Bound-s.Used {
			return true
		}
	}
	return false
}

// etaOfLocked is the same for the own share of one limit, from an instant on.
func (g *Gate) etaOfLocked(s *span, n, before, from int64, c queue.Class) (at int64, known bool) {
	p, as := g.planLocked(), g.presentLocked()
	later, burst := g.laterLocked(s.Window)
	if p.Shape.Any() {
		at = s.by.When(&s.Count, queue.Sum(before, n), shape.Present{Now: from, Edge: as.Edge, Taken: as.Taken})
		if later > s.Bound || burst > p.LimitOf(s.Window).Burst { // it grows: a later call knows more
			at = min(at, max(from, p.Until))
		}
		if p.Shape.Unaligned {
			return at, at != clock.Forever
		}
	}
	in := span{Count: shape.Count{Window: s.Window, Bound: s.Bound, Used: s.Used + as.Taken}, by: s.by} // the window that runs at from
	if w := quota.WindowAt(s.Window.Length, from+p.Offset); w.Index > s.Window.Index {
		p = g.foreseeLocked(p.StartOf(w))
		in = span{Count: shape.Count{Window: w, Bound: p.LimitOf(w).Permits}}
	}
	w, _ := after(in.Window, 1)
	next := g.foreseeLocked(p.StartOf(w))
	r := room{now: in.Bound, next: next.LimitOf(w).Permits}
	r.later = max(r.next, later)
	ends, issued, known := r.windows(in.Used, before, n)
	w, counts := after(in.Window, ends)
	from = max(at, from)
	switch {
	case ends == 0:
		return g.arrivesLocked(p, in, issued, n, from, c), known
	case !counts:
		return clock.Forever, false
	case ends == 1:
		return g.arrivesLocked(next, span{Count: shape.Count{Window: w, Bound: r.next}}, issued, n, from, c), known
	}
	in = span{Count: shape.Count{Window: w, Bound: r.later}} // its guard may be shorter, as views are forgotten
	return min(g.arrivesLocked(next, in, issued, n, from, c), g.arrivesLocked(g.farLocked(), in, issued, n, from, c)), known
}

// arrivesLocked returns the instant, not before from, at which so many permits of a window are issued at the
// earliest by the plan p, the last n of them to a call of class c.
func (g *Gate) arrivesLocked(p *plans.Plan, in span, permits, n, from int64, c queue.Class) int64 {
	if in.Bound == shape.Unbounded { // the limit has ceased to bind, and its guard with it
		return max(from, p.StartOf(in.Window))
	}
	at := max(from, p.OpensAfter(in.Window.Start()))
	if in.Bound <= 0 {
		return at
	}
	if p.Pacing.Even {
		together := g.togetherLocked(p, n, in.Bound, at) // where the gate opens late
		at = max(at, in.by.Due(&in.Count, p.Terms(in.Window, at, false), permits, together))
	}
	if c != queue.Critical {
		at = max(at, in.keptUntil(permits-in.Used, p, at))
	}
	return at
}

// togetherLocked returns how many permits pacing leaves together at most at an instant at which the plan p
// opens, so many being those of one window: see ledger.pace.
func (g *Gate) togetherLocked(p *plans.Plan, n, bound, at int64) int64 {
	wanted := g.mu.ledger.wanted
	if len(p.Limits) > 0 {
		wanted.Roll(quota.WindowAt(p.Limits[0].Window.Length, at+p.Offset))
	}
	return max(n, g.headLocked(), wanted.Most(), min(g.mu.ledger.debt, bound/shape.DebtParts))
}

// beforeLocked returns how many permits are surely issued to those that wait before n are to a
// newcomer of class c that waits until the monotonic instant until.
func (g *Gate) beforeLocked(n, until int64, c queue.Class) (permits int64) {
	return g.mu.queue.Before(n, until, c, g.mayPassLocked())
}

// inTimeLocked reports whether a newcomer may be served by its deadline. If so it is to be queued. While
// nobody knows the future, nobody is late.
func (g *Gate) inTimeLocked(n, deadline int64, c queue.Class) bool {
	if !g.foreseesLocked() {
		return true
	}
	at, _ := g.etaLocked(n, g.beforeLocked(n, deadline, c), c, g.mayBorrowLocked())
	return at <= deadline
}

// foreseesLocked reports whether anything is known of the future: there is a plan, and nobody was served that may give the
// permits back at once.
func (g *Gate) foreseesLocked() bool { return g.planLocked().Known && g.mu.unsure == 0 }

// Late reports whether a newcomer of class c that wants n permits is surely not served by its deadline, if there is no
// news, even if nobody waits before it. It is for calls that wait elsewhere first, as for a key.
func (g *Gate) Late(at clock.Instant, n, deadline int64, c queue.Class) bool {
	g.mu.Lock()
	defer g.unlock()
	if s := g.currentLocked(at); g.mu.closed || s.Shadow || s.LeftFor(c) >= n || g.heldForLocked(c) >= n || !g.foreseesLocked() {
		return false
	}
	eta, _ := g.etaLocked(n, 0, c, g.mayBorrowLocked())
	return eta > deadline
}

// short is the length of a queue that is cheap to go along for each debt, and where each plan begins.
const short = 64

// refuseLateLocked refuses those that wait and are not served in time any more, or whose deadline has come: nobody waits
// behind these.
func (g *Gate) refuseLateLocked() {
	ahead, loans, passes := g.mu.queue.Nobody(), g.mayBorrowLocked(), g.mayPassLocked()
	g.refuseLocked(queue.Limited, func(w *queue.Waiter) bool {
		at, _ := g.etaLocked(w.N(), ahead.Before(w.N(), w.Deadline(), passes), w.Class(), loans)
		if at > w.Deadline() || w.Deadline() <= g.mu.last.Mono {
			return true
		}
		ahead.Join(w)
		return false
	})
}

// whenLocked returns when a newcomer is worth trying again; known is false if that is not known. Where
// others may lend, that is when permits of the own share are due, at the end of the window that lendAgain names,
// or when even that is too soon.
func (g *Gate) whenLocked(n int64, c queue.Class) (at int64, known bool) {
	if !g.planLocked().Known {
		return g.segment.Load().until, false
	}
	before := g.beforeLocked(n, clock.Forever, c)
	if !g.mayBorrowLocked() {
		return g.etaLocked(n, before, c, false)
	}
	next := g.planLocked().OpensAfter(g.mu.ledger.lendAgain(queue.Sum(queue.Sum(before, n), g.takenLocked()), g.mu.borrower.guest.InVain()))
	own, known := g.etaLocked(n, before, c, false)
	if !known {
		own = clock.Forever
	}
	least, _ := g.etaLocked(n, before, c, true)
	return retry(next, own, least), least != clock.Forever
}
