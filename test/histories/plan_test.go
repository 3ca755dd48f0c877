package histories

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// plan is what happens to a history, by its seed and kind.
type plan struct {
	seed      uint64
	kind      kind
	providers []string
	size      int   // instances at the beginning
	e         int64 // bound of clock errors
	every     int64 // most between two calls of a caller
	plain     bool  // operators change totals only
	shape     quota.Shape
	budget    int64 // permits of each budgetWindow; 0: none
	indebted  bool  // calls often cost more than their permits
	keyed     bool  // most policies have limits by key, and callers use keys
	keyBudget int64 // permits of each key and budgetWindow; 0: keys have no such limit
	policy    quota.Policy
	events    []event
	// drain is how long etcd answers streams when it goes away for good; 0: not at all.
	drain int64
	// healed is when all faults end, settled when their effects have, by true time. From
	// outage on etcd is away for good.
	healed, settled, end, outage int64
}

// event is something that happens at a true time.
type event struct {
	at  int64
	do  action
	who int
	d   int64 // how long
	n   int64
}

// kind is what histories are about, and what is promised of them.
type kind string

// The kinds.
const (
	// faults has the outage rule stop, one timing, and every trouble but restores.
	faults kind = "faults"
	// timing is faults with changes of the settle time, the freshness, the clock error
	// and the guard.
	timing kind = "timing"
	// restore is faults, and a backup is put back.
	restore kind = "restore"
	// hold has that outage rule and, at the end, an outage of all of etcd that does not
	// end. The sum stays exact.
	hold kind = "hold"
	// split has the outage rule hold, and some instances are cut off. The permits issued
	// with a recent proof are exact.
	split kind = "split"
	// switches is faults with changes of the outage rule.
	switches kind = "switches"
	// measured has operating systems' clocks that are seconds off and set at will:
	// corrected time follows NTP servers, of which a minority lie.
	measured kind = "measured"
	// calm has nothing but joins, leaves and changes of limits that are announced, and
	// all of every window is issued.
	calm kind = "calm"
	// inflight is faults and restores with a limit in flight under either outage rule. At no time are too many
	// calls open.
	inflight kind = "inflight"
	// sliding is the same with a long limit that slides. Some last for longer than its window.
	sliding kind = "sliding"
)

var kinds = []kind{faults, restore, timing, hold, split, switches, measured, calm, inflight, sliding}

// lead is what histories are given more of, for a mutant to show soon.
type lead struct {
	dramas []drama
	often  []action
	rich   bool // operators change everything
	busy   bool // much else happens beside the dramas
	wide   bool // clocks are far apart
	shape  quota.Shape
	budget int64
	keyed  bool

	keyBudget int64
	indebted  bool
}

const begin, last = 2500 * ms, 9000 * ms

// newPlan returns the plan of a seed. It has one of the dramas, chance's or those of a
// lead.
func newPlan(k kind, seed uint64, l *lead) *plan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := &plan{seed: seed, kind: k, providers: []string{"payments/charge"}, size: 2 + r.IntN(3), every: 50 * ms, outage: math.MaxInt64}
	p.e = (5 + r.Int64N(36)) * ms
	p.chooseFeatures(r, l)
	p.policy = p.newPolicy(r, nil)
	p.healed = last + 500*ms
	p.settled, p.end = math.MaxInt64, p.healed+1500*ms
	if seed%3 == 0 && k != hold { // it takes as long as all the rest
		p.settled = p.healed + 9000*ms
		p.end = p.settled + 2000*ms
	}
	switch k {
	case inflight: // until calls of the faults count no more
		p.end += 5000 * ms
	case sliding:
		if seed%4 == 0 { // it takes as long as all the rest
			p.end = last + int64(slidingWindow) + 2000*ms
		}
		p.every = 400 * ms
	}
	if k == calm {
		p.settled, p.every, p.healed, p.end = int64(p.policy.Settle)+2000*ms, 8*ms, last, last
	}
	often := k.often()
	if l != nil {
		often = append(often, l.often...)
	}
	few := 4 + r.IntN(8)
	if l != nil && len(l.dramas) > 0 && !l.busy {
		few = r.IntN(3)
	}
	for range few {
		p.events = append(p.events, p.event(r, begin+r.Int64N(last-begin), often[r.IntN(len(often))]))
	}
	var plots []drama
	if l != nil {
		plots = l.dramas
		for i := range l.often {
			p.events = append(p.events, p.event(r, begin+r.Int64N(last-begin), l.often[i]))
		}
	} else if all := k.dramas(); len(all) > 0 && p.plain && r.IntN(2) == 0 {
		plots = []drama{all[r.IntN(len(all))]}
	}
	p.addMore(r)
	p.addRestore()
	p.addRests()
	p.addSuccession(l)
	p.addShutDown(l)
	for _, d := range plots {
		at := begin + 3*int64(p.policy.Settle) + r.Int64N(2000*ms)
		if k == hold {
			at = p.outage
		}
		p.events = append(p.events, d(p, r, at, r.IntN(p.size))...)
	}
	slices.SortStableFunc(p.events, func(a, b event) int { return int(a.at - b.at) })
	return p
}

