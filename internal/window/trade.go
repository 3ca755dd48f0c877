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
// The owner of a Trade says what there is: it counts permits and those that wait, keeps time, decides when to
// look, books what is lent, and keeps calls apart. It is the gate, for the provider (lending.go and host.go),
// or the Account of a key (keytrade.go).
type Trade struct {
	calls  lending.Flow
	of     *classes      // nil until a call of another class than the usual one comes
	small  *lending.Flow // those of calls that are not large; nil: these are not told apart
	guest  lending.Guest
	window quota.Window // the shortest one that runs
	asks   int64        // since the beginning
	guests asks         // of others
	edge   bool         // the window has begun, and guests were not lent some at its edge yet
	served float64      // when in the window asks that stand were served, in milliseconds
}

// classes are the calls of critical and sheddable callers.
type classes struct{ critical, sheddable lending.Flow }

// noCalls are calls of which none came. It never changes.
var noCalls lending.Flow

// Callers are those that wait for permits.
type Callers struct {
	Waiting       int64 // permits that they wait for
	Large         int64 // those of Waiting for which large calls wait
	Critical      int64 // those for which critical ones wait
	LargeCritical int64 // those of Critical for which large calls wait
	Sheddable     int64 // those for which sheddable ones wait
}

// came are the permits for which calls have come since the beginning: they had them, were refused them, or
// wait for them.
type came struct{ all, large, critical, sheddable int64 }

// scene is an account in the shortest window that runs, at an instant, and the fleet that shares it.
type scene struct {
	*span
	plans.Fleet
	account       *Account
	hash          uint64 // of this instance, for the account's key
	rules         lending.Rules
	phase, length float64 // in milliseconds
}

// scene returns the scene at a monotonic instant. The account must have a shortest window.
func (a *Account) scene(f plans.Fleet, hash uint64, now int64) scene {
	s := a.shortest()
	return scene{
		span: s, Fleet: f, account: a, hash: hash, rules: f.Rules(),
		phase: float64(now+a.windows.Offset-s.Window.Start()) / milli, length: float64(s.Window.Length) / milli,
	}
}

// hosts is how many others have shares.
func (s *scene) hosts() int {
	if s.own() > 0 {
		return s.Owners - 1
	}
	return s.Owners
}

// alone reports whether there is nobody to ask: no other has a share, or was lent anything.
func (s *scene) alone() bool { return s.Owners == 1 && s.own() > 0 && s.lent == 0 }

// stock is what an account has in the scene's window, in permits.
type stock struct {
	left   int64 // may be issued or lent
	kept   int64 // of left, for critical calls only
	issued int64 // to own callers
	debt   int64
	// due, of a host, is the part of the window that is for its own callers, whatever a guest lacks of its
	// own part. It is less than the share where the share stands for other instances' too.
	due int64
	// newcomer, of a guest, says that it has no share yet, so that hosts lend it a part of theirs unasked.
	newcomer bool
}

// milli is the monotonic instant of a corrected wall time, in milliseconds.
func (a *Account) milli(wall int64) float64 { return float64(wall-a.windows.Offset) / milli }

// take notes the calls that have come by an instant, in milliseconds, and those of them that wait. Calls of
// the very instant of the look before are noted by the next one.
func (t *Trade) take(at float64, n came, c Callers) {
	t.calls.Look(at, float64(n.all))
	if c.Waiting > 0 {
		t.calls.Waits()
	}
	if t.small != nil {
		t.small.Look(at, float64(n.all-n.large))
		if c.Waiting > c.Large {
			t.small.Waits()
		}
	}
	if t.of == nil && n.critical+n.sheddable > 0 {
		t.of = &classes{}
	}
	if n.critical > 0 {
		t.of.critical.Look(at, float64(n.critical))
	}
	if n.sheddable > 0 {
		t.of.sheddable.Look(at, float64(n.sheddable))
	}
}

// restart forgets what was noted of windows of another length.
func (t *Trade) restart() {
	small := t.small
	if *t = (Trade{asks: t.asks, guests: t.guests}); small != nil {
		t.small = &lending.Flow{}
	}
	for i := range t.guests { // a large call that stands asks again, for an edge of these windows
		t.guests[i].edge, t.guests[i].edgeOf = 0, 0
	}
}

// enter notes that another window is the account's shortest one. came are the permits that others have lent in
// the one before.
func (t *Trade) enter(a *Account, w quota.Window, came int64) {
	t.window = w
	t.guests.enter(w)
	t.edge, t.served = len(t.guests) > 0, 0
	t.guest.Begin(came)
	from, length := a.milli(w.Start()), float64(w.Length)/milli
	t.calls.Begin(w.Index, from, length)
	if t.small != nil {
		t.small.Begin(w.Index, from, length)
	}
	if t.of != nil {
		t.of.critical.Begin(w.Index, from, length)
		t.of.sheddable.Begin(w.Index, from, length)
	}
}

// flows are the calls of critical and of sheddable callers.
func (t *Trade) flows() (critical, sheddable *lending.Flow) {
	if t.of == nil {
		return &noCalls, &noCalls
	}
	return &t.of.critical, &t.of.sheddable
}

// smallCalls are the calls that are not large; none where large ones are not told apart: then only the small
// ones that wait are known.
func (t *Trade) smallCalls() *lending.Flow {
	if t.small == nil {
		return &noCalls
	}
	return t.small
}

// has returns what the instance has as a guest.
func (s *scene) has(of stock, c Callers) lending.Has {
	return lending.Has{
		Phase: s.phase, Length: s.length, Rest: s.length - s.phase - float64(s.account.windows.Guard)/milli,
		Left: of.left, Kept: of.kept, Waiting: queue.Sum(c.Waiting, of.debt), Issued: of.issued, Borrowed: s.borrowed,
		Own: s.own(), New: of.newcomer, Fair: s.Fair(), Total: s.Total,
	}
}

