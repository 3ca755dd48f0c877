package histories

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

func seconds(t int64) float64 { return float64(t) / 1e9 }

// violation is a window, or a span, of which too many permits were issued, or too few.
type violation struct {
	what   string
	window quota.Window
	from   int64 // true time of a span; 0: it is the window
	issued int64
	bound  int64
	who    string // whose share was broken, if the sum was not
}

func (v *violation) String() string {
	text := fmt.Sprintf("window %v #%d from %.3f s: %d permits, %s %d", v.window.Length, v.window.Index,
		seconds(v.window.Start()-epoch), v.issued, cmp.Or(v.what, "at most"), v.bound)
	if v.who != "" {
		text += ", the share of " + v.who
	}
	if v.from > 0 {
		text += fmt.Sprintf(", in a span from %.6f s", seconds(v.from))
	}
	return text
}

// judge returns what is wrong with a history: windows of which more was issued than
// docs/proof/protocol.md allows, windows of which less was issued than the total although all
// faults were over for long, and what was seen on the way.
func (w *world) judge() []string {
	for _, f := range w.fleets {
		for _, v := range f.judgeAll() {
			w.wrong = append(w.wrong, f.provider+": "+v.String())
		}
	}
	return w.wrong
}

func (f *fleet) judgeAll() (wrong []*violation) {
	note := func(v *violation) {
		if v != nil {
			wrong = append(wrong, v)
		}
	}
	if f.kind == inflight {
		note(f.judgeCalls())
		return wrong
	}
	f.grants = append(f.grants, f.paid[""]...)
	if f.kind == sliding {
		note(f.judgeSlidingBudget())
	}
	f.stats.lent += len(f.loans)
	f.noteLengths()
	if f.exact = f.kind != hold || f.knewAll(); f.exact {
		note(f.judgeSpans())
	}
	note(f.judgeBudget())
	for _, key := range keyNames {
		wrong = append(wrong, f.judgeKey(key)...)
	}
	b := newBook(f)
	for _, l := range f.lengths {
		b.count(l, false)
		for k := range b.n {
			win := quota.Window{Length: l, Index: b.base + int64(k)}
			sum, part := b.window(k)
			if sum > 0 {
				f.stats.windows++
				note(f.judgeWindow(win, b, part, sum))
			}
			if total := f.promised(win); total > 0 {
				if f.stats.whole++; sum+f.lentOf[win] < total {
					note(&violation{window: win, issued: sum, bound: total, what: "of which all should be used, of"})
				}
			}
		}
		if !f.allGuarded() {
			continue
		}
		// Every permit falls into the window of true time that has its number.
		b.count(l, true)
		for k := range b.n {
			if sum, part := b.window(k); sum > 0 {
				note(f.judgeWindow(quota.Window{Length: l, Index: b.base + int64(k)}, b, part, sum))
			}
		}
	}
	return wrong
}

// policies are all that there were.
func (f *fleet) policies(do func(p *quota.Policy)) {
	for i := range f.line {
		if p := f.line[i].Policy; p != nil {
			do(p)
		}
	}
}

func (f *fleet) noteLengths() {
	f.policies(func(p *quota.Policy) {
		limits := slices.Clone(protocol.Short(p))
		for _, c := range p.Next {
			limits = append(limits, c.Limits...)
		}
		for _, l := range limits {
			if !slices.Contains(f.lengths, l.Window) {
				f.lengths = append(f.lengths, l.Window)
			}
		}
	})
}

// outages notes what the instances know when etcd is away for good.
func (f *fleet) outages() {
	for _, i := range f.instances() {
		i.link.mu.Lock()
		i.knew = append(i.knew, i.link.told[f.provider])
		i.link.mu.Unlock()
	}
}

// knewAll reports whether rule hold promises anything for a history with an outage of all
// of etcd: nobody issued anything while stale before that, and then knew all that had
// been committed, but for the last moments: what S is longer than it must be.
func (f *fleet) knewAll() bool {
	for _, g := range f.grants {
		if f.isHeld(g) && g.at < f.outage {
			return false
		}
	}
	spare := int64(f.policy.Settle - quota.MinSettleFor(f.policy.Freshness, f.policy.ClockError, f.drift()))
	n := f.newestAt(f.outage - spare)
	for _, i := range f.instances() {
		if k := slices.Index(f.providers, f.provider); n >= 0 && k < len(i.knew) && i.knew[k] < f.line[n].Revision && !i.crashed {
			return false
		}
	}
	return true
}

func (f *fleet) instances() []*instance { return f.world.instances }

