package simulation

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// plan is what is going to happen in a history, before it happens. Every event
// has a seed of its own, so that one can be dropped and the others stay what
// they are.
type plan struct {
	kind    Kind
	seed    uint64
	e       int64 // bound of clock errors
	first   *quota.Policy
	size    int   // hosts at the start
	end     int64 // true time
	sharing sharing
	aside   *rand.Rand // for what came later than the rest: see fields.go
	auto    bool       // guards follow the clock's error
	forming forming
	pacing  pacing
	dense   bool // there are no quiet spans, and nobody forges
	events  []event
}

// event is one thing that happens at a true time.
type event struct {
	at      int64
	do      action
	seed    uint64
	dropped bool   // left out, to see whether it matters
	text    string // what it turned out to be, when it happened
}

// action is what happens. The order is that of actionNames.
type action uint8

const (
	doJoin action = iota
	doLeave
	doQuit
	doCrash
	doExpire
	doAnnounce
	doPolicy
	doCut
	doStall
	doSleep
	doSetClock
	doHang
	doEndWatch
	doLag
	doAlone
	doLeaderless
	doCompact
	doRestore
	doOutage
	doDrain
	doTamper
	doReplace
	doPushBack
	doEndBackoff
	doPace
	actions
)

var actionNames = [actions]string{"join", "announced leave", "leave", "crash", "lease lost", "announced limits", "policy",
	"partition", "pause", "suspension", "clock set", "watch hangs", "watch ends", "member lags", "member cut off",
	"no leader", "compaction", "restore", "outage", "drained", "forgery", "crash in place", "told to pause", "back-off ended", "pace"}

// String returns the action in words.
func (a action) String() string { return actionNames[a] }

// changes and troubles are what a kind's histories are made of; what comes
// twice is twice as likely.
func (k Kind) changes() []action {
	if k == Calm {
		return []action{doJoin, doLeave, doAnnounce}
	}
	return []action{doJoin, doJoin, doLeave, doQuit, doCrash, doExpire, doAnnounce, doPolicy, doPolicy, doPolicy}
}

func (k Kind) troubles() []action {
	switch k {
	case Calm:
		return nil
	case Hold:
		return []action{doStall, doHang, doEndWatch, doLag}
	case Split:
		return []action{doCut, doCut, doCut, doStall, doHang, doLag}
	}
	return []action{doCut, doCut, doStall, doStall, doSleep, doSetClock, doHang, doHang, doEndWatch, doLag, doAlone, doLeaderless, doCompact}
}

func newPlan(kind Kind, m *Mutant, seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, uint64(kind)))
	p := plan{kind: kind, seed: seed, e: []int64{5, 10, 40, 80}[r.IntN(4)] * ms}
	if kind == Measured {
		p.e = 40*ms + p.e/2 // room for what the way to a server takes
	}
	p.sharing, p.forming = newSharing(seed, m), newForming(seed, kind, m)
	p.pacing = newPacing(seed, m)
	p.aside = rand.New(rand.NewPCG(seed, 11))
	p.auto = p.aside.IntN(6) == 0
	p.first = p.newPolicy(r, nil)
	scale := 1 + r.IntN(3)
	p.size = 1 + r.IntN(2*scale)
	s := int64(p.first.Settle)
	p.end = 600*ms + int64(scale)*r.Int64N(600)*ms
	if p.dense = kind == Calm || m != nil; p.dense { // what a mutant takes comes soon
		p.end = 3*s + int64(scale)*r.Int64N(1200)*ms + 800*ms
	}
	if m != nil && p.forming.shape != quota.ShapeFixed {
		p.end += 2000 * ms // what changes hands is held back for a window
	}
	gap := func() int64 { return 1 + r.Int64N(1600*ms/int64(scale)) }
	changes, troubles := kind.changes(), kind.troubles()
	for at := gap(); at < p.end; at += gap() {
		p.add(r, at, changes[r.IntN(len(changes))])
		if m != nil && len(m.Led) > 0 {
			p.add(r, r.Int64N(p.end), m.Led[r.IntN(len(m.Led))])
		}
		if len(troubles) > 0 && r.IntN(4) > 0 {
			p.add(r, r.Int64N(p.end), troubles[r.IntN(len(troubles))])
		}
	}
	for at := p.aside.Int64N(4000 * ms); at < p.end && kind != Calm; at += p.aside.Int64N(4000 * ms) {
		p.add(p.aside, at, doDrain)
	}
	if !p.dense && p.aside.IntN(2) == 0 {
		for at := p.aside.Int64N(1000 * ms); at < p.end; at += p.aside.Int64N(1500 * ms) {
			p.add(p.aside, at, doTamper)
		}
	}
	if !p.dense {
		p.calmDown(s)
	}
	if kind != Calm && m == nil {
		p.replaceHosts(rand.New(rand.NewPCG(seed, 23)))
	}
	if m == nil {
		p.pushBacks(rand.New(rand.NewPCG(seed, 29)))
	}
	p.pace(rand.New(rand.NewPCG(seed, 31)))
	switch kind {
	case Hold:
		outage := s + r.Int64N(p.end-s)
		if r.IntN(3) > 0 { // not in the middle of changes, after which nothing is promised
			outage = p.end - r.Int64N(2*s)
		}
		p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.at >= outage && e.do != doStall && e.do != doDrain })
		p.end += 2 * s
		p.add(r, outage, doOutage)
	case Restore:
		p.add(r, s+r.Int64N(p.end-s), doRestore)
		p.end += 2 * s
	}
	slices.SortStableFunc(p.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return p
}

// calmDown makes room for quiet spans between what happens, in which a fleet
// settles and issues all that it may: before all of it now and then, in the middle,
// and at the end.
func (p *plan) calmDown(settle int64) {
	r := rand.New(rand.NewPCG(p.seed, 17))
	if p.kind == Timing {
		settle += 500 * ms // later policies have longer times
	}
	quiet := func() int64 {
		d := 5*settle + 1500*ms + r.Int64N(1000*ms)
		if p.forming.shape != quota.ShapeFixed {
			d += 2000 * ms // what changes hands is held back for a window
		}
		return d
	}
	before, middle, between := r.Int64N(2)*settle, r.Int64N(2*p.end), quiet()
	for i := range p.events {
		e := &p.events[i]
		if e.at >= middle {
			e.at += between
		}
		e.at += before
	}
	if middle < p.end {
		p.end += between
	}
	if p.kind == Restore {
		p.end += 2 * settle
	}
	p.end += before + quiet()
}

// replaceHosts lets a process crash, in a quiet span too, and the next one continue.
func (p *plan) replaceHosts(r *rand.Rand) {
	at := r.Int64N(p.end)
	p.add(r, at, doReplace)
	if r.IntN(3) == 0 { // and once more, soon
		p.add(r, at+r.Int64N(900*ms), doReplace)
	}
}

func (p *plan) add(r *rand.Rand, at int64, do action) {
	p.events = append(p.events, event{at: at, do: do, seed: r.Uint64()})
}
