package window

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// keyTrade is the Trade of a key, with what its account notes for it. An account has one once it has lacked permits,
// callers wait for them, or it was asked for some. So a key that never lacked any, and was never asked for some, takes
// no memory for it, and its calls do nothing for it.
type keyTrade struct {
	Trade
	before  int64                // permits that callers have used or were refused in earlier windows: see calledIn
	refused int64                // permits refused in this window
	called  [queue.Classes]int64 // permits used or refused, by class, since windows have this length; Default is not counted
	low     int64                // when fewer permits are left, Low says to look whether to ask others; 0: it never does
	looked  int64                // monotonic instant of the latest look whether to ask others
	look    int64                // monotonic instant of the next one; clock.Forever if it comes when callers lack permits
	// soonest is how long after the latest look the next one comes at the soonest: lookEvery, or lookAgain if callers
	// lacked permits then, and others were asked for none.
	soonest time.Duration
}

// tradeAt returns the account's trade, as the method begun does. In the trade it also notes the calls that have come by
// the monotonic instant now, and the callers c that wait.
func (a *Account) tradeAt(now int64, c Callers) *keyTrade {
	t := a.begun()
	if t != nil {
		t.take(float64(now)/milli, a.shortest(), c)
	}
	return t
}

// begun returns the account's trade, and makes one if it has none. It is nil where nothing is counted: before the first
// Adopt, without a window that runs, and while corrected time is set back. A new one knows how many permits callers have
// used in this window and in the one before, but not when.
func (a *Account) begun() *keyTrade {
	s := a.shortest()
	if s == nil || !slices.Contains(a.windows.Running, s.Window) {
		return nil
	}
	if a.trade == nil {
		start, length := a.milli(s.Window.Start()), float64(s.Window.Length)/milli
		t := &keyTrade{before: max(0, a.before), look: clock.Forever, soonest: lookEvery}
		t.calls.Look(start-length, 0)
		t.calls.Begin(s.Window.Index-1, start-length, length)
		t.calls.Look(start, float64(t.before))
		t.enter(a, s.Window, Loans{})
		a.trade = t
	}
	return a.trade
}

// take notes the calls that have come by the monotonic instant at, in milliseconds, and the callers c that wait then. s is
// the shortest window.
func (t *keyTrade) take(at float64, s *span, c Callers) {
	t.Trade.take(at, came{
		all: t.calledIn(s, c.Waiting), large: t.claim.larges + c.Large, critical: t.called[queue.Critical] + c.Critical, sheddable: t.called[queue.Sheddable] + c.Sheddable,
	}, c)
}

// calledIn returns for how many permits calls have come: those that were issued since the beginning of the window before
// the one in which the trade began, those that were refused since the trade began, and those for which callers wait in
// the key's line now (waiting). Permits that are reserved count once they are issued. s is the shortest window. When a
// window of another length becomes the shortest one, the result jumps, since s then counts other calls. So begin has
// t.calls start anew, as if t.before permits had come by that window's start: then t.calls counts the calls of that window,
// and no earlier ones.
func (t *keyTrade) calledIn(s *span, waiting int64) int64 {
	return t.before + s.called() + t.refused + waiting
}

// leave notes the calls of the shortest window, before its span s moves on to the window next.
func (t *keyTrade) leave(a *Account, s *span, next quota.Window) {
	if t == nil {
		return
	}
	if s.Window == t.window {
		t.take(a.milli(s.Window.End()), s, Callers{})
		t.before += max(0, s.called()) + t.refused
	}
	t.begin(a, next, Loans{Borrowed: s.borrowed, Lent: s.lent})
}

// begin makes next the window of the trade. loans are those of the window before it.
func (t *keyTrade) begin(a *Account, next quota.Window, loans Loans) {
	if t.refused, t.low = 0, 0; next.Length != t.window.Length {
		t.restart()
		t.called = [queue.Classes]int64{}
		t.Trade.take(a.milli(next.Start()), came{all: t.before, large: t.claim.larges}, Callers{}) // calls are counted from here on
	}
	t.enter(a, next, loans)
}

