package window

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// Trade is what an account of a key knows of the calls of its own callers, and of what it has asked
// others for. An account has one once it has lacked permits, or was asked for some: so a key at rest
// takes no memory for it, and a call that gets its permit does nothing for it. The rules are those of
// package lending, as for the provider: see borrower.
type Trade struct {
	calls   lending.Flow
	guest   lending.Guest
	window  quota.Window // the shortest one that runs
	before  int64        // permits that callers have used in the windows before, or were refused
	refused int64        // permits refused in this window
	asks    int64        // since the beginning
	low     int64        // with fewer permits left it is looked whether to ask others; 0: not before one is refused
	looked  int64        // when it was last looked, monotonic
	look    int64        // when it is looked next, monotonic; Forever: when callers lack permits
	of      *classes     // nil until a call of another class than the usual one comes
	guests  asks         // of others
	edge    bool         // the window has begun, and guests were not lent some at its edge yet
}

// classes are the calls of critical and sheddable callers.
type classes struct {
	called              [Classes]int64 // permits that they have used or were refused, since the first of them
	critical, sheddable lending.Flow
}

// Callers are those that wait for the permits of a key.
type Callers struct {
	Waiting   int64 // permits that they wait for
	Large     int64 // those of Waiting for which large calls wait
	Critical  int64 // those for which critical ones wait
	Sheddable int64 // those for which sheddable ones wait
}

// Fleet is what all instances have together of a key in the shortest window.
type Fleet struct {
	Total     int64 // permits
	Instances int   // that have callers
	Owners    int   // those of Instances that have a share
}

// fair is the total divided equally.
func (f Fleet) fair() float64 { return float64(f.Total) / float64(max(1, f.Instances)) }

func (f Fleet) rules() lending.Rules { return lending.RulesOf(f.Instances, f.Owners) }

// tradeAt returns the account's Trade with the calls that have come by now; nil where nothing is counted.
func (a *Account) tradeAt(now int64, c Callers) *Trade {
	t := a.begun()
	if t != nil {
		t.take(float64(now)/milli, a.shortest(), c)
	}
	return t
}

// begun returns the account's Trade, and makes one if it has none; nil where nothing is counted. A new one
// knows how many permits callers have used in this window and in the one before, but not when.
func (a *Account) begun() *Trade {
	s := a.shortest()
	if s == nil || s.window != a.windows.Running[0] {
		return nil
	}
	if a.trade == nil {
		start, length := a.milli(s.window.Start()), float64(s.window.Length)/milli
		t := &Trade{window: s.window, before: a.before, look: Forever}
		t.calls.Look(start-length, 0)
		t.calls.Begin(s.window.Index-1, start-length, length)
		t.calls.Look(start, float64(a.before))
		t.calls.Begin(s.window.Index, start, length)
		t.guest.Begin(0)
		a.trade = t
	}
	return a.trade
}

// milli is the monotonic instant of a corrected wall time, in milliseconds.
func (a *Account) milli(wall int64) float64 { return float64(wall-a.windows.Offset) / milli }

// take notes the calls that have come by an instant, in milliseconds. Those of the very instant of the
// look before are noted by the next one.
func (t *Trade) take(at float64, s *span, c Callers) {
	t.calls.Look(at, t.called(s, c.Waiting))
	if c.Waiting > 0 {
		t.calls.Waits()
	}
	if t.of == nil && c.Critical+c.Sheddable > 0 {
		t.of = &classes{}
	}
	if t.of != nil {
		t.of.critical.Look(at, float64(t.of.called[Critical]+c.Critical))
		t.of.sheddable.Look(at, float64(t.of.called[Sheddable]+c.Sheddable))
	}
}

// called is how many calls have come in all.
func (t *Trade) called(s *span, waiting int64) float64 {
	return float64(t.before + s.called() + t.refused + waiting)
}

// leave notes what there was of the shortest window, as its span s moves on to another window.
func (t *Trade) leave(a *Account, s *span, to quota.Window) {
	if t == nil {
		return
	}
	if s.window == t.window {
		t.take(a.milli(s.window.End()), s, Callers{})
		t.before += max(0, s.called()) + t.refused
	}
	if to.Length != t.window.Length { // calls are counted anew
		*t = Trade{before: t.before, asks: t.asks, looked: t.looked, look: t.look, guests: t.guests}
	}
	t.guests.enter(to)
	t.edge = len(t.guests) > 0
	t.guest.Begin(s.borrowed)
	from, length := a.milli(to.Start()), float64(to.Length)/milli
	t.calls.Begin(to.Index, from, length)
	if t.of != nil {
		t.of.critical.Begin(to.Index, from, length)
		t.of.sheddable.Begin(to.Index, from, length)
	}
	t.window, t.refused, t.low = to, 0, 0
}

