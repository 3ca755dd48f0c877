package window

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// This file joins package lending to the gate: what callers want, what is left, and what to ask
// others for. The asks of others are in host.go; permits lent and borrowed are booked in loan.go.

const (
	milli = float64(time.Millisecond)
	// lookEvery is the time between two looks of a gate that may lack permits soon, and
	// lookSeldom of one that has enough. A gate is quietAfter without calls.
	lookEvery, lookSeldom = 5 * time.Millisecond, 50 * time.Millisecond
	// lookAgain is the time between two looks of a key for which nothing is asked, while callers wait:
	// there may be thousands of such keys.
	lookAgain  = 20 * time.Millisecond
	quietAfter = 100 // in milliseconds
)

// borrower is what a gate knows of its callers and of others' asks.
type borrower struct {
	calls       lending.Flow
	of          [Classes]lending.Flow // critical and sheddable ones of them
	small       *lending.Flow         // those that are not large; nil: all of them
	large       int64                 // permits of large calls since the beginning
	largeIssued int64                 // to large calls in the window
	servedIn    int64                 // the index of the window in which a large call was last served
	left        int64                 // permits that small calls have left to large ones, which have not had them yet
	stood       int64                 // the index of the window of which others were asked to leave a part to a large call
	guest       lending.Guest
	window      quota.Window // of the shortest limit
	owners      int          // that share it
	asked       asks
	joined      bool    // guests were lent their part of the window at its edge
	served      float64 // when in the window asks that stand were served, in milliseconds
	look        int64   // when Look is called next; Forever: when Arm says so
	awaited     int     // callers that wait for a first permit: see Await
	lackedAt    int64   // when in the window a call was first refused or had to wait; Forever: none
	LendingCounts
}

// LendingCounts are permits and asks since the beginning.
type LendingCounts struct {
	Lent, Borrowed int64 // permits
	Asks           int64
	Fruitless      int64 // windows in which this instance asked and borrowed nothing
	// FirstLoans are the windows in which permits were borrowed after a call was refused or
	// had to wait. FirstLoanTime sums the times from the first such call to these permits.
	FirstLoans    int64
	FirstLoanTime time.Duration
	LastLoans     Loans // of the window before
}

// Asking is what this instance asks others for.
type Asking struct {
	lending.Ask
	Self    string
	Windows []quota.Window
	Fair    float64
	Rules   lending.Rules
	Debtors []lending.Debtor
	Salt    uint64
	// Hosts is how many others have shares.
	Hosts int
}

// Requests returns whom of the others to ask for what.
func (a *Asking) Requests(peers []lending.Peer) []lending.Request {
	if a.Edge > 0 {
		return []lending.Request{a.Rules.Standing(a.Ask, a.Salt, a.Hosts)}
	}
	return a.Rules.Requests(a.Ask, a.Fair, a.Windows[0].Index, a.Salt, peers, a.Debtors)
}

// scene is the shortest window, in milliseconds.
type scene struct {
	*span
	limit         *Limit
	instances     int // newcomers included
	rules         lending.Rules
	phase, length float64
}

// fair is the total divided equally.
func (s *scene) fair() float64 { return float64(s.limit.Limit) / float64(max(1, s.instances)) }

// hosts is how many others have shares.
func (s *scene) hosts() int {
	if s.own() > 0 {
		return s.limit.Instances - 1
	}
	return s.limit.Instances
}

// alone reports whether there is nobody to ask: no other has a share, or was lent anything.
func (s *scene) alone() bool { return s.limit.Instances == 1 && s.own() > 0 && s.lent == 0 }

// roomLeftLocked returns how many permits the windows that run leave.
func (g *Gate) roomLeftLocked() int64 {
	left, taken := Unbounded, g.takenLocked()
	for s := range g.mu.ledger.bounded {
		left = min(left, s.bound-s.used-taken)
	}
	return left
}

// noteCallsLocked brings the calls to the end of the segment that has ended.
func (g *Gate) noteCallsLocked(at int64) {
	b := &g.mu.borrower
	calls := g.mu.ledger.issued - g.mu.ledger.paid + g.takenLocked() + g.Refused() + g.mu.queue.permits()
	b.calls.Look(float64(at)/milli, float64(calls))
	if g.mu.queue.length() > 0 {
		b.calls.Waits()
	}
	if b.small != nil {
		if b.small.Look(float64(at)/milli, float64(calls-b.large)); g.mu.queue.permits() > g.mu.queue.large(Sheddable) {
			b.small.Waits()
		}
	}
	for _, c := range []Class{Critical, Sheddable} {
		if n := g.mu.queue.lanes[c].permits + g.Called(c); n > 0 { // of calls, or of those that wait
			b.of[c].Look(float64(at)/milli, float64(n))
		}
	}
}