// follow makes the account's shortest window that of the trade, if it is another one: the limit by whose windows the trade
// went was removed, or there is a shorter one. The window may have begun long before. It ends reservations that this window
// cannot hold (claim.lapse).
func (t *keyTrade) follow(a *Account) {
	s := a.shortest()
	if t == nil || s == nil {
		return
	}
	if s.Window != t.window {
		t.begin(a, s.Window, Loans{}) // the calls of this window then count as if they had come evenly since its start
		t.edge = false                // no window begins now
	}
	if t.pends() {
		a.reserved -= t.claim.lapse(s.Window, a.Own())
	}
}

// ended is claim.ended, for an account that may have no trade.
func (t *keyTrade) ended(w *queue.Waiter, n int64, issued bool) (reserved int64) {
	if t == nil {
		return n
	}
	return t.claim.ended(w, n, issued, t.window)
}

// ServedLarge reports whether the key's line has served the call of the waiter w as a large one, and whether its permits
// are issued is still open: Confirm and Unreserve end that. w may be nil.
func (a *Account) ServedLarge(w *queue.Waiter) bool {
	return a.trade.pends() && a.trade.claim.pendingOf(w) >= 0
}

// pends reports whether a large call waits for the provider's permits, with those of the key reserved or lapsed.
func (t *keyTrade) pends() bool { return t != nil && len(t.claim.pending) > 0 }

// Refused notes that n permits were refused to calls of class c. large says that they were for a large one. With n = 0
// it only sees to it that calls are counted from here on.
func (a *Account) Refused(n int64, c queue.Class, large bool) {
	if t := a.begun(); t != nil {
		t.refused = min(queue.Sum(t.refused, n), quota.MaxPermits)
		a.Called(n, c, large)
	}
}

// Called notes that calls of class c got n permits, which Charge counts, or were refused them. large says that there was
// one call, a large one, and that it was refused, or that the key's line had served it (ServedLarge). A large call that
// got its permits otherwise is noted like a small one.
func (a *Account) Called(n int64, c queue.Class, large bool) {
	t := a.trade
	if t == nil {
		return
	}
	if c != queue.Default {
		t.called[c] = queue.Sum(t.called[c], n)
	}
	if large {
		t.claim.larges = queue.Sum(t.claim.larges, n)
	}
}

// MostSmall returns the most permits that a call may want without being large. In each window whose limit binds the key
// it takes the larger of two numbers: this instance's share, and an equal part of the total. It returns the least of
// these. Long limits do not count, and without a short one the result is shape.Unbounded. total returns how many permits
// all instances may issue in a window, or 0 for not known: there the share counts alone.
func (a *Account) MostSmall(total func(quota.Window) int64) int64 {
	most := shape.Unbounded
	for s := range a.bounded {
		each := int64(max(1, a.windows.Lending.Instances))
		most = min(most, max(s.own(), (total(s.Window)+each-1)/each))
	}
	return most
}

// Line returns the key's line at the monotonic instant now. q has its callers, and is nil if there are none. f is the
// key's fleet in the window Shortest; with the zero Fleet nobody passes. Line begins the key's trade if permits can be
// borrowed, the key's total is known, and its calls are counted (begun). Otherwise it ends the claim.
func (a *Account) Line(q *queue.Queue, f plans.Fleet, now int64) Line {
	l := Line{queue: q, scene: scene{account: a}, now: now, held: a.Left(), taken: a.reserved, reserves: true}
	var t *keyTrade
	if a.windows != nil && a.windows.Lending.Borrows && f.Total > 0 {
		t = a.begun()
	}
	if t == nil {
		if a.trade != nil { // no loan can be counted on now, so nothing is claimed
			a.trade.claim.head(nil, now)
			a.trade.claim.shut = true // until the line is served with a trade again
		}
		return l
	}
	c := CallersOf(q)
	if t.claim.small != nil || c.Large > 0 { // once a large call has come, the line forecasts what small ones will want
		t.take(float64(now)/milli, a.shortest(), c)
	}
	if l.trade = &t.Trade; a.shortest().Bound == shape.Unbounded {
		return l
	}
	if l.passes = passAll; !a.windows.Shut && !a.early {
		l.scene, l.lends = a.scene(f, a.windows.Lending.Hash, now), true
		l.borrows = !l.alone()
	}
	return l
}