// Refused notes that n permits were refused to calls of class c.
func (a *Account) Refused(n int64, c Class) {
	if t := a.begun(); t != nil {
		t.refused = min(addCapped(t.refused, n), quota.MaxPermits)
		a.Called(n, c)
	}
}

// Called notes that calls of class c had n permits, which Charge counts, or were refused them.
func (a *Account) Called(n int64, c Class) {
	if c != Default && a.trade != nil {
		a.trade.note(n, c)
	}
}

// note is Called, of critical and sheddable calls.
func (t *Trade) note(n int64, c Class) {
	if t.of == nil {
		t.of = &classes{}
	}
	t.of.called[c] = addCapped(t.of.called[c], n)
}

// LookSoon returns when to look next whether to ask others; sooner is false if that was due by then.
func (a *Account) LookSoon(now int64) (at int64, sooner bool) {
	t := a.begun()
	if t == nil {
		return 0, false
	}
	if at = max(now, t.looked+int64(lookEvery)); a.windows.Shut {
		at = max(at, a.windows.Opens(now))
	}
	if sooner = at < t.look; sooner {
		t.look = at
	}
	return at, sooner
}

// Looked notes a look, and when the next one is due: Forever says when callers lack permits.
func (a *Account) Looked(now, next int64) {
	if t := a.trade; t != nil {
		t.looked, t.look = now, next
	}
}

// Wanted reports whether permits were refused in the shortest window.
func (a *Account) Wanted() bool { return a.trade != nil && a.trade.refused > 0 }

// Asked reports whether others were asked for permits in the windows that run.
func (a *Account) Asked(running []quota.Window) bool {
	return a.trade != nil && len(running) > 0 && a.trade.window == running[0] && a.trade.guest.Asked()
}

// Low reports whether callers will soon lack permits, by their rate at the latest look.
func (a *Account) Low() bool {
	return a.trade != nil && a.trade.low > 0 && a.LeftToBorrowers() < a.trade.low
}

// flows are those of critical and of sheddable calls.
func (t *Trade) flows() (critical, sheddable *lending.Flow) {
	if t.of == nil {
		return new(lending.Flow), new(lending.Flow)
	}
	return &t.of.critical, &t.of.sheddable
}

// phase returns where now is in the shortest window, and how long that is, in milliseconds.
func (a *Account) phase(s *span, now int64) (phase, length float64) {
	return float64(now)/milli - a.milli(s.window.Start()), float64(s.window.Length) / milli
}

// Ask returns what to ask others for now, nil for nothing, and when to look again: Forever says not
// until callers lack permits.
func (a *Account) Ask(f Fleet, c Callers, now int64) (ask *Asking, next int64) {
	t := a.tradeAt(now, c)
	if t == nil {
		return nil, Forever
	}
	s, r := a.shortest(), f.rules()
	phase, length := a.phase(s, now)
	h := lending.Has{
		Phase: phase, Length: length, Rest: length - phase - float64(a.windows.Guard)/milli,
		Left: a.shares() - a.reserved, Waiting: addCapped(c.Waiting, a.debt), Issued: s.called(), Borrowed: s.borrowed,
		Own: s.own(), Fair: f.fair(), Total: f.Total,
	}
	if what, ok := t.guest.Ask(&t.calls, r, h); ok {
		t.asks++
		critical, sheddable := t.flows()
		what.Divide(h, critical, sheddable, c.Critical, addCapped(c.Sheddable, a.debt))
		if c.Large > 0 {
			what.Poor = min(what.Poor, c.Waiting-c.Large)
			t.guest.Gather(&what)
		}
		ask = &Asking{
			Ask: what, Self: a.windows.Lending.Self, Windows: a.windows.Running, Fair: h.Fair, Rules: r, Debtors: a.debtors(),
			Salt: a.windows.Lending.Hash + uint64(t.asks)*0x9e3779b97f4a7c15,
		}
	}
	t.low = t.calls.Lead()
	least := lookEvery // time for an answer
	if ask == nil {
		least = lookAgain
	}
	enough := t.calls.Enough(h)
	switch {
	case t.calls.Seen() < t.called(s, c.Waiting): // they have come at this very instant
		return ask, now + int64(lookEvery)
	case h.Waiting > 0 || t.calls.Silent() <= quietAfter && (enough < h.Rest || t.guest.Busy()):
		return ask, now + min(max(int64(enough/2*milli), int64(least)), int64(lookSeldom))
	}
	return ask, Forever
}

