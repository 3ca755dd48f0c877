package window

import (
	"cmp"
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// Trade decides what to ask others for, what to lend to a guest that asks, and what to lend to guests at the
// edge of a window. It is the one place for that, for a provider and for each of its keys: it tells the rules
// of package lending what own callers want, and keeps the asks of guests.
//
// A Trade has an owner: the gate, for the provider (lending.go and host.go), or the Account of a key (keytrade.go). The
// owner counts permits and callers that wait, knows the time, decides when to look whether to ask, books what is lent,
// and counts calls by class. The Trade of a provider is guarded by the gate's lock, that of a key by the lock of the key's
// state. The zero Trade has seen no call.
type Trade struct {
	calls   lending.Flow  // the permits for which callers here have come
	classes *classes      // those of critical and sheddable callers; nil until one of them comes
	claim   claim         // of the first caller that waits
	guest   lending.Guest // what this instance has asked for as a guest
	window  quota.Window  // the shortest window in which the account is limited: Account.Shortest
	asks    int64         // how many times others were asked since the beginning: see salt
	guests  asks          // as a host: what guests have asked this instance for
	served  float64       // when in the window open asks were served last, in milliseconds; 0: not yet
	// edge: a window has begun, guests have asked before, and the owner has yet to decide what to lend them at this edge
	// (lendAtEdge).
	edge bool
}

// classes are the permits for which critical and sheddable callers have come.
type classes struct{ critical, sheddable lending.Flow }

// noCalls is the Flow of a class of which no call has come. It never changes.
var noCalls lending.Flow

// Callers says for how many permits callers wait. Each number is at most quota.MaxPermits, so that sums do not overflow.
type Callers struct {
	Waiting       int64 // permits that they wait for
	Large         int64 // those of Waiting for which large calls wait
	Critical      int64 // those for which critical ones wait
	LargeCritical int64 // those of Critical for which large calls wait
	Sheddable     int64 // those for which sheddable ones wait
}

// CallersOf returns those that wait in a queue.
func CallersOf(q *queue.Queue) Callers {
	of := func(n int64) int64 { return min(n, quota.MaxPermits) }
	return Callers{
		Waiting: of(q.Permits()), Large: of(q.Large(queue.Sheddable)), Critical: of(q.PermitsOf(queue.Critical)),
		LargeCritical: of(q.Large(queue.Critical)), Sheddable: of(q.PermitsOf(queue.Sheddable)),
	}
}

// came are the permits for which calls have come: those that were issued, those that were refused, and those for which
// callers wait. large, critical and sheddable are parts of all. For a provider they count from the beginning. For a key
// `all` begins with the window before the one in which its Trade began, and anew when windows get another length
// (calledIn). large begins with the Trade, and so do critical and sheddable, which begin anew when windows get another length.
type came struct{ all, large, critical, sheddable int64 }

// scene is an account in its shortest window (Account.Shortest), at an instant, and the fleet that shares it.
type scene struct {
	*span
	plans.Fleet
	account       *Account
	hash          uint64 // of this instance; where it lends permits of a key, mixed with the key's hash
	rules         lending.Rules
	phase, length float64 // how much of the window has passed, and its length, in milliseconds
}

// scene returns the scene at a monotonic instant. The account must have a shortest window.
func (a *Account) scene(f plans.Fleet, hash uint64, now int64) scene {
	s := a.shortest()
	return scene{
		span: s, Fleet: f, account: a, hash: hash, rules: f.Rules(),
		phase: float64(now+a.windows.Offset-s.Window.Start()) / milli, length: float64(s.Window.Length) / milli,
	}
}

// issued returns how many permits of the window were issued to own callers, or have paid debts. taken are permits that
// the account has not booked, or has reserved; they count too.
func (s *scene) issued(taken int64) int64 { return s.Used - s.lent + taken }

// hosts returns how many other instances divide the window (Owners). Where the total is below their number some of them have
// a share of 0. If this one has, it is counted too.
func (s *scene) hosts() int {
	if s.own() > 0 {
		return s.Owners - 1
	}
	return s.Owners
}

// alone reports whether there is nobody to ask: no other instance divides the window, or was lent any of it.
func (s *scene) alone() bool { return s.Owners == 1 && s.own() > 0 && s.lent == 0 }

// opens returns the monotonic instant from which permits of the window are issued.
func (s *scene) opens() int64 { return s.account.windows.OpensAfter(s.Window.Start()) }

// part returns how many permits of the window are this instance's by the equal division: its share or, if fewer instances
// divide the window than there are, an equal part of the total, rounded up.
func (s *scene) part() int64 {
	if s.Owners < s.Instances {
		return int64(math.Ceil(s.Fair()))
	}
	return s.own()
}

// stock is what an account has in the scene's window, in permits.
type stock struct {
	left   int64 // that may be issued or lent
	kept   int64 // of left, for critical calls only
	issued int64 // to own callers: scene.issued, or Trade.ownIssued of a host
	debt   int64 // that the account owes
	// due is for hosts only: how much of the window is the host's own to keep. From a guest that has less than its fair
	// share the host keeps for its own calls at most due - issued, beside what is kept for critical calls; of a small share
	// it may keep one. due is the share. But if some instances own nothing of a key, it is an equal part of the total
	// (scene.part) for all: an owner's share is in part meant for the others, and an instance without one keeps that much of
	// what it has borrowed.
	due int64
	// newcomer is for guests only: the guest has no share yet, so hosts lend it a part of theirs unasked.
	newcomer bool
}

// milli is the monotonic instant of a corrected wall time, in milliseconds.
func (a *Account) milli(wall int64) float64 { return float64(wall-a.windows.Offset) / milli }

// take notes the calls that have come by the monotonic instant at, in milliseconds, and the callers c that wait
// then. If at is the instant of the take before, calls that came since are noted by the next take.
func (t *Trade) take(at float64, n came, c Callers) {
	if t.claim.small == nil && n.large > 0 {
		small := t.calls // until now all were small
		t.claim.small = &small
	}
	t.calls.Look(at, float64(n.all))
	if c.Waiting > 0 {
		t.calls.Waits()
	}
	if small := t.claim.small; small != nil {
		small.Look(at, float64(n.all-n.large))
		if c.Waiting > c.Large {
			small.Waits()
		}
	}
	if t.classes == nil && n.critical+n.sheddable > 0 {
		t.classes = &classes{}
	}
	if n.critical > 0 {
		t.classes.critical.Look(at, float64(n.critical))
		if c.Critical > 0 {
			t.classes.critical.Waits()
		}
	}
	if n.sheddable > 0 {
		t.classes.sheddable.Look(at, float64(n.sheddable))
	}
}

// restart forgets what was learnt in the windows of before, because they have another length now. It keeps the number of
// asks, the claim but for what claim.restart forgets, and the asks of guests but for what large calls want at an edge.
func (t *Trade) restart() {
	*t = Trade{asks: t.asks, guests: t.guests, claim: t.claim}
	t.claim.restart()
	for i := range t.guests { // a large call asks again, for an edge of the new windows
		t.guests[i].edge, t.guests[i].edgeOf = 0, 0
	}
}

// enter notes that w is the account's shortest window from now on. loans are those of the window before it.
func (t *Trade) enter(a *Account, w quota.Window, loans Loans) {
	ended := t.window
	t.window = w
	t.guests.enter(w)
	t.edge, t.served = len(t.guests) > 0, 0
	borrowed := loans.Borrowed
	// If a large call was the first waiter, and this instance has lent permits in the window, the fleet did have some: others
	// may have lent it none because their large calls came first in that window's order. That ends the row of windows in
	// vain, as a loan does.
	if t.claim.large != nil {
		borrowed = max(borrowed, loans.Lent)
	}
	t.guest.Begin(borrowed)
	from, length := a.milli(w.Start()), float64(w.Length)/milli
	t.calls.Begin(w.Index, from, length)
	if t.claim.small != nil {
		t.claim.small.Begin(w.Index, from, length)
	}
	if t.classes != nil {
		t.classes.critical.Begin(w.Index, from, length)
		t.classes.sheddable.Begin(w.Index, from, length)
	}
	t.claim.enter(w.Start() - a.windows.Offset)
	t.claim.leave(ended, length)
}

// flows returns the calls of critical and of sheddable callers.
func (t *Trade) flows() (critical, sheddable *lending.Flow) {
	if t.classes == nil {
		return &noCalls, &noCalls
	}
	return &t.classes.critical, &t.classes.sheddable
}

// rest returns how much of the window is left before its guard, in milliseconds.
func (s *scene) rest() float64 { return s.length - s.phase - float64(s.account.windows.Guard)/milli }

// has returns what this instance has as a guest: of its account, and of the callers c who wait.
func (s *scene) has(of stock, c Callers) lending.Has {
	return lending.Has{
		Phase: s.phase, Length: s.length, Rest: s.rest(),
		Left: of.left, Kept: of.kept, Waiting: queue.Sum(c.Waiting, of.debt), Issued: of.issued, Borrowed: s.borrowed,
		Own: s.own(), New: of.newcomer, Fair: s.Fair(), Total: s.Total,
	}
}

// ask returns what to ask others for now, and notes that they were asked; ok is false if that is nothing, or if there is
// nobody to ask. c are the callers who wait, and debt the permits that are owed. h is what scene.has
// returns for c and debt; Waiting is one more if a first permit is wanted.
func (t *Trade) ask(s *scene, h lending.Has, c Callers, debt int64) (what lending.Ask, ok bool) {
	if s.alone() {
		return what, false
	}
	if n := t.stands(s); n > 0 && debt == 0 {
		t.claim.stood = s.Window.Index + 1
		t.asks++
		return lending.Ask{Permits: n, Edge: n}, true
	}
	if what, ok = t.guest.Ask(&t.calls, s.rules, h); !ok {
		return what, false
	}
	t.asks++
	what.Sure = what.Sure || c.Waiting > 0 || debt > 0
	critical, sheddable := t.flows()
	what.Divide(h, critical, sheddable, c.Critical, queue.Sum(c.Sheddable, debt))
	if what.Large = c.Large > 0; what.Large {
		what.PoorFor(h, t.small(), c.Waiting-c.Large)
		t.guest.Gather(&what)
	}
	return what, true
}

// asking returns an ask together with what Requests needs to choose the hosts. salt is Trade.salt.
func (s *scene) asking(what lending.Ask, salt uint64) *Asking {
	w := s.account.windows
	return &Asking{
		Ask: what, Self: w.Lending.Self, Windows: w.Running, Index: s.Window.Index, Fair: s.Fair(), Rules: s.rules,
		Debtors: s.account.debtors(), Salt: salt, Hosts: s.hosts(),
	}
}

// salt returns a number by which hosts are chosen: another one for each ask, so that each reaches other hosts.
func (t *Trade) salt(hash uint64) uint64 { return hash + uint64(t.asks)*0x9e3779b97f4a7c15 }

// lend returns how many permits to lend to a guest for its ask, in the scene's window. of is what this instance
// has, and c are its own callers who wait.
func (t *Trade) lend(s *scene, of stock, c Callers, a *asked) int64 {
	calls, waiting, criticals := &t.calls, c.Waiting, c.Critical
	first := Before(a.guest, s.account.windows.Lending.Self, s.Window)
	// over: a claim that began with the window has ended
	over := s.phase >= float64(s.account.windows.Guard+int64(t.claim.lasts(s.Window)))/milli
	switch {
	case !over && !(a.large && first) && t.claim.standsIn(s.Window):
		// All that the large call wants which stands here is kept: others have left it a part, and ask because they lack
		// that. Only a guest whose large calls come first in the window's order may have it.
		of.kept = queue.Sum(of.kept, t.claim.first.N())
	case c.Large > 0 && (first || over && !a.large):
		// In all other cases what large calls here want is not kept from a guest that comes first in the window's order, with
		// large calls or without; nor from any guest without large calls once the time of a claim is over: what the large
		// calls here have not got by then they hardly will.
		calls, waiting, criticals = t.small(), waiting-c.Large, criticals-c.LargeCritical
	}
	critical, _ := t.flows()
	h := lending.Host{
		Phase: s.phase, Length: s.length, Share: of.due, Issued: of.issued, Left: of.left, Kept: of.kept,
		Forecast: calls.Forecast(s.phase, s.length, waiting), Critical: critical.Forecast(s.phase, s.length, criticals),
		Uneven: s.Owners < s.Instances || s.Fair() < 1, Sure: a.sure, Duty: s.rules.OnDuty(s.hash, s.Window.Index), Chance: s.hash ^ uint64(s.Window.Index),
	}
	if a.until > s.Window.Start() {
		h.Part = s.partOf(a.guest)
	}
	return h.Lend(s.rules, a.permits, a.poor, a.critical)
}

// asked returns a guest's ask in the scene's window for what it needs. from is the corrected wall time from which the
// guest has a share.
func (s *scene) asked(guest string, n protocol.Need, from int64) asked {
	return askOf(guest, n, s.hash, s.Window, s.account.lentTo(guest), from)
}

// partOf returns how many more permits a guest without a share may have of this instance's share: the part that it
// would have if the share were divided among all, less what it was lent in this window already.
func (s *scene) partOf(guest string) int64 {
	part := lending.Part(s.own(), s.Instances, lending.Chance(guest, s.hash^uint64(s.Window.Index)))
	return max(0, part-s.account.lentTo(guest))
}

// keepRest keeps a guest's ask of which n permits were lent now: the rest, and what counts at later edges (asks). It
// reports whether the ask stays open: serve lends more for it once reserves are released. The ask is closed if the
// guest was poor and was lent some: such a guest asks for more by itself.
func (t *Trade) keepRest(s *scene, a asked, n int64) bool {
	if a.permits -= n; n > 0 && a.poor > 0 {
		a.permits = 0
	}
	a.critical = max(0, a.critical-n)
	t.guests.keep(a, s.Window)
	return a.permits > 0
}

// releases returns the monotonic instant at which hosts next release reserves, and serve the open asks. It is
// clock.Forever if that is not in this window.
func (s *scene) releases() int64 {
	if at, ok := lending.Releases(s.phase, s.length); ok {
		return s.Window.Start() + int64(at*milli) - s.account.windows.Offset
	}
	return clock.Forever
}

// serve calls lend for the first two of the open asks, in an order by chance that is the same all through the window, if
// reserves were released in this window since it did that last. It leaves out the asks of guests for which lends is false:
// nothing is lent to them. It returns the monotonic instant at which to call it next, or clock.Forever.
func (t *Trade) serve(s *scene, lends func(guest string) bool, lend func(a asked)) (next int64) {
	open := slices.DeleteFunc(slices.Clone(t.guests), func(a asked) bool { return a.permits == 0 || !lends(a.guest) })
	if len(open) == 0 {
		return clock.Forever
	}
	if due, ok := lending.Releases(t.served, s.length); ok && s.phase >= due {
		t.served = s.phase
		chance := s.hash ^ uint64(s.Window.Index)
		slices.SortFunc(open, func(a, b asked) int {
			return cmp.Compare(lending.Chance(a.guest, chance), lending.Chance(b.guest, chance))
		})
		for _, a := range open[:min(2, len(open))] {
			lend(a)
		}
	}
	return s.releases()
}

// lendAtEdge lends to guests that have asked, in the window's order (Before), before own callers who wait take all of it. It
// is called when a window has just begun; for a provider later if there is no proof then, or a debt is owed. It forgets the
// asks of guests for which lends is false: nothing is lent to them. left returns how many permits may be issued now, and how
// many of those are kept for critical calls. lend issues n permits for a guest.
func (t *Trade) lendAtEdge(s *scene, c Callers, lends func(guest string) bool, left func() (n, kept int64), lend func(guest string, n int64)) {
	t.edge = false
	t.guests.leave(lends)
	slices.SortFunc(t.guests, func(a, b asked) int { return order(a.guest, b.guest, s.Window) })
	critical, _ := t.flows()
	own := int64(math.Ceil(critical.Forecast(s.phase, s.length, c.Critical)))
	stands, self := t.claim.standsIn(s.Window), s.account.windows.Lending.Self
	for i := range t.guests {
		a := &t.guests[i]
		n, kept := left()
		if n = min(n-kept, a.atEdge(s.Window, s.partOf(a.guest), n-own, stands && Before(self, a.guest, s.Window))); n > 0 {
			lend(a.guest, n)
		}
	}
}

// Asking is what this instance asks others for, and what decides which of them it asks.
type Asking struct {
	lending.Ask
	Self    string         // ID of this instance
	Windows []quota.Window // those in which the permits are wanted, shortest first
	Index   int64          // of the shortest window in which the account is limited: it says which hosts are on duty
	Fair    float64        // the total of that window, divided equally
	Rules   lending.Rules
	Debtors []lending.Debtor // instances to which this one has lent
	Salt    uint64           // see Trade.salt
	Hosts   int              // how many other instances have shares
}

// Requests returns which hosts to ask for what. peers are the other instances that may lend, in any order. They are not
// looked at if Edge is above 0.
func (a *Asking) Requests(peers []lending.Peer) []lending.Request {
	if a.Edge > 0 {
		return []lending.Request{a.Rules.Standing(a.Ask, a.Salt, a.Hosts)}
	}
	return a.Rules.Requests(a.Ask, a.Fair, a.Index, a.Salt, peers, a.Debtors)
}