// outlasts reports whether some of a window comes after the outage of all of etcd began.
func (f *fleet) outlasts(win quota.Window) bool {
	return f.kind == hold && win.End()-epoch+f.e > f.outage
}

// judgeWindow compares one window with etcd. The permits of an incarnation that were
// issued at different times, and those of different ones, all lie under their shares of
// one and the same state: that is the proof (docs/proof/protocol.md). While the timing stays
// the same, it holds for every state that was the newest at some time in [B-, B+]. When
// it changes, it holds for one state at least, around the same time.
func (f *fleet) judgeWindow(win quota.Window, b *book, part []int64, sum int64) *violation {
	if f.outlasts(win) {
		if !f.exact {
			return nil
		}
		f.stats.judged++
		from := min(win.Start()-epoch, f.outage) - int64(f.policy.Settle) - 20*ms
		return f.some(win, b, part, sum, f.newestAt(from), len(f.line)-1)
	}
	f.stats.judged++
	start := win.Start() - epoch
	freshness, settle := f.times()
	first := f.firstOf(win, b, part)
	if f.kind == timing {
		return f.some(win, b, part, sum, f.newestAt(start-f.e-settle-20*ms), max(first, f.newestAt(start+f.e-freshness)))
	}
	from, to := f.decisive(start, start, freshness, settle-int64(win.Length)/protocol.DriftBound)
	from, to = max(from, first), max(to, first)
	for s := from; s <= to; s++ {
		if s >= 0 && f.line[s].Lost > 0 {
			continue // some went by what a restore took back, and others never saw it
		}
		if v := f.against(s, win, b, part, sum); v != nil {
			return v
		}
	}
	return nil
}

// firstOf returns the state that registered the first of a fleet, if that has issued or lent
// permits of a window which starts after that on every clock; -1 if there is none. Then those
// states count that are not before it (docs/proof/protocol.md, section 12).
func (f *fleet) firstOf(win quota.Window, b *book, part []int64) (first int) {
	if f.firsts == nil {
		f.firsts = map[string]int{}
		for s := range f.line {
			for _, i := range f.line[s].Instances {
				if _, known := f.firsts[i.ID]; i.First && !known {
					f.firsts[i.ID] = s
				}
			}
		}
	}
	first = -1
	unknown := part[slices.Index(b.ids, "")] > 0 // it may be of any
	for id, s := range f.firsts {
		n := slices.Index(b.ids, id)
		if (unknown || n >= 0 && part[n] > 0 || f.lentBy(id, win) > 0) && f.line[s].By <= win.Start()-epoch-f.e {
			first = max(first, s)
		}
	}
	return first
}

// times are the shortest freshness and the longest settle time of all policies. One whose
// settle time is too short must give nothing.
func (f *fleet) times() (freshness, settle int64) {
	freshness = math.MaxInt64
	f.policies(func(p *quota.Policy) {
		least := quota.MinSettleFor(p.Freshness, p.ClockError, p.DriftWindow())
		freshness, settle = min(freshness, int64(p.Freshness)), max(settle, int64(p.Settle), int64(least))
	})
	if f.kind == timing && f.unset {
		settle = max(settle, int64(quota.DefaultSettle))
	}
	return freshness, settle
}

// decisive returns the states that were the newest at some time in [B-, B+]; for a window
// that starts at a true time, both are that.
func (f *fleet) decisive(start, until, freshness, settle int64) (from, to int) {
	const r = int64(protocol.DriftBound)
	return f.newestAt(start + f.e - settle*r/(r+1)), f.newestAt(until - f.e - freshness*r/(r-1))
}

// some demands one state under which all permits lie.
func (f *fleet) some(win quota.Window, b *book, part []int64, sum int64, from, to int) (worst *violation) {
	for s := max(from, 0); s <= to; s++ {
		v := f.against(s, win, b, part, sum)
		if v == nil {
			return nil
		}
		if worst == nil || v.bound > worst.bound {
			worst = v
		}
	}
	return worst
}

// against compares with one state; -1 is before the first, when nobody had anything.
// Revisions after it that take from nobody count at once: then the state that they lead
// to is what binds.
func (f *fleet) against(s int, win quota.Window, b *book, part []int64, sum int64) *violation {
	total := f.total(s, win)
	if total == unlimited || f.shapedBy(s, quota.ShapeSliding) || f.shapedBy(s, quota.ShapeBucket) {
		return nil // see judgeSpans for the latter
	}
	ends := []int{s}
	if s >= 0 && (sum > total || f.exceeds(ends, win, b, part) != nil) {
		ends, total = f.runs(s, win), 0
		for _, end := range ends {
			total = max(total, f.total(end, win))
		}
	}
	if sum > total {
		return &violation{window: win, issued: sum, bound: total}
	}
	return f.exceeds(ends, win, b, part)
}

