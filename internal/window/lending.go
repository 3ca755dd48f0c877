package window

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// This file joins package lending to the gate: what callers want, what is left, and the asks
// that stand. Permits lent and borrowed are booked in loan.go.

const (
	milli = float64(time.Millisecond)
	// lookEvery is the time between two looks of a gate that may lack permits soon, and
	// lookSeldom of one that has enough. A gate is quietAfter without calls.
	lookEvery, lookSeldom = 5 * time.Millisecond, 50 * time.Millisecond
	quietAfter            = 100 // in milliseconds
	// mostStanding bounds the asks that stand.
	mostStanding = 1024
)

// borrower is what a gate knows of its callers and of others' asks.
type borrower struct {
	calls    lending.Flow
	of       [Classes]lending.Flow // critical and sheddable ones of them
	guest    lending.Guest
	window   quota.Window // of the shortest limit
	owners   int          // that share it
	lent     int64        // borrowed in it
	standing []standing
	joiners  []joiner
	joined   quota.Window // the latest in which joiners were lent their part
	served   int          // how often asks that stand were looked at in this window
	look     int64        // when Look is called next; Forever: when Arm says so
	awaited  int          // callers that wait for a first permit: see Await
	hoping   bool         // callers wait that only others' permits may serve in time
	lack     lack
	partners partners // of the window
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

// Loans are the permits that were not with their owners in one window of the shortest limit.
// An instance that lent some and borrowed some has only the difference: so a permit that is lent
// on, or comes back, is counted once in the sum of all, and not more permits than there are.
type Loans struct {
	Borrowed int64 // permits
	Hosts    int   // instances that lent them
	Lent     int64
	Guests   int // instances that borrowed them
}

// partners are the loans of a window by instance.
type partners struct {
	hosts, guests map[string]int64
}

// note adds permits of a partner.
func note(all *map[string]int64, who string, n int64) {
	if *all == nil {
		*all = map[string]int64{}
	}
	(*all)[who] += n
}

// end returns the loans, and begins another window.
func (p *partners) end() (l Loans) {
	l.Hosts, l.Guests = len(p.hosts), len(p.guests)
	for _, n := range p.hosts {
		l.Borrowed += n
	}
	for _, n := range p.guests {
		l.Lent += n
	}
	if l.Borrowed, l.Lent = max(0, l.Borrowed-l.Lent), max(0, l.Lent-l.Borrowed); l.Borrowed == 0 {
		l.Hosts = 0
	}
	if l.Lent == 0 {
		l.Guests = 0
	}
	clear(p.hosts)
	clear(p.guests)
	return l
}

// lack is when in a window a call was first refused or had to wait.
type lack struct {
	at   int64
	is   bool
	over bool // something was borrowed in it
}

// begins notes such a call.
func (k *lack) begins(at int64) {
	if !k.is {
		k.is, k.at = true, at
	}
}

// ends notes that something was borrowed. ok is true for the first time in the window, after
// such a call.
func (k *lack) ends(at int64) (after time.Duration, ok bool) {
	ok, k.over = k.is && !k.over, true
	return time.Duration(at - k.at), ok
}

// standing is an ask that was not served, or not wholly.
type standing struct {
	guest                   string
	permits, poor, critical int64
	joins                   bool // the guest has no share of its own in this window
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
}

// scene is the shortest window, in milliseconds.
type scene struct {
	*account
	instances     int // newcomers included
	rules         lending.Rules
	phase, length float64
}

// fair is the total divided equally.
func (s *scene) fair() float64 { return float64(s.limit.Total) / float64(max(1, s.instances)) }

// alone reports whether there is nobody to ask: no other has a share, or was lent anything.
func (s *scene) alone() bool { return s.limit.Instances == 1 && s.bound > s.lent && s.out == 0 }

// roomLeftLocked returns how many permits the windows that run leave.
func (g *Gate) roomLeftLocked() int64 {
	left, taken := Unbounded, g.takenLocked()
	for a := range g.mu.ledger.bounded {
		left = min(left, a.bound-a.used-taken)
	}
	return left
}

// noteCallsLocked brings the calls to the end of the segment that has ended.
func (g *Gate) noteCallsLocked(at int64) {
	if p := g.planLocked(); !p.Lending.Lends && !p.Lending.Borrows {
		return
	}
	b := &g.mu.borrower
	if a := g.mu.ledger.shortest(); a != nil && a.window == b.window {
		b.lent = a.lent
	}
	b.calls.Look(float64(at)/milli, float64(g.mu.ledger.issued+g.takenLocked()+g.Refused()+g.mu.queue.permits()))
	for _, c := range []Class{Critical, Sheddable} {
		if n := g.mu.queue.lanes[c].permits + g.Called(c); n > 0 { // of calls, or of those that wait
			b.of[c].Look(float64(at)/milli, float64(n))
		}
	}
}

// noteWindowLocked notes that another window of the shortest limit runs.
func (g *Gate) noteWindowLocked() {
	b, a := &g.mu.borrower, g.mu.ledger.shortest()
	if a == nil || a.window == b.window {
		return
	}
	if a.window.Length != b.window.Length {
		b.calls, b.guest, b.of = lending.Flow{}, lending.Guest{}, [Classes]lending.Flow{}
	}
	if b.guest.Asked() && b.lent == 0 {
		b.Fruitless++
	}
	if a.limit.Instances != b.owners { // others may have more than before
		b.owners, b.guest = a.limit.Instances, lending.Guest{}
	}
	b.guest.Begin(b.lent)
	b.LastLoans = b.partners.end()
	if a.window.Length != b.window.Length || a.window.Index != b.window.Index+1 { // a window has passed unseen
		b.LastLoans = Loans{}
	}
	if b.window.Length != 0 { // else calls that were refused before anything was known count yet
		b.lack = lack{}
	}
	for _, f := range []*lending.Flow{&b.calls, &b.of[Critical], &b.of[Sheddable]} {
		f.Begin(a.window.Index, float64(a.window.Start()-g.mu.ledger.plan.Offset)/milli, float64(a.window.Length)/milli)
	}
	b.window, b.lent, b.standing, b.served = a.window, a.lent, b.standing[:0], 0
	g.refuseStoodLocked()
}

// refuseStoodLocked refuses the head at a window's edge if only loans serve it and a whole
// window has brought too few: others wait behind it.
func (g *Gate) refuseStoodLocked() {
	w := g.mu.queue.head()
	if w == nil || !g.beyondSharesLocked(w.n) || !g.borrowsLocked() {
		return
	}
	if !w.stood {
		w.stood = true
		return
	}
	g.mu.queue.remove(w)
	g.mu.forecast.forget()
	g.decided(w, Grant{}, Limited)
}

// beyondSharesLocked reports whether no share of this instance holds n permits, so that only
// loans can.
func (g *Gate) beyondSharesLocked(n int64) bool {
	return n > 1 && g.planLocked().Known && n > g.ownLocked(n)
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
	if g.mu.closed || g.mu.stale || l.plan.Shut || l.debt > 0 || !l.lendable() {
		return s, false
	}
	s.account = l.shortest()
	s.instances = max(s.limit.Instances, l.plan.Lending.Instances)
	s.rules = lending.RulesOf(s.instances, s.limit.Instances, l.plan.Lending.Reserve)
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

// noteBorrowedLocked counts n permits that a host has lent.
func (g *Gate) noteBorrowedLocked(host string, n int64) {
	if n <= 0 {
		return
	}
	b := &g.mu.borrower
	b.Borrowed += n
	note(&b.partners.hosts, host, n)
	if after, ok := b.lack.ends(g.mu.last); ok {
		b.FirstLoans++
		b.FirstLoanTime += after
	}
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
func (b *borrower) first(a *account) bool {
	return a != nil && a.bound == 0 && (b.awaited > 0 || b.lack.is && !b.guest.Asked())
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
	if l.plan.Lending.Lends {
		next = g.serveStandingLocked(at, s)
	}
	if l.plan.Lending.Borrows {
		var soon int64
		ask, soon = g.askLocked(s)
		next = min(next, soon)
		if b.hoping && g.headLocked() <= s.bound-s.lent && !b.guest.Hopes(&b.calls, s.rules, g.mu.queue.permits(), s.lent, s.fair()) {
			b.hoping = false
			g.judgeLocked(g.planLocked()) // nobody waits in vain
		}
	}
	b.look = next
	return ask, next
}

// askLocked returns what to ask for now, and when to look again.
func (g *Gate) askLocked(s scene) (ask *Asking, next int64) {
	b, l := &g.mu.borrower, &g.mu.ledger
	h := lending.Has{
		Phase: s.phase, Length: s.length, Rest: s.length - s.phase - float64(l.plan.Guard)/milli,
		Waiting: g.mu.queue.permits(), Issued: s.used - s.out + g.takenLocked(), Borrowed: s.lent, Own: s.bound - s.lent,
		Fair: s.fair(), Total: s.limit.Total,
	}
	h.Left, h.Kept = g.roomLeftLocked(), g.segment.Load().floor
	if b.first(s.account) {
		h.Waiting++ // one permit says it: who waits for the first may never take more
	}
	if s.alone() {
		return nil, Forever
	}
	if a, ok := b.guest.Ask(&b.calls, s.rules, h); ok {
		b.Asks++
		lanes := &g.mu.queue.lanes
		a.Divide(h, &b.of[Critical], &b.of[Sheddable], lanes[Critical].permits, lanes[Sheddable].permits)
		ask = &Asking{
			Ask: a, Self: l.self, Windows: l.running(), Fair: h.Fair, Rules: s.rules, Debtors: l.debtors(),
			Salt: l.plan.Lending.Hash + uint64(b.Asks)*0x9e3779b97f4a7c15,
		}
	}
	if b.calls.Silent() > quietAfter && h.Waiting == 0 {
		return ask, Forever
	}
	wait := b.calls.Enough(h) / 2
	return ask, g.mu.last + min(max(int64(wait*milli), int64(lookEvery)), int64(lookSeldom))
}

// hopesLocked reports whether a caller that this instance's own share will not serve in time
// may wait for n borrowed permits: they are asked for, or will be.
func (g *Gate) hopesLocked(n int64, c Class) bool {
	s, ok := g.sceneLocked()
	b := &g.mu.borrower
	if !ok || !g.planLocked().Lending.Borrows || s.alone() {
		return false
	}
	_, waiting := g.mu.queue.before(c + 1)
	if waiting+n <= g.roomLeftLocked()-g.segment.Load().keeps(c) {
		return false // it lacks something else: a budget, or the time when permits are due
	}
	hopes := waiting == 0 && n > s.bound-s.lent || g.beyondSharesLocked(n) || b.guest.Hopes(&b.calls, s.rules, waiting+n, s.lent, s.fair())
	b.hoping = b.hoping || hopes
	return hopes
}

// Asked lends to a guest that asks in the windows that run, and returns how much. It may lend
// the rest later in the window. from is the corrected wall time from which the guest has a
// share of its own; until then it is also lent its part of each window that begins.
func (g *Gate) Asked(at clock.Instant, guest string, n protocol.Need, from int64) int64 {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	s, ok := g.sceneLocked()
	l := &g.mu.ledger
	hash := l.plan.Lending.Hash
	if !ok || !l.plan.Lending.Lends || !slices.Equal(n.Windows, l.running()) || n.Part > 0 && !n.Has(hash) {
		return 0
	}
	a := standing{guest, n.Whole(n.Permits, hash), n.Whole(n.Poor, hash), n.Whole(n.Critical, hash), from > s.window.Start()}
	g.noteJoinerLocked(joiner{guest, from, max(1, a.poor)}, s.window) // late in a window a first permit is no poor part
	return g.lendLocked(at, s, a)
}

// lendOutLocked lends n permits of those that may be issued, and tells the guest.
func (g *Gate) lendOutLocked(guest string, n int64) {
	l := &g.mu.ledger
	g.Lent(l.self, guest, l.lend(guest, n))
	g.mu.borrower.Lent += n
	note(&g.mu.borrower.partners.guests, guest, n)
	g.mu.forecast.forget()
}

// lendLocked lends to a guest as much as the rules say. The rest stands.
func (g *Gate) lendLocked(at clock.Instant, s scene, a standing) int64 {
	b, l := &g.mu.borrower, &g.mu.ledger
	g.noteCallsLocked(g.mu.last)
	taken := g.takenLocked()
	h := lending.Host{
		Phase: s.phase, Length: s.length, Share: s.bound - s.lent, Issued: s.used - s.out + taken, Left: l.budget() - taken, Kept: g.segment.Load().floor,
		Forecast: b.calls.Forecast(s.phase, s.length, g.mu.queue.permits()),
		Critical: b.of[Critical].Forecast(s.phase, s.length, g.mu.queue.lanes[Critical].permits),
		Duty:     s.rules.OnDuty(l.plan.Lending.Hash, s.window.Index),
		Chance:   l.plan.Lending.Hash ^ uint64(s.window.Index),
	}
	if a.joins {
		h.Part = g.partLocked(s, a.guest)
	}
	n := h.Lend(s.rules, a.permits, a.poor, a.critical)
	if n > 0 {
		g.settleLocked() // callers may have taken more meanwhile
		if n = min(n, l.budget()-h.Kept); n > 0 {
			g.lendOutLocked(a.guest, n)
		}
		g.rebuildLocked(at)
	}
	n = max(0, n)
	a.permits -= n
	a.critical = max(0, a.critical-n)
	g.standLocked(a, n == 0 || a.poor == 0 && a.permits > 0)
	return n
}

// standLocked keeps an ask, in place of the guest's earlier one; or neither.
func (g *Gate) standLocked(a standing, stands bool) {
	b := &g.mu.borrower
	b.standing = slices.DeleteFunc(b.standing, func(o standing) bool { return o.guest == a.guest })
	if stands && len(b.standing) < mostStanding {
		b.standing = append(b.standing, a)
		g.armLocked(g.releasesLocked())
	}
}

// releasesLocked returns when asks that stand are served next; Forever if they are not.
func (g *Gate) releasesLocked() int64 {
	s, ok := g.sceneLocked()
	if !ok {
		return Forever
	}
	if at, ok := lending.Releases(s.phase, s.length); ok {
		return s.window.Start() + int64(at*milli) - g.mu.ledger.plan.Offset
	}
	return Forever
}

// serveStandingLocked serves two of the asks that stand, by chance, when reserves are
// released. It returns when to look again.
func (g *Gate) serveStandingLocked(at clock.Instant, s scene) (next int64) {
	b := &g.mu.borrower
	if len(b.standing) == 0 {
		return Forever
	}
	if due := lending.Released(s.phase, s.length); due > b.served {
		b.served = due
		chance := g.mu.ledger.plan.Lending.Hash ^ uint64(s.window.Index)
		some := slices.Clone(b.standing)
		slices.SortFunc(some, func(a, b standing) int {
			return cmp.Compare(lending.Chance(a.guest, chance), lending.Chance(b.guest, chance))
		})
		for _, a := range some[:min(2, len(some))] {
			if s, ok := g.sceneLocked(); ok {
				g.lendLocked(at, s, a)
			}
		}
	}
	return g.releasesLocked()
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
		return l.Total
	})
}