// noteWindowLocked notes that another window of the shortest limit runs.
func (g *Gate) noteWindowLocked() {
	b, a, ended := &g.mu.borrower, g.mu.ledger.shortest(), g.mu.ledger.ended
	if a == nil || a.window == b.window {
		return
	}
	g.mu.claim.since, b.largeIssued = g.mu.last, 0
	g.mu.claim.edges++
	if a.window.Length != b.window.Length {
		b.calls, b.small, b.large, b.guest, b.of = lending.Flow{}, nil, 0, lending.Guest{}, [Classes]lending.Flow{}
		g.noteCallsLocked(g.mu.last) // calls are counted from here on
	}
	if b.guest.Asked() && ended.Borrowed == 0 {
		b.Fruitless++
	}
	limit := g.mu.ledger.limit(a.window)
	if limit.Instances != b.owners { // others may have more than before
		b.owners, b.guest = limit.Instances, lending.Guest{}
	}
	came := ended.Borrowed
	if w := g.mu.queue.head(); w != nil && w.large { // others' large calls came first: not that nobody had any
		came = max(came, ended.Lent)
	}
	b.guest.Begin(came)
	b.LastLoans = ended.net()
	if a.window.Length != b.window.Length || a.window.Index != b.window.Index+1 { // a window has passed unseen
		b.LastLoans = Loans{}
	}
	if b.window.Length != 0 { // else calls that were refused before anything was known count yet
		b.lackedAt = Forever
	}
	for _, f := range []*lending.Flow{&b.calls, &b.of[Critical], &b.of[Sheddable], b.small} {
		if f == nil {
			continue
		}
		f.Begin(a.window.Index, float64(a.window.Start()-g.mu.ledger.plan.Offset)/milli, float64(a.window.Length)/milli)
	}
	g.leaveLocked(float64(a.window.Length)/milli, limit.Limit)
	b.window = a.window
	g.endAskedLocked()
}

// Borrows reports whether permits can be borrowed now.
func (g *Gate) Borrows() bool {
	g.mu.Lock()
	defer g.unlock()
	return g.borrowsLocked()
}

// borrowsLocked reports whether permits can be borrowed now.
func (g *Gate) borrowsLocked() bool {
	s, ok := g.sceneLocked()
	return ok && g.planLocked().Lending.Borrows && !s.alone()
}

// sceneLocked returns the window in which permits are lent and borrowed now; ok is false if
// none are.
func (g *Gate) sceneLocked() (s scene, ok bool) {
	l := &g.mu.ledger
	if g.mu.closed || g.mu.stale || l.plan.Shut || !l.lendable() {
		return s, false
	}
	s.span = l.shortest()
	s.limit = l.limit(s.window)
	s.instances = max(s.limit.Instances, l.plan.Lending.Instances)
	s.rules = lending.RulesOf(s.instances, s.limit.Instances)
	s.phase = float64(g.mu.last+l.plan.Offset-s.window.Start()) / milli
	s.length = float64(s.window.Length) / milli
	return s, true
}

// armLocked has Look called at an instant, or before.
func (g *Gate) armLocked(at int64) {
	b, l := &g.mu.borrower, &g.planLocked().Lending
	if (l.Borrows || l.Lends) && at < b.look {
		b.look = at
		g.Arm(at)
	}
}

// lackLocked has Look called soon, since permits are wanted.
func (g *Gate) lackLocked() {
	if g.planLocked().Lending.Borrows {
		g.armLocked(g.mu.last)
	}
}

// noteLackLocked notes that a call is refused or has to wait now.
func (g *Gate) noteLackLocked() {
	g.mu.borrower.lackedAt = min(g.mu.borrower.lackedAt, g.mu.last)
	g.lackLocked()
}

// Await says that a caller waits for a first permit (1), or does no longer (-1): as long as
// this instance has no share it borrows one.
func (g *Gate) Await(at clock.Instant, change int) {
	g.mu.Lock()
	defer g.unlock()
	if g.mu.borrower.awaited += change; change > 0 {
		g.currentLocked(at)
		g.lackLocked()
	}
}

// first reports whether the first permit is wanted of an instance without a share: a caller
// waits for it, or was refused.
func (b *borrower) first(s *span) bool {
	return s != nil && s.bound == 0 && (b.awaited > 0 || b.lackedAt != Forever && !b.guest.Asked())
}