// ask returns what to ask others for now; ok is false if that is nothing. c are the callers of h who wait, and
// debt are the permits of h.Waiting that are owed.
func (t *Trade) ask(s *scene, h lending.Has, c Callers, debt int64) (what lending.Ask, ok bool) {
	if what, ok = t.guest.Ask(&t.calls, s.rules, h); !ok {
		return what, false
	}
	t.asks++
	critical, sheddable := t.flows()
	what.Divide(h, critical, sheddable, c.Critical, queue.Sum(c.Sheddable, debt))
	if c.Large > 0 {
		what.PoorFor(h, t.smallCalls(), c.Waiting-c.Large)
		t.guest.Gather(&what)
	}
	return what, true
}

// asking returns an ask with what is needed to choose the hosts.
func (s *scene) asking(what lending.Ask, salt uint64) *Asking {
	w := s.account.windows
	return &Asking{
		Ask: what, Self: w.Lending.Self, Windows: w.Running, Fair: s.Fair(), Rules: s.rules, Debtors: s.account.debtors(),
		Salt: salt, Hosts: s.hosts(),
	}
}

// salt is a number for the choice of hosts, another one for each ask.
func (t *Trade) salt(hash uint64) uint64 { return hash + uint64(t.asks)*0x9e3779b97f4a7c15 }

// lend returns how many permits are lent to a guest for its ask. of is what this instance has, and c are its own
// callers who wait.
func (t *Trade) lend(s *scene, of stock, c Callers, a *asked) int64 {
	calls, waiting, criticals := &t.calls, c.Waiting, c.Critical
	if c.Large > 0 && Before(a.guest, s.account.windows.Lending.Self, s.Window) { // it keeps nothing for large calls
		calls, waiting, criticals = t.smallCalls(), waiting-c.Large, criticals-c.LargeCritical
	}
	critical, _ := t.flows()
	h := lending.Host{
		Phase: s.phase, Length: s.length, Share: of.due, Issued: of.issued, Left: of.left, Kept: of.kept,
		Forecast: calls.Forecast(s.phase, s.length, waiting), Critical: critical.Forecast(s.phase, s.length, criticals),
		Duty: s.rules.OnDuty(s.hash, s.Window.Index), Chance: s.hash ^ uint64(s.Window.Index),
	}
	if a.until > s.Window.Start() {
		h.Part = s.partOf(a.guest)
	}
	return h.Lend(s.rules, a.permits, a.poor, a.critical)
}

// asked is an ask in the scene's window for what a guest needs. The guest has a share from the corrected wall
// time from on.
func (s *scene) asked(guest string, n protocol.Need, from int64) asked {
	return askOf(guest, n, s.hash, s.Window, s.account.lentTo(guest), from)
}

// partOf returns what a guest without a share may have of this instance's, besides what it was lent in
// this window: the part that it would have if the share were divided among all.
func (s *scene) partOf(guest string) int64 {
	part := lending.Part(s.own(), s.Instances, lending.Chance(guest, s.hash^uint64(s.Window.Index)))
	return max(0, part-s.account.lentTo(guest))
}

// stands keeps what a guest still wants after n permits were lent for its ask, and reports whether it stands
// until reserves are released. A guest that was poor asks for more by itself.
func (t *Trade) stands(s *scene, a asked, n int64) bool {
	if a.permits -= n; n > 0 && a.poor > 0 {
		a.permits = 0
	}
	a.critical = max(0, a.critical-n)
	t.guests.keep(a, s.Window)
	return a.permits > 0
}

// releases returns when asks that stand are served next, a monotonic instant; clock.Forever if they are not in this
// window.
func (s *scene) releases() int64 {
	if at, ok := lending.Releases(s.phase, s.length); ok {
		return s.Window.Start() + int64(at*milli) - s.account.windows.Offset
	}
	return clock.Forever
}

// serve lends for two of the asks that stand, by chance, if reserves were released since it was last done in
// this window. Asks of guests for which lends is false are left out. It returns when to call it next.
func (t *Trade) serve(s *scene, lends func(guest string) bool, lend func(a asked)) (next int64) {
	stand := slices.DeleteFunc(slices.Clone(t.guests), func(a asked) bool { return a.permits == 0 || !lends(a.guest) })
	if len(stand) == 0 {
		return clock.Forever
	}
	if due, ok := lending.Releases(t.served, s.length); ok && s.phase >= due {
		t.served = s.phase
		chance := s.hash ^ uint64(s.Window.Index)
		slices.SortFunc(stand, func(a, b asked) int {
			return cmp.Compare(lending.Chance(a.guest, chance), lending.Chance(b.guest, chance))
		})
		for _, a := range stand[:min(2, len(stand))] {
			lend(a)
		}
	}
	return s.releases()
}

// lendAtEdge lends to guests that have asked, in the order of their asks, before own callers who wait take all
// of a window that has just begun. It forgets the asks of guests for which lends is false. left returns how
// many permits may be issued now, and how many of them are kept for critical calls. lend issues n permits for
// a guest.
func (t *Trade) lendAtEdge(s *scene, c Callers, lends func(guest string) bool, left func() (n, kept int64), lend func(guest string, n int64)) {
	t.edge = false
	t.guests.leave(lends)
	critical, _ := t.flows()
	own := int64(math.Ceil(critical.Forecast(s.phase, s.length, c.Critical)))
	for i := range t.guests {
		a := &t.guests[i]
		n, kept := left()
		if n = min(n-kept, a.atEdge(s.Window, s.partOf(a.guest), n-own, c.Large > 0)); n > 0 {
			lend(a.guest, n)
		}
	}
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
