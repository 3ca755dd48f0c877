package shipped

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// plan is what happens to a history, by its seed and kind.
type plan struct {
	seed   uint64
	kind   kind
	size   int // instances at the beginning
	e      int64
	calm   bool
	every  int64 // most between two calls of a caller
	policy quota.Policy
	events []event
	// healed is when all faults end, settled when their effects have, by true time.
	healed, settled, end int64
}

// event is something that happens at a true time.
type event struct {
	at  int64
	do  action
	who int
	d   int64 // how long
	n   int64
}

// kind is what histories are about.
type kind string

// The kinds.
const (
	faults  kind = "faults"  // everything but restores
	restore kind = "restore" // a backup is put back, amid other faults
)

var kinds = []kind{faults, restore}

var totals = []int64{1, 2, 3, 5, 12, 40}

var lengths = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second}

// newPlan returns the plan of a seed. It has one of the dramas, chance's or one that is
// given.
func newPlan(k kind, seed uint64, more ...drama) *plan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := &plan{seed: seed, kind: k, size: 2 + r.IntN(3), every: 50 * ms}
	p.e = (5 + r.Int64N(36)) * ms
	freshness := time.Duration(150+r.IntN(500)) * time.Millisecond
	window := lengths[r.IntN(len(lengths))]
	p.policy = quota.Policy{
		Limits: []quota.Limit{{Permits: totals[r.IntN(len(totals))], Window: window}}, ClockError: time.Duration(p.e), Outage: quota.OutageStop,
		Freshness: freshness, Settle: quota.MinSettleFor(freshness, time.Duration(p.e), window),
	}
	if r.IntN(2) == 0 && 4*p.e < int64(window) {
		p.policy.Guard = time.Duration(p.e)
	}
	if r.IntN(3) == 0 {
		p.policy.Settle += time.Duration(r.Int64N(200 * ms))
	}
	switch r.IntN(8) {
	case 0:
		p.policy.Share = quota.ShareWeighted
	case 1:
		p.policy.Share = quota.ShareDemand
	}
	p.policy = p.policy.WithDefaults()
	const begin, last = 2500 * ms, 9000 * ms
	p.healed = last + 500*ms
	p.settled, p.end = math.MaxInt64, p.healed+1500*ms
	if seed%3 == 0 { // it takes as long as all the rest
		p.settled = p.healed + 9000*ms
		p.end = p.settled + 2000*ms
	}
	for range 4 + r.IntN(8) {
		p.events = append(p.events, p.event(r, begin+r.Int64N(last-begin)))
	}
	if more == nil && r.IntN(2) == 0 {
		more = []drama{dramas[r.IntN(len(dramas))]}
		if k == restore {
			more[0] = []drama{forgotten, revived, latecomer}[r.IntN(3)]
		}
	}
	for _, d := range more {
		p.events = append(p.events, d(p, r, begin+3*int64(p.policy.Settle)+r.Int64N(2000*ms), r.IntN(p.size))...)
	}
	if k == restore && !slices.ContainsFunc(p.events, func(e event) bool { return e.do == doRestore || e.do == doFlash }) {
		p.events = append(p.events, event{at: begin + 1000*ms + r.Int64N(last-begin-1500*ms), do: doRestore, n: 1 + r.Int64N(12), d: r.Int64N(400 * ms)})
	}
	slices.SortFunc(p.events, func(a, b event) int { return int(a.at - b.at) })
	return p
}

func (p *plan) event(r *rand.Rand, at int64) event {
	return event{at: at, do: often[r.IntN(len(often))], who: r.IntN(8), d: 20*ms + r.Int64N(1500*ms), n: totals[r.IntN(len(totals))]}.slow(r)
}

func (e event) slow(r *rand.Rand) event {
	if e.do == doSlow {
		e.n = r.Int64N(350 * ms)
	}
	return e
}

// weight is that of a new instance.
func (p *plan) weight(r *rand.Rand) int64 { return 1 + r.Int64N(3) }