// Again returns the monotonic instant at which to serve the key's line again, as the latest Line.Again has said.
func (a *Account) Again() int64 {
	if a.trade == nil || a.trade.claim.first == nil {
		return clock.Forever
	}
	return a.trade.claim.again
}

// LineLeft notes that a caller has left q, the callers of the key's line, by the monotonic instant now. A claim that Line
// has ended does not begin again by that.
func (a *Account) LineLeft(q *queue.Queue, now int64) {
	if t := a.trade; t != nil && t.claim.first != nil {
		t.claim.head(q, now)
	}
}

// LookSoon returns the monotonic instant at which to look whether to ask others, for a key that lacks permits now or
// will soon. sooner is false if a look was due by then anyway, or where nothing is counted. If it is true, LookSoon has
// noted the instant, and the caller sees to it that somebody looks then (Ask, and Looked after it).
func (a *Account) LookSoon(now int64) (at int64, sooner bool) {
	t := a.begun()
	if t == nil {
		return 0, false
	}
	if at = max(now, t.looked+int64(t.soonest)); a.windows.Shut {
		at = max(at, a.windows.Opens(now))
	}
	if sooner = at < t.look; sooner {
		t.look = at
	}
	return at, sooner
}

// Looked notes that at the monotonic instant now somebody looked whether to ask others, and when the next look is.
// clock.Forever says that no instant is set: the next look comes once callers lack permits.
func (a *Account) Looked(now, next int64) {
	if t := a.trade; t != nil {
		t.looked, t.look = now, next
	}
}

// Wanted reports whether permits were refused in the shortest window.
func (a *Account) Wanted() bool { return a.trade != nil && a.trade.refused > 0 }

// asked reports whether a loan may be under way, or may still be made, that would be lost with the account. running are
// the windows that run. There are two cases. Either this instance has asked others for permits of the trade's window, and
// that runs still. Or a large call of a guest wants permits at the beginning of the running window of the same length, or
// of a later one. Other asks of guests do not count. Nor does what others were asked to leave to a large call of this
// instance (claim.stood): an account for which a call waits is not forgotten, and once the call has gone, nobody needs
// those permits.
func (a *Account) asked(running []quota.Window) bool {
	t := a.trade
	return t != nil && slices.ContainsFunc(running, func(w quota.Window) bool {
		return w == t.window && t.guest.Asked() || w.Length == t.window.Length && t.guests.standFrom(w)
	})
}

// Low reports whether callers will soon lack permits, by their rate at the latest look.
func (a *Account) Low() bool {
	return a.trade != nil && a.trade.low > 0 && a.LeftToBorrowers() < a.trade.low
}

// Ask returns what to ask others for now, nil for nothing, and the monotonic instant at which to call it again.
// clock.Forever says that no instant is set: it is to be called once callers lack permits.
func (a *Account) Ask(f plans.Fleet, c Callers, now int64) (ask *Asking, next int64) {
	t := a.tradeAt(now, c)
	if t == nil {
		return nil, clock.Forever
	}
	if at := a.asksFrom(c.Waiting > 0 || a.Wanted()); now < at {
		return nil, at
	}
	s := a.scene(f, a.windows.Lending.Hash, now)
	h := s.has(stock{left: a.leftOfShares() - a.reserved, issued: s.issued(a.reserved), debt: a.debt}, c)
	least := lookAgain
	if what, ok := t.ask(&s, h, c, a.debt); ok {
		ask, least = s.asking(what, t.salt(s.hash)), lookEvery // time for an answer
	}
	if t.soonest = lookEvery; c.Waiting > 0 || a.Wanted() {
		t.soonest = least
	}
	t.low = t.calls.Lead()
	enough := t.calls.Enough(h)
	switch {
	case t.calls.Seen() < float64(t.calledIn(s.span, c.Waiting)): // some came at the instant of the latest look, and are not seen yet
		return ask, now + int64(lookEvery)
	case h.Waiting > 0 || t.calls.Silent() <= quietAfter && (enough < h.Rest || t.guest.Busy()):
		return ask, now + min(max(int64(enough/2*milli), int64(least)), int64(lookSeldom))
	}
	return ask, clock.Forever
}

