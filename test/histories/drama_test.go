package histories

import (
	"math"
	"math/rand/v2"
)

// drama is events that break a rule's absence only together: a few in a row, to one
// instance. Chance alone seldom brings them about.
type drama func(p *plan, r *rand.Rand, t int64, who int) []event

// low and high are totals between which a stale view shows.
const low, high = 1, 40

// dramas are the plots of which one may be part of a history. Each begins with a high
// total, and lasts less than five seconds.
func (k kind) dramas() []drama {
	switch k {
	case restore:
		return []drama{forgotten, revived, latecomer}
	case faults:
		return []drama{lapsed, relisted, asleepThroughCut, slowThroughCut, deafThroughCut, quitSlowly, resetThroughCut, removedAlive}
	}
	return nil
}

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
	rest := 250*ms + r.Int64N(300*ms) // so that something is left
	return []event{
		raised(p, t), {at: t - rest, do: doRest, who: who, d: rest + 1},
		{at: t, do: doSleep, who: who, d: p.lasting(r)}, {at: t + 1 + r.Int64N(150*ms), do: doPolicy, n: low},
	}
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

// returnedLate: nobody wants anything for so long that instances give back what they have of
// a budget. Before etcd answers them, callers are back.
func returnedLate(p *plan, r *rand.Rand, _ int64, _ int) (all []event) {
	from, rest := 6800*ms+r.Int64N(100*ms), 11800*ms
	p.size, p.healed, p.settled, p.end = 5, from+rest+1000*ms, math.MaxInt64, from+rest+5000*ms
	for who := range mostInstances {
		all = append(all, event{at: from, do: doRest, who: who, d: rest + int64(who%3-1)*200*ms}, event{at: from + 9700*ms, do: doSlow, who: who, d: 3000 * ms, n: 1750 * ms})
	}
	return all
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

// forgotten: an instance is cut off while a backup is put back and the total is cut; then
// etcd's revisions pass those that it knew.
func forgotten(p *plan, r *rand.Rand, t int64, who int) []event {
	away := int64(p.policy.Freshness)
	return []event{
		raised(p, t), {at: t - 1200*ms, do: doPolicy, n: high - 1}, {at: t, do: doCut, who: who, d: 1200*ms + away + r.Int64N(600*ms)},
		{at: t + 20*ms, do: doRestore, n: 3 + r.Int64N(10)}, {at: t + 40*ms + away, do: doPolicy, n: low},
	}
}

// takenBefore: a backup is put back soon after a long window has begun. Some of its totals are lost,
// of keys that were used for the first time since; others are older than what was taken.
func takenBefore(p *plan, r *rand.Rand, _ int64, _ int) []event {
	at := budgetEdge + 300*ms + r.Int64N(1200*ms)
	return []event{raised(p, at), {at: at, do: doRestore, n: 2 + r.Int64N(30), d: r.Int64N(200 * ms)}}
}

// napped: a machine is suspended for less than the freshness.
func napped(_ *plan, r *rand.Rand, t int64, who int) (all []event) {
	for n := range int64(4) {
		all = append(all, event{at: t + n*600*ms, do: doSleep, who: who, d: 40*ms + r.Int64N(260*ms)})
	}
	return all
}

// stalledThroughCut: a process stands still while the total is cut.
func stalledThroughCut(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{raised(p, t), {at: t, do: doStall, who: who, d: p.lasting(r)}, {at: t + 1 + r.Int64N(150*ms), do: doPolicy, n: low}}
}

// behindThroughCut: a member of etcd lags while the total is cut.
func behindThroughCut(p *plan, r *rand.Rand, t int64, who int) []event {
	d := p.lasting(r) + 2000*ms
	return []event{raised(p, t), {at: t, do: doLag, who: who, d: d}, {at: t + 1 + r.Int64N(150*ms), do: doPolicy, n: low}, {at: t + 30*ms + r.Int64N(500*ms), do: doReset, who: who}}
}

// deafThrough is an instance that hears nothing of an event, which takes of its share, but
// has a proof still: others must not use what they gain.
func deafThrough(do action, n int64) drama {
	return func(p *plan, r *rand.Rand, t int64, who int) (all []event) {
		for k := range int64(3) {
			at := t + k*1400*ms
			d := int64(p.policy.Freshness) + 100*ms
			all = append(all, event{at: at, do: doHang, who: who, d: d}, event{at: at + 1 + r.Int64N(30*ms), do: do, who: who + 1 - int(k%2), n: n, d: d})
		}
		return append(all, raised(p, t))
	}
}

// lentLate: a newcomer hears late what it is lent, and twice.
func lentLate(_ *plan, r *rand.Rand, t int64, _ int) (all []event) {
	for k := range int64(3) {
		at := t + k*1200*ms
		all = append(all, event{at: at, do: doJoin})
		for n := range int64(4) {
			all = append(all, event{at: at + 120*ms + n*200*ms, do: doHang, who: newest, d: 60*ms + r.Int64N(400*ms)}, event{at: at + 130*ms + n*150*ms, do: doForge})
		}
	}
	return all
}

// lentOn: all but one rest, so that it borrows; it rests itself within the window, and then
// the others call.
func lentOn(p *plan, r *rand.Rand, t int64, who int) (all []event) {
	window := int64(p.policy.Limits[0].Window)
	all = append(all, raised(p, t-1000*ms))
	for k := range int64(4) {
		at := t + k*2*window + r.Int64N(window)
		for other := range p.size {
			e := event{at: at, do: doRest, who: other, d: window*2/3 + r.Int64N(window/2)}
			if other == who {
				e.at, e.d = at+window/2, window
			}
			all = append(all, e)
		}
	}
	return all
}

// lowered: the settle time is lowered under the freshness by which one still goes that
// hears nothing, and another joins.
func lowered(_ *plan, r *rand.Rand, t int64, who int) []event {
	return []event{
		{at: begin, do: doTimes, n: 1500}, {at: t + 2000*ms, do: doHang, who: who, d: 1400 * ms},
		{at: t + 2010*ms, do: doTimes, n: 100}, {at: t + 2040*ms + r.Int64N(40*ms), do: doJoin}, {at: t + 2060*ms + r.Int64N(90*ms), do: doJoin},
	}
}

// toldTogether: the total is low for longer than the settle time, and then high again. One
// instance is told both in one message.
func toldTogether(p *plan, r *rand.Rand, t int64, _ int) []event {
	d := int64(p.policy.Settle+p.policy.Limits[0].Window) + 150*ms + r.Int64N(300*ms)
	return []event{
		raised(p, t), {at: t, do: doLag, who: 0, d: d},
		{at: t + 5*ms, do: doPolicy, n: low}, {at: t + d - 10*ms - r.Int64N(60*ms), do: doPolicy, n: high},
	}
}

// namesakes: another process with the name of one whose key is gone, and which does not
// hear that for a while.
func namesakes(p *plan, r *rand.Rand, t int64, who int) []event {
	d := 200*ms + r.Int64N(int64(p.policy.Freshness))
	return []event{raised(p, t), {at: t, do: doHang, who: who, d: d}, {at: t + 10*ms, do: doNamesake, who: who}}
}

// leavesSlowly: an instance leaves while etcd answers it slowly, and its watch hangs.
func leavesSlowly(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{
		raised(p, t), {at: t - 20*ms, do: doSlow, who: who, d: 40 * ms, n: 900 * ms}, {at: t, do: doHang, who: who, d: 1500 * ms},
		{at: t + 1 + r.Int64N(15*ms), do: doLeave, who: who},
	}
}

// quitsWithClockSet: an instance closes after its operating system's clock was set.
func quitsWithClockSet(p *plan, r *rand.Rand, t int64, who int) []event {
	return []event{raised(p, t), {at: t, do: doSetClock, who: who}, {at: t + r.Int64N(1000*ms), do: doQuit, who: who}}
}

// removedBeforeOutage: the key of one that hears nothing is gone just before all of etcd is
// away for good.
func removedBeforeOutage(_ *plan, r *rand.Rand, t int64, who int) []event {
	at := t - 1 - r.Int64N(250*ms)
	return []event{{at: at - ms, do: doHang, who: who, d: 400 * ms}, {at: at, do: doRemove, who: who}}
}

// begunEarly: somebody lets a newcomer begin at once, of which the others do not hear.
func begunEarly(p *plan, r *rand.Rand, t int64, who int) (all []event) {
	for n := range int64(3) {
		at, d := t+n*1400*ms, int64(p.policy.Freshness)+100*ms
		all = append(all, event{at: at, do: doJoin}, event{at: at + 130*ms, do: doHang, who: who, d: d}, event{at: at + 130*ms, do: doHang, who: who + 1, d: d},
			event{at: at + 140*ms + r.Int64N(60*ms), do: doForgeKey, who: newest, n: 4})
	}
	return append(all, raised(p, t))
}

// relistedWithMore: the first of a fleet lists again after another's key was deleted. The other
// hears nothing of that, and issues its share still.
func relistedWithMore(p *plan, r *rand.Rand, t int64, _ int) []event {
	p.size = 1
	gone := t + 20*ms + r.Int64N(20*ms)
	return []event{
		raised(p, t), {at: begin, do: doJoin}, {at: t, do: doHang, who: 0, d: gone + 25*ms - t}, {at: t + 10*ms, do: doPolicy, n: high - 1},
		{at: gone - ms, do: doHang, who: 1, d: int64(p.policy.Freshness) + 100*ms}, {at: gone, do: doRemove, who: 1},
		{at: gone + 10*ms, do: doCompact}, {at: gone + 15*ms, do: doReset, who: 0},
	}
}

// relistedSlowly: one lists again, and etcd commits its mark only after another's key was
// deleted. The other hears nothing of that, and issues its share still.
func relistedSlowly(p *plan, r *rand.Rand, t int64, _ int) []event {
	p.size = 2
	d := 400*ms + r.Int64N(400*ms)
	gone := t + 50*ms + d - 10*ms - r.Int64N(40*ms)
	return []event{
		raised(p, t), {at: t, do: doHang, who: 0, d: 60 * ms}, {at: t + 10*ms, do: doPolicy, n: high - 1}, {at: t + 20*ms, do: doPolicy, n: high},
		{at: t + 30*ms, do: doCompact}, {at: t + 35*ms, do: doReset, who: 0}, {at: t + 50*ms, do: doLag, who: 0, d: d},
		{at: gone - ms, do: doHang, who: 1, d: int64(p.policy.Freshness) + 100*ms}, {at: gone, do: doRemove, who: 1},
	}
}

// goneUnseen: one joins and leaves, and another misses both events.
func goneUnseen(p *plan, r *rand.Rand, t int64, who int) []event {
	length := int64(p.policy.Limits[0].Window)
	gone := t + int64(p.policy.Settle) + 2*length + 200*ms + r.Int64N(3*length)
	return []event{raised(p, t), {at: t, do: doJoin}, {at: t + 1, do: doHang, who: who, d: gone + length - t}, {at: gone, do: doRemove, who: newest}}
}

// hasty: somebody writes a settle time that is too short, and others join of whom one
// hears nothing.
func hasty(p *plan, r *rand.Rand, t int64, who int) []event {
	return append(deafThrough(doJoin, 0)(p, r, t, who), event{at: begin, do: doHasty, n: high})
}

// removedAndFollowed: the keys of a whole fleet that hears nothing are deleted, and another
// instance starts.
func removedAndFollowed(p *plan, r *rand.Rand, t int64, _ int) (all []event) {
	p.size = 1
	for n := range int64(3) {
		at := t + n*1400*ms
		for who := range 2 + int(n) {
			all = append(all, event{at: at, do: doHang, who: who, d: int64(p.policy.Freshness) + 100*ms}, event{at: at + 1 + r.Int64N(10*ms), do: doRemove, who: who})
		}
		all = append(all, event{at: at + 12*ms + r.Int64N(60*ms), do: doJoin})
	}
	return append(all, raised(p, t))
}

// leavesAndIsFollowed: an instance is alone, and announces its end. Somebody deletes its key,
// of which it hears nothing, and another starts.
func leavesAndIsFollowed(p *plan, r *rand.Rand, t int64, _ int) []event {
	p.size = 1
	gone := t + 20*ms + r.Int64N(60*ms)
	return []event{
		raised(p, t), {at: t, do: doLeave, who: 0}, {at: gone, do: doHang, who: 0, d: 900 * ms}, {at: gone + ms, do: doRemove},
		{at: gone - r.Int64N(60*ms), do: doJoin},
	}
}

// closedAndFollowed: an instance closes when a window has begun by its clock, and the next one
// starts before that has begun by its own.
func closedAndFollowed(p *plan, r *rand.Rand, t int64, _ int) []event {
	p.size = 1
	length := int64(p.policy.Limits[0].Window)
	at := t/length*length - p.osError() + 5*ms + r.Int64N(20*ms)
	return []event{
		raised(p, t-500*ms), {at: t - 1500*ms, do: doSetClock, who: 0, n: extreme}, {at: at, do: doQuit, who: 0},
		{at: at - 30*ms + r.Int64N(80*ms), do: doJoin},
	}
}