// exceeds compares each incarnation with the largest of its shares by some states.
func (f *fleet) exceeds(states []int, win quota.Window, b *book, part []int64) *violation {
	if states[0] < 0 {
		return nil
	}
	most := map[string]int64{}
	for _, s := range states {
		_, shares, _ := share.Of(&f.line[s].View, win)
		if of := f.line[s].Shares; of != nil {
			shares = of(win)
		}
		for id, n := range shares {
			most[id] = max(most[id], n)
		}
	}
	for i, n := range part {
		bound := most[b.ids[i]]
		if n == 0 && bound == 0 {
			continue // a guest takes no loan of it
		}
		if n += f.lentBy(b.ids[i], win); n > bound && b.ids[i] != "" && n > bound+f.inherited(b.ids[i], win, b, part) {
			return &violation{window: win, issued: n, bound: bound, who: b.ids[i]}
		}
	}
	return nil
}

// lentBy returns what an incarnation has lent of a window, less what it was lent.
func (f *fleet) lentBy(id string, win quota.Window) (n int64) {
	if f.net == nil {
		f.net = map[quota.Window]map[string]int64{}
		for _, l := range f.loans {
			for _, w := range l.windows {
				if f.net[w] == nil {
					f.net[w] = map[string]int64{}
				}
				f.net[w][l.host] += l.permits
				f.net[w][l.guest] -= l.permits
			}
		}
	}
	return f.net[win][id]
}

// inherited returns what other incarnations of an instance were lent of a window and did
// not issue: a process that registers anew goes on with it.
func (f *fleet) inherited(id string, win quota.Window, b *book, part []int64) (n int64) {
	name, _, _ := strings.Cut(id, ".")
	another := func(other string) bool { return other != id && strings.HasPrefix(other, name+".") }
	f.lentBy(id, win) // makes net
	for other, lent := range f.net[win] {
		if another(other) {
			n -= lent
		}
	}
	for i, other := range b.ids {
		if another(other) {
			n -= part[i]
		}
	}
	return n
}

// runs returns the ends of the runs of states from s on, as far as they were committed
// before the window ended on the last clock.
func (f *fleet) runs(s int, win quota.Window) []int {
	last := f.newestAt(win.End() - epoch + f.e)
	return f.line.Runs(s, win, func(n int) bool { return n <= last })
}

// unlimited is the total of a window that no limit binds.
const unlimited = trace.Unlimited

// total is a state's total for a window; before the first nobody had anything.
func (f *fleet) total(s int, win quota.Window) int64 {
	total := f.line.Total(max(s, 0), win)
	if s < 0 && total != unlimited {
		return 0
	}
	return total
}

// allGuarded reports whether every policy's guard covers the clock error.
func (f *fleet) allGuarded() bool {
	guarded := true
	f.policies(func(p *quota.Policy) {
		// Under hold a suspension goes unseen until the next proof.
		guarded = guarded && !protocol.Shaped(p) && int64(p.Guard) >= f.e && !(f.kind == switches && p.Outage == quota.OutageHold)
	})
	return guarded
}

// judgeBudget compares a long limit with all that was issued while it was in force.
func (f *fleet) judgeBudget() *violation {
	most := int64(0)
	f.policies(func(p *quota.Policy) {
		for _, b := range protocol.Long(p) {
			most = max(most, b.Permits)
		}
	})
	sums := map[time.Time]int64{}
	for _, g := range f.grants {
		sums[g.long] += g.permits
	}
	for start, n := range sums {
		if n > most && !start.IsZero() {
			return &violation{window: quota.WindowAt(budgetWindow, start.UnixNano()), issued: n, bound: most}
		}
	}
	return nil
}

// promised is the total of a window of which all shall be used: nothing has happened for
// long, and somebody takes part. 0 if that is not so, or if somebody is told to issue
// nothing in some of it.
func (f *fleet) promised(win quota.Window) int64 {
	start := win.Start() - epoch
	if start < f.settled || win.End()-epoch > f.end-100*ms || f.kind == hold || f.budget > 0 || f.kind == sliding {
		return 0
	}
	if !slices.ContainsFunc(f.instances(), func(i *instance) bool { return !i.crashed && !i.leaving }) {
		return 0
	}
	n := f.newestAt(start)
	if f.heldBack(win.Start()-epoch-f.e, win.End()-epoch+f.e) || f.forged {
		return 0
	}
	total := f.total(n, win)
	if p := f.line[n].Policy; total == unlimited || p.Shape != quota.ShapeFixed || p.Pacing == quota.PacingEven || len(p.Unsupported()) > 0 || len(p.LimitsAt(win.Start())) != 1 { // of two limits neither may be used up
		return 0
	}
	return total - f.keptToTheEnd(n, win)
}