// Lend issues permits for a guest that needs some. They count here as if callers had them, but not in the long
// limits: of those the guest takes permits from etcd itself. hash is that of this instance for the key. from is the
// corrected wall time at which the guest begins to have a share of the key.
//
// told is the sum of all permits that were lent to the guest in the windows that run, or 0 if none are lent now. If
// the ask stays open, and some may be lent later in the window, next is the monotonic instant at which ServeAsked is due. In
// all other cases it is clock.Forever. docs/proof/protocol.md, section 15.
func (a *Account) Lend(guest string, need protocol.Need, f plans.Fleet, c Callers, hash uint64, from, now int64) (told, next int64) {
	t := a.tradeAt(now, c)
	if t == nil || a.debt > 0 {
		return 0, clock.Forever
	}
	s := a.scene(f, hash, now)
	return a.lendFor(&s, c, s.asked(guest, need, from))
}

// lendFor is Lend for an ask in a scene.
func (a *Account) lendFor(s *scene, c Callers, ask asked) (told, next int64) {
	n := max(0, a.trade.lend(s, stock{left: a.LeftToBorrowers(), issued: a.trade.ownIssued(s, a.reserved), due: s.part()}, c, &ask))
	if next = clock.Forever; a.trade.keepRest(s, ask, n) {
		next = s.releases()
	}
	if n > 0 {
		told = a.lend(ask.guest, n)
	}
	return told, next
}

// AsksOpen reports whether ServeAsked may lend anything in the window that runs.
func (a *Account) AsksOpen() bool {
	return a.trade != nil && slices.ContainsFunc(a.trade.guests, func(a asked) bool { return a.permits > 0 })
}

// ServeAsked lends more to guests whose asks are open, to two of them at a time, if hosts have released reserves
// (lending.Releases) in this window since it did that last. It leaves out guests for which lends is false: nothing is
// lent to them. It tells each guest to which it lends some the sum of all that was lent to it in the windows that run.
// It returns the monotonic instant at which it is due next; clock.Forever if that is not in this window.
func (a *Account) ServeAsked(f plans.Fleet, c Callers, hash uint64, now int64, lends func(guest string) bool, tell func(guest string, told int64)) (next int64) {
	t := a.tradeAt(now, c)
	if t == nil || a.debt > 0 {
		return clock.Forever
	}
	s := a.scene(f, hash, now)
	return t.serve(&s, lends, func(ask asked) {
		if told, _ := a.lendFor(&s, c, ask); told > 0 {
			tell(ask.guest, told)
		}
	})
}

// AtEdge reports whether LendAtEdge is due: a window has begun, and guests that have asked may be lent some before own
// callers take all.
func (a *Account) AtEdge() bool { return a.trade != nil && a.trade.edge }

// LendAtEdge lends to guests that have asked, if callers wait here, or if a large call of a guest stands. Otherwise it
// lends nothing: nobody takes all at once, so guests ask in time. It is called where AtEdge is true. If it lends, it
// first forgets the asks of guests for which lends is false. It tells each guest to which it lends some, in the window's
// order (Before), the sum of all that was lent to it in the windows that run.
func (a *Account) LendAtEdge(f plans.Fleet, c Callers, hash uint64, now int64, lends func(guest string) bool, tell func(guest string, told int64)) {
	t := a.tradeAt(now, c)
	if t == nil {
		return
	}
	if t.edge = false; a.debt > 0 || c.Waiting == 0 && !t.guests.stand(t.window) {
		return
	}
	s := a.scene(f, hash, now)
	t.lendAtEdge(&s, c, lends,
		func() (n, kept int64) { return a.LeftToBorrowers(), 0 },
		func(guest string, n int64) { tell(guest, a.lend(guest, n)) })
}