// Lend issues permits for a guest that needs some: they count here as if callers had them, but for the
// long limits, of which the guest takes permits itself. hash is that of this instance for the key, and from
// the corrected wall time from which the guest has a share of it. It returns the sum of what was lent to
// the guest in these windows, 0 if nothing is lent now. docs/proof/protocol.md, section 15.
func (a *Account) Lend(guest string, need protocol.Need, f Fleet, c Callers, hash uint64, from, now int64) (told int64) {
	t := a.tradeAt(now, c)
	if t == nil || a.debt > 0 {
		return 0
	}
	s, r := a.shortest(), f.rules()
	phase, length := a.phase(s, now)
	critical, _ := t.flows()
	h := lending.Host{
		Phase: phase, Length: length, Share: min(s.own(), int64(math.Ceil(f.fair()))), Issued: s.called(), Left: a.LeftToBorrowers(),
		Forecast: t.calls.Forecast(phase, length, c.Waiting), Critical: critical.Forecast(phase, length, c.Critical),
		Duty: r.OnDuty(hash, s.window.Index), Chance: hash ^ uint64(s.window.Index),
	}
	if c.Large > 0 && Before(guest, a.windows.Lending.Self, s.window) { // it keeps nothing for large calls
		h.Forecast = float64(c.Waiting - c.Large)
	}
	ask := askOf(guest, need, hash, s.window, a.lentTo(guest), from)
	if ask.until > s.window.Start() {
		h.Part = a.partOf(guest, f.Instances, hash)
	}
	n := h.Lend(r, ask.permits, ask.poor, ask.critical)
	ask.permits = 0 // the guest asks again by itself
	if t.guests.keep(ask, s.window); n > 0 {
		return a.lend(guest, n)
	}
	return 0
}

// partOf returns what a guest without a share may have of this instance's, besides what it was lent in
// this window: the part that it would have if the share were divided among all.
func (a *Account) partOf(guest string, instances int, hash uint64) int64 {
	s := a.shortest()
	return max(0, lending.Part(s.own(), instances, lending.Chance(guest, hash^uint64(s.window.Index)))-a.lentTo(guest))
}

// AtEdge reports whether a window has begun in which guests may be lent some before callers take all:
// see LendAtEdge.
func (a *Account) AtEdge() bool { return a.trade != nil && a.trade.edge }

// LendAtEdge lends to guests that have asked, if a window has just begun and callers wait here, as far as
// lends says that anything is lent to them. It tells each, in the order of their asks, the sum of what
// was lent to it in these windows.
func (a *Account) LendAtEdge(f Fleet, c Callers, hash uint64, now int64, lends func(guest string) bool, tell func(guest string, told int64)) {
	t := a.tradeAt(now, c)
	if t == nil {
		return
	}
	if t.edge = false; a.debt > 0 || c.Waiting == 0 {
		return
	}
	t.guests.leave(lends)
	s := a.shortest()
	phase, length := a.phase(s, now)
	critical, _ := t.flows()
	own := int64(math.Ceil(critical.Forecast(phase, length, c.Critical)))
	for i := range t.guests {
		guest := t.guests[i].guest
		n := t.guests[i].atEdge(s.window, a.partOf(guest, f.Instances, hash), a.LeftToBorrowers()-own, c.Large > 0)
		if n = min(n, a.LeftToBorrowers()); n > 0 {
			tell(guest, a.lend(guest, n))
		}
	}
}

// Borrow adds what a host has lent, by the sum that it has told, and returns how much that is. The
// total of a window is what all instances may issue in it.
func (a *Account) Borrow(host string, windows []quota.Window, told int64, total func(quota.Window) int64) int64 {
	n := a.borrow(host, windows, told, total)
	a.repay()
	return n
}
