package shipped

import (
	"math/rand/v2"
)

// drama is events that break a rule's absence only together: a few in a row, to one
// instance. Chance alone seldom brings them about.
type drama func(p *plan, r *rand.Rand, t int64, who int) []event

// low and high are totals between which a stale view shows.
const low, high = 1, 40

// dramas are the plots, any of which may be part of a history. Each begins with a high
// total, and lasts less than five seconds.
var dramas = []drama{lapsed, relisted, asleepThroughCut, slowThroughCut, deafThroughCut, quitSlowly, resetThroughCut, removedAlive}

// raised is the total set to high, in force when the plot begins.
func raised(p *plan, t int64) event {
	return event{at: t - 3*int64(p.policy.Settle), do: doPolicy, n: high}
}

// lasting is how long a fault must last for a cut to bind others meanwhile.
func (p *plan) lasting(r *rand.Rand) int64 {
	return int64(p.policy.Freshness+p.policy.Limits[0].Window) + p.e + 200*ms + r.Int64N(700*ms)
}

// asleepThroughCut: a machine is suspended while the total is cut.
func asleepThroughCut(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{raised(p, t), {at: t, do: doSleep, who: who, d: p.lasting(r)}, {at: t + 1 + r.Int64N(150*ms), do: doPolicy, n: low}}
}

// slowThroughCut: answers take nearly as long as the freshness, and the watch hangs from
// just before the total is cut.
func slowThroughCut(p *plan, r *rand.Rand, t int64, who int) []event {
	d := int64(p.policy.Freshness)
	return []event{
		raised(p, t), {at: t, do: doSlow, who: who, d: 4 * d, n: d * (75 + r.Int64N(20)) / 100},
		{at: t + d, do: doPolicy, n: low}, {at: t + d + 1 + r.Int64N(8*ms), do: doHang, who: who, d: 3 * d},
	}
}

// deafThroughCut: a watch hangs while the total is cut.
func deafThroughCut(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{raised(p, t), {at: t, do: doHang, who: who, d: p.lasting(r)}, {at: t + 1 + r.Int64N(150*ms), do: doPolicy, n: low}}
}

// quitSlowly: an instance closes while etcd answers it slowly, and its watch hangs.
func quitSlowly(p *plan, r *rand.Rand, t int64, who int) []event {
	quit := t + 300*ms + r.Int64N(200*ms)
	return []event{
		raised(p, t), {at: t, do: doSlow, who: who, d: 1500 * ms, n: 150*ms + r.Int64N(200*ms)},
		{at: quit - ms, do: doHang, who: who, d: 600 * ms}, {at: quit, do: doQuit, who: who},
	}
}

// resetThroughCut: a connection breaks when the total is cut.
func resetThroughCut(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{
		raised(p, t), {at: t, do: doHang, who: who, d: 100 * ms}, {at: t + 20*ms, do: doPolicy, n: low},
		{at: t + 60*ms + r.Int64N(60*ms), do: doReset, who: who},
	}
}

// lapsed: an instance is cut off until its lease has run out.
func lapsed(_ *plan, r *rand.Rand, t int64, who int) []event {
	return []event{{at: t, do: doCut, who: who, d: 2700*ms + r.Int64N(500*ms)}}
}

// relisted: what a watch has to tell is forgotten, and so is the time before a raise.
func relisted(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{
		{at: t - 3*int64(p.policy.Settle), do: doPolicy, n: low}, {at: t, do: doHang, who: who, d: 200*ms + r.Int64N(200*ms)},
		{at: t + 20*ms, do: doPolicy, n: high - 1}, {at: t + 60*ms, do: doPolicy, n: high},
		{at: t + 110*ms, do: doCompact}, {at: t + 120*ms, do: doReset, who: who},
	}
}

// removedAlive: somebody deletes the keys of an instance that lives.
func removedAlive(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{raised(p, t), {at: t, do: doRemove, who: who}, {at: t + r.Int64N(500*ms), do: doRemove, who: who + 1}}
}

// revived: a backup is put back that has an incarnation which a living session had
// before.
func revived(_ *plan, r *rand.Rand, t int64, who int) []event {
	return []event{{at: t, do: doRemove, who: who}, {at: t + 300*ms + r.Int64N(900*ms), do: doRestore, n: 8 + r.Int64N(10)}}
}

// latecomer: what a watch of the old store tells comes together with the answer that ends
// that watch, after the backup is put back.
func latecomer(p *plan, r *rand.Rand, t int64, who int) []event {
	away := int64(p.policy.Freshness) + 150*ms
	return []event{
		{at: t - 3*int64(p.policy.Settle), do: doPolicy, n: low}, {at: t - ms, do: doHang, who: who, d: away + 60*ms},
		{at: t, do: doFlash, n: high, d: away}, {at: t + away + 4*ms + r.Int64N(12*ms), do: doStall, who: who, d: 100 * ms},
	}
}

// forgotten: an instance is cut off while a backup from before its newest report is put
// back and the total is cut; then etcd's revisions pass those that it knew.
func forgotten(p *plan, r *rand.Rand, t int64, who int) []event {
	away := int64(p.policy.Freshness)
	return []event{
		raised(p, t), {at: t - 1200*ms, do: doPolicy, n: high - 1}, {at: t, do: doCut, who: who, d: 1200*ms + away + r.Int64N(600*ms)},
		{at: t + 20*ms, do: doRestore, n: 3 + r.Int64N(10)}, {at: t + 40*ms + away, do: doPolicy, n: low},
	}
}