// keptToTheEnd returns how many permits of a window may be kept for critical calls, of which there are none, until less
// than the callers' pause before nothing is issued any more: nobody may come for them. Each instance releases what it
// keeps in parts, and the last one so early before the end as the parts are apart.
func (f *fleet) keptToTheEnd(n int, win quota.Window) (late int64) {
	p := f.line[n].Policy
	if p.Critical == 0 {
		return 0
	}
	open := int64(win.Length - 2*p.Guard)
	_, shares, _ := share.Of(&f.line[n].View, win)
	for _, own := range shares {
		whole := (own*p.Critical + 99) / 100
		if parts := min(whole, 20); parts > 0 {
			apart := open / (parts + 1)
			late += whole * min(parts, (f.every-1)/apart) / parts
		}
	}
	return late
}

// heldBack reports whether somebody is held back in some of a part of true time, or warms
// up again after that.
func (f *fleet) heldBack(from, to int64) bool {
	return slices.ContainsFunc(f.held, func(s span) bool { return s.from < to && from < s.to+2010*ms })
}

// book is the permits of one length's windows, by incarnation.
type book struct {
	f      *fleet
	ids    []string
	base   int64 // index of the first window
	n      int
	issued []int64 // by window and incarnation
}

func newBook(f *fleet) *book {
	b := &book{f: f, ids: []string{""}}
	for _, g := range f.grants {
		if !slices.Contains(b.ids, g.id) {
			b.ids = append(b.ids, g.id)
		}
	}
	for _, l := range f.loans {
		for _, id := range []string{l.host, l.guest} {
			if !slices.Contains(b.ids, id) {
				b.ids = append(b.ids, id)
			}
		}
	}
	slices.Sort(b.ids) // loans come in no order
	return b
}

// count counts the windows of a length, by the windows of the ledgers or by true time.
// Where some are cut off under the rule hold, permits without a proof do not count.
func (b *book) count(l time.Duration, trueTime bool) {
	f := b.f
	b.base = quota.WindowAt(l, epoch).Index - 2
	b.n = int((f.end+2*int64(f.policy.Settle))/int64(l)) + 4 // callers wait on after the end
	b.issued = make([]int64, b.n*len(b.ids))
	for _, g := range f.grants {
		if f.isHeld(g) && g.at < f.outage {
			continue
		}
		win, bound := f.windowOf(g, l)
		if !bound && !f.knows(g, win) {
			continue
		}
		if trueTime && bound { // else nothing keeps it from the window's edges
			win = quota.WindowAt(l, epoch+g.at)
		}
		k := max(0, min(int(win.Index-b.base), b.n-1))
		b.issued[k*len(b.ids)+slices.Index(b.ids, g.id)] += g.permits
	}
}

// windowOf returns a grant's window of a length: the limiter's, or by its clock where it
// says that no limit of that length binds it. The clock may have been corrected since
// then, but not out of the windows that it named.
func (f *fleet) windowOf(g *grant, l time.Duration) (win quota.Window, bound bool) {
	if i := slices.IndexFunc(g.windows, func(w quota.Window) bool { return w.Length == l }); i >= 0 {
		return g.windows[i], true
	}
	wall := min(max(g.wall, epoch+g.at-f.e), epoch+g.at+f.e) // a clock that stands still is further ahead
	for _, w := range g.windows {
		wall = min(max(wall, w.Start()), w.End()-1)
	}
	return quota.WindowAt(l, wall), false
}

// knows reports whether some state since the beginning of a limiter's history limits a
// window: then that binds it, whatever it says. A limit that was removed before does not.
func (f *fleet) knows(g *grant, win quota.Window) bool {
	for s := f.newestAt(g.at); s >= 0; s-- {
		if f.total(s, win) != unlimited {
			return true
		}
		if f.line[s].Revision <= g.first {
			break
		}
	}
	return false
}

// isHeld reports whether permits were issued without a recent proof, as the rule hold has
// it.
func (f *fleet) isHeld(g *grant) bool {
	return g.stale && slices.ContainsFunc(f.line, func(s trace.View) bool {
		return s.PolicyRevision == g.policy && s.Policy != nil && s.Policy.Outage == quota.OutageHold
	})
}

func (b *book) window(k int) (sum int64, part []int64) {
	part = b.issued[k*len(b.ids) : (k+1)*len(b.ids)]
	for _, p := range part {
		sum += p
	}
	return sum, part
}