// Look returns what to ask others for, nil for nothing, and when to look again: Forever if
// Arm says when. It serves asks that stand.
func (g *Gate) Look(at clock.Instant) (ask *Asking, next int64) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	b, l, next := &g.mu.borrower, &g.mu.ledger, Forever
	b.look = Forever
	s, ok := g.sceneLocked()
	if !ok {
		return nil, Forever
	}
	g.noteCallsLocked(g.mu.last)
	if l.lends() {
		next = g.serveAskedLocked(at, s)
	}
	if l.plan.Lending.Borrows {
		var soon int64
		ask, soon = g.askLocked(s)
		next = min(next, soon)
	}
	b.look = next
	return ask, next
}

// askLocked returns what to ask for now, and when to look again.
func (g *Gate) askLocked(s scene) (ask *Asking, next int64) {
	b, l := &g.mu.borrower, &g.mu.ledger
	h := lending.Has{
		Phase: s.phase, Length: s.length, Rest: s.length - s.phase - float64(l.plan.Guard)/milli,
		Waiting: addCapped(g.mu.queue.permits(), l.debt), Issued: s.used - s.lent + g.takenLocked(), Borrowed: s.borrowed, Own: s.own(), New: s.own() == 0,
		Fair: s.fair(), Total: s.limit.Limit,
	}
	h.Left, h.Kept = g.roomLeftLocked(), g.segment.Load().floor
	if b.first(s.span) {
		h.Waiting++ // one permit says it: who waits for the first may never take more
	}
	if s.alone() {
		return nil, Forever
	}
	late := l.debt > 0 && !g.wantedLocked()
	if at := l.windows.Late(); late && g.mu.last < at {
		return nil, at
	}
	if n := g.standsLocked(s); n > 0 && l.debt == 0 {
		b.stood = s.window.Index + 1
		return &Asking{
			Ask: lending.Ask{Permits: n, Edge: n}, Self: l.plan.Lending.Self, Windows: l.windows.Running, Fair: h.Fair, Rules: s.rules,
			Hosts: s.hosts(), Salt: l.plan.Lending.Hash,
		}, g.mu.last + int64(lookEvery)
	}
	if a, ok := b.guest.Ask(&b.calls, s.rules, h); ok {
		b.Asks++
		lanes := &g.mu.queue.lanes
		a.Divide(h, &b.of[Critical], &b.of[Sheddable], lanes[Critical].permits, addCapped(lanes[Sheddable].permits, l.debt))
		if large := g.mu.queue.large(Sheddable); large > 0 {
			a.PoorFor(h, g.smallLocked(), g.mu.queue.permits()-large)
			b.guest.Gather(&a)
		}
		ask = &Asking{
			Ask: a, Self: l.plan.Lending.Self, Windows: l.windows.Running, Fair: h.Fair, Rules: s.rules, Debtors: l.debtors(),
			Salt: l.plan.Lending.Hash + uint64(b.Asks)*0x9e3779b97f4a7c15,
		}
	}
	if b.calls.Silent() > quietAfter && h.Waiting == 0 {
		return ask, Forever
	}
	if late { // little is left of the window
		return ask, g.mu.last + int64(lookEvery)
	}
	wait := b.calls.Enough(h) / 2
	return ask, g.mu.last + min(max(int64(wait*milli), int64(lookEvery)), int64(lookSeldom))
}

// wantedLocked reports whether callers want permits in this window: some wait, or were refused.
func (g *Gate) wantedLocked() bool {
	b := &g.mu.borrower
	return g.mu.queue.length() > 0 || b.awaited > 0 || b.lackedAt != Forever
}

// lackForDebtLocked has Look called for a debt: soon if callers want permits, or else late in
// the window, so that a debt takes nothing that others may want yet.
func (g *Gate) lackForDebtLocked() {
	at := g.mu.last
	if _, ok := g.sceneLocked(); ok && !g.wantedLocked() {
		at = max(at, g.mu.ledger.windows.Late())
	}
	if g.planLocked().Lending.Borrows {
		g.armLocked(at)
	}
}

// roomLocked returns how many permits one request can have with what can be borrowed; 0 if
// nothing can.
func (g *Gate) roomLocked() int64 {
	p := g.planLocked()
	if !p.Lending.Borrows || len(p.Limits) == 0 {
		return 0
	}
	return p.roomIn(func(l *Limit) int64 {
		if l.Permits == Unbounded {
			return math.MaxInt64
		}
		return l.Limit
	})
}