// chooseFeatures draws what policies and processes may have.
func (p *plan) chooseFeatures(r *rand.Rand, l *lead) {
	k := p.kind
	if k == measured {
		p.e += 40 * ms // room for the way to a server
	}
	p.plain = r.IntN(2) == 0 && (k == faults || k == restore)
	p.shape = quota.ShapeFixed
	if !p.plain && k != measured && k != switches && k != calm && r.IntN(3) == 0 {
		p.shape = []quota.Shape{quota.ShapeSliding, quota.ShapeBucket}[r.IntN(2)]
	}
	if r.IntN(6) == 0 && k != calm {
		p.providers = append(p.providers, "mail")
	}
	if k != restore && k != hold && k != calm && r.IntN(6) == 0 {
		p.budget = []int64{1, 7, 100, 1000}[r.IntN(4)]
	}
	if l != nil && l.wide {
		p.e = 120 * ms
	}
	if l != nil { // the features that it names, and no others
		p.plain, p.shape, p.budget, p.providers = !l.rich, quota.ShapeFixed, l.budget, p.providers[:1]
		if l.shape != "" {
			p.shape = l.shape
		}
	}
	if l != nil {
		p.keyed, p.keyBudget, p.indebted = l.keyed, l.keyBudget, l.indebted
	} else {
		r := rand.New(rand.NewPCG(p.seed, 6)) // so that all else happens as without
		p.keyed = k != calm && r.IntN(3) == 0
		if p.keyed && k != hold && r.IntN(2) == 0 {
			p.keyBudget = []int64{1, 7, 40, 200}[r.IntN(4)]
		}
		if k == restore && r.IntN(3) == 0 {
			p.budget = []int64{1, 7, 100, 1000}[r.IntN(4)]
		}
	}
	if k == inflight || k == sliding {
		p.plain, p.shape, p.budget, p.keyed, p.keyBudget = true, quota.ShapeFixed, 0, false, 0
	}
	p.shape = p.allowed(p.shape)
}

// addMore adds what a kind or a feature always has.
func (p *plan) addMore(r *rand.Rand) {
	some := func(n int, do action) {
		for range r.IntN(n + 1) {
			p.events = append(p.events, p.event(r, begin+r.Int64N(last-begin), do))
		}
	}
	if p.kind == restore && !slices.ContainsFunc(p.events, func(e event) bool { return e.do == doRestore || e.do == doFlash }) {
		p.events = append(p.events, event{at: begin + 1000*ms + r.Int64N(last-begin-1500*ms), do: doRestore, n: 1 + r.Int64N(12), d: r.Int64N(400 * ms)})
	}
	if r := rand.New(rand.NewPCG(p.seed, 8)); p.kind == restore && r.IntN(3) == 0 { // of its own, so that all else happens as without
		p.events = append(p.events, event{at: begin + 1000*ms + r.Int64N(last-begin-1500*ms), do: doEmpty, d: r.Int64N(400 * ms)})
	}
	if !p.plain && p.kind != calm {
		some(4, doForge)
		some(2, doPushBack)
		some(2, doDrain)
	}
	if p.kind == hold {
		p.outage = begin + r.Int64N(last-begin)
		p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.at >= p.outage && e.do != doStall && e.do != doDrain })
		p.healed, p.end = math.MaxInt64, p.outage+2*int64(p.policy.Settle)+2000*ms
	}
}

// addRests lets callers of some instances rest for a while: the others borrow what these
// leave, and lend it on when they rest themselves.
func (p *plan) addRests() {
	if p.kind == calm {
		return
	}
	r := rand.New(rand.NewPCG(p.seed, 4)) // so that all else happens as without
	for range r.IntN(8) {
		at := begin + r.Int64N(last-begin)
		if at < p.outage {
			p.events = append(p.events, event{at: at, do: doRest, who: r.IntN(8), d: min(300*ms+r.Int64N(2500*ms), max(1, last-at))})
		}
	}
}

// addSuccession lets a whole fleet go, in several ways, while another instance comes.
func (p *plan) addSuccession(l *lead) {
	r := rand.New(rand.NewPCG(p.seed, 5)) // so that all else happens as without
	if p.kind == calm || l != nil || r.IntN(3) > 0 {
		return
	}
	at := begin + r.Int64N(last-begin-2500*ms)
	var all []event
	for who := range mostInstances {
		ends := []action{doQuit, doQuit, doLeave, doCrash}
		all = append(all, event{at: at + r.Int64N(400*ms), do: ends[r.IntN(len(ends))], who: who})
	}
	for range 1 + r.IntN(2) {
		all = append(all, event{at: at + r.Int64N(1500*ms), do: doJoin})
	}
	p.events = append(p.events, slices.DeleteFunc(all, func(e event) bool { return e.at >= p.outage })...)
}

func (p *plan) event(r *rand.Rand, at int64, do action) event {
	e := event{at: at, do: do, who: r.IntN(8), d: 20*ms + r.Int64N(1500*ms), n: totals[r.IntN(len(totals))]}
	switch {
	case do == doSlow:
		e.n = r.Int64N(350 * ms)
	case do == doPolicy && !p.plain && r.IntN(3) > 0:
		e.do = doChange
	}
	return e
}
