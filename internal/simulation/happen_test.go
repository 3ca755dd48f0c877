package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// happen lets an event happen.
func (w *world) happen(e *event) {
	r := rand.New(rand.NewPCG(e.seed, 3))
	w.stats.Events[e.do]++
	e.text = e.do.String()
	switch e.do {
	case doJoin:
		h := w.startHost(r, w.kind == Calm || r.IntN(2) == 0)
		e.text += " of " + h.name
	case doPolicy:
		w.changePolicy(r)
	case doAnnounce:
		w.announce(r)
	case doTamper:
		e.text += w.tamper(r)
	case doLag, doAlone, doLeaderless, doCompact, doRestore, doOutage:
		w.trouble(e, r)
	case doPushBack:
		e.text += w.pushBack(r)
	case doEndBackoff:
		w.endBackoff()
	case doPace:
		w.changePace(r)
	case doReplace:
		if h := w.running(r); h != nil {
			e.text += " of " + h.name
			h.replace(r)
		}
	default:
		if h := w.alive(r); h != nil {
			e.text += " of " + h.name
			h.suffer(e, r)
		}
	}
}

// alive returns a random host that is not leaving. In a calm history the first
// one stays.
func (w *world) alive(r *rand.Rand) *host {
	var live []*host
	for i, h := range w.hosts {
		if !h.leaving && !h.dead && (i > 0 || w.kind != Calm) {
			live = append(live, h)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[r.IntN(len(live))]
}

// running returns a random host that is not dead.
func (w *world) running(r *rand.Rand) *host {
	all := slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.dead })
	if len(all) == 0 {
		return nil
	}
	return all[r.IntN(len(all))]
}

// ahead is how far ahead something is announced: mostly enough, not always.
func (w *world) ahead(r *rand.Rand) int64 {
	if w.kind != Calm && r.IntN(4) == 0 {
		return r.Int64N(w.settle())
	}
	return w.settle() + 2*w.e + 200*ms + r.Int64N(200*ms)
}

// suffer lets an event happen to a host.
func (h *host) suffer(e *event, r *rand.Rand) {
	s := h.settle()
	tell := func(d int64) { e.text += fmt.Sprintf(" for %v", time.Duration(d).Round(time.Millisecond)) }
	switch e.do {
	case doLeave:
		h.itself(func() {
			until := wallTime(h.now + h.ahead(r))
			if h.policy != nil && (h.kind == Calm || r.IntN(2) == 0) {
				until = protocol.LastWindow(h.clock.WallAt(h.read().Mono), h.policy)
			}
			h.leave(until)
		})
	case doQuit:
		h.itself(h.quit)
	case doCrash:
		h.crash(r)
	case doExpire:
		h.expire(r)
	case doCut:
		d := 1 + r.Int64N(2*s)
		h.cuts = append(h.cuts, h.spanOf(d))
		tell(d)
	case doHang:
		d := 1 + r.Int64N(3*s)
		h.hangs = append(h.hangs, h.spanOf(d))
		tell(d)
	case doStall:
		d := 1 + r.Int64N(s+200*ms)
		h.stall(d)
		tell(d)
	case doSleep:
		d := h.slumber(r, s)
		if n := len(h.machine.sleeps); len(h.machine.backs) == 0 && (h.kind != Measured || len(h.machine.sets) == 0) && (n == 0 || h.machine.sleeps[n-1].to < h.now) {
			h.sleep(d)
			tell(d)
		}
	case doSetClock:
		h.setClock(r)
	case doDrain:
		d := r.Int64N(600 * ms)
		h.itself(func() { h.drain(d) })
		tell(d)
	case doEndWatch:
		if h.stream != nil {
			h.stream.end()
		}
	}
}

// itself lets a host do what it is told, unless it is on its way out: at once, or
// when it runs again. Who sleeps does not look at its clocks.
func (h *host) itself(do func()) {
	h.at(h.now, func() {
		if !h.leaving {
			do()
		}
	})
}

// slumber is how long a host is suspended. What is shorter than the clock's
// threshold goes unseen, which only a clock error above that allows for.
func (h *host) slumber(r *rand.Rand, s int64) int64 {
	if h.kind == Measured {
		return 30*ms + r.Int64N(s)
	}
	if h.e <= 28*ms {
		return 30*ms + 2*h.osError() + r.Int64N(s)
	}
	return 1 + r.Int64N(s)
}

// setClock sets the operating system's clock: within its error, or far back and
// right again later. Both a suspension and a clock that is set back would be more
// than corrected time can bear: nothing is left to tell it by.
func (h *host) setClock(r *rand.Rand) {
	if h.kind == Measured {
		h.setMeasured()
		return
	}
	if len(h.machine.backs) > 0 {
		return
	}
	if bound := h.osError(); r.IntN(2) == 0 || len(h.machine.sleeps) > 0 {
		h.shiftClock(r.Int64N(2*bound+1) - bound)
		return
	}
	back := -(h.e + r.Int64N(10_000*ms))
	until := h.now + 1 + r.Int64N(1000*ms)
	h.machine.sets = append(h.machine.sets, set{h.now, back}, set{until, -back})
	h.machine.backs = append(h.machine.backs, span{h.now, until})
}

// shiftClock sets the operating system's clock to an error.
func (h *host) shiftClock(err int64) {
	now := h.machine.os(h.now) - epoch - h.now
	h.machine.sets = append(h.machine.sets, set{h.now, err - now})
}

// crash ends the process; the lease runs out later. Often it starts again.
func (h *host) crash(r *rand.Rand) {
	h.leaving, h.dead = true, true
	h.world.at(h.now+r.Int64N(2*h.settle()), func() {
		h.lapsed = true
		h.lapse()
	})
	h.again(r)
}

// expire takes the key from a living instance, which may be cut off. Another
// process may start meanwhile.
func (h *host) expire(r *rand.Rand) {
	if r.IntN(2) == 0 {
		h.cuts = append(h.cuts, h.spanOf(1+r.Int64N(2*h.settle())))
	}
	h.lapse()
	if h.trick(SameID) {
		h.again(r)
	}
}

func (h *host) again(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	h.world.at(h.now+r.Int64N(400*ms), func() {
		n := h.startHost(rand.New(rand.NewPCG(r.Uint64(), 5)), r.IntN(2) == 0)
		if h.trick(SameID) {
			n.name = h.name
		}
	})
}

// trouble lets an event happen to etcd.
func (w *world) trouble(e *event, r *rand.Rand) {
	s := w.settle()
	m := &w.etcd.members[r.IntN(len(w.etcd.members))]
	d := 1 + r.Int64N(2*s)
	switch e.do {
	case doLag:
		was := m.lag
		m.lag = r.Int64N(300 * ms)
		w.at(w.now+d, func() { m.lag = was })
	case doAlone:
		m.alone = append(m.alone, w.spanOf(d))
		// Watches that require a leader end, in a while.
		w.at(w.now+min(d, 300*ms+r.Int64N(200*ms)), func() {
			for _, st := range m.streams {
				st.end()
			}
		})
	case doLeaderless:
		d = 1 + r.Int64N(s)
		w.etcd.leaderless = append(w.etcd.leaderless, w.spanOf(d))
	case doCompact:
		w.etcd.compacted = w.etcd.revision() - r.Int64N(2)
		d = 0
	case doRestore:
		d = w.putBack(r)
	case doOutage:
		w.outage, d = w.now, 0
		for _, h := range w.hosts {
			h.knew = h.last
		}
	}
	if d > 0 {
		e.text += fmt.Sprintf(" for %v", time.Duration(d).Round(time.Millisecond))
	}
}

// putBack restores etcd from a backup. It is down for a while, and then writes
// nothing until S' has passed since it went down: a restore that is overtaken by
// new revisions faster than that is not promised to be noticed.
func (w *world) putBack(r *rand.Rand) int64 {
	freshness := int64(w.first.Freshness)
	least := freshness + freshness/100 + 2*w.e + 60*ms
	down := 1 + r.Int64N(2*least)
	w.etcd.leaderless = append(w.etcd.leaderless, w.spanOf(down))
	w.etcd.frozen = append(w.etcd.frozen, w.spanOf(max(down, least)))
	back, other := 1+r.Int64N(20), r.IntN(2) == 0
	w.at(w.now+down-1, func() {
		w.etcd.restore(back)
		if other {
			w.etcd.cluster++
		}
	})
	return down
}

// changePolicy commits a new policy, or none.
func (w *world) changePolicy(r *rand.Rand) {
	if r.IntN(12) == 0 {
		w.etcd.write(func() { w.etcd.commit(change{deleted: true}) })
		return
	}
	p := w.newPolicy(r, w.lastPolicy())
	switch r.IntN(20) {
	case 0, 1:
		p.Mode = quota.ModePause
	case 2:
		p.Requires = []string{"unheard-of"}
	case 3:
		p.From = wallTime(w.operatorsNow(r) + w.ahead(r))
	}
	if w.kind == Timing && p.Settle < w.lastPolicy().Settle {
		w.startHost(rand.New(rand.NewPCG(r.Uint64(), 5)), false) // it knows nothing of the longer time
	}
	w.setPolicy(p)
}

// operatorsNow is what an operator takes for now. Nothing is promised of operators'
// clocks: some are minutes off, one way or the other.
func (w *world) operatorsNow(r *rand.Rand) int64 {
	if w.kind == Calm || r.IntN(4) > 0 {
		return w.now
	}
	return w.now + []int64{5000 * ms, 120_000 * ms}[r.IntN(2)]*(2*r.Int64N(2)-1) + r.Int64N(200*ms)
}

// announce commits limits that begin later.
func (w *world) announce(r *rand.Rand) {
	old := w.lastPolicy()
	p := old.Clone()
	now := w.operatorsNow(r)
	begin := now + w.ahead(r)
	if !p.From.IsZero() {
		begin = max(begin, p.From.UnixNano()-epoch+1)
	}
	// A change that is in force may become the policy's own limits once the
	// last window before it has ended on every clock.
	if n := len(old.Next); n > 0 && old.Next[n-1].From.Before(wallTime(now-1000*ms-2*w.e)) {
		p.Limits = old.Next[n-1].Limits
	} else if n > 0 && w.kind == Calm {
		return
	}
	p.Next = []quota.LimitChange{{From: wallTime(begin), Limits: w.limits(r, old)}}
	p.Mode, p.Requires = "", nil
	w.setPolicy(&p)
}

// text tells a change in words.
func (c *change) tell() string {
	if c.text != "" {
		return c.text
	}
	var parts []string
	if p := c.policy; p != nil {
		parts = append(parts, fmt.Sprintf("policy %v mode %q S %v S' %v guard %v", p.Limits, p.Mode, p.Settle, p.Freshness, p.Guard))
		if protocol.Shaped(p) {
			parts = append(parts, fmt.Sprintf("shape %s, burst %d, warm-up %v", p.Shape, p.Burst, p.WarmUp))
		}
		if !p.From.IsZero() {
			parts = append(parts, fmt.Sprintf("in force from %.3fs", seconds(p.From.UnixNano()-epoch)))
		}
		if p.Share != "" && p.Share != quota.ShareEqual {
			parts = append(parts, fmt.Sprintf("by %s, floor %d, weights %v", p.Share, p.Floor, p.Weights))
		}
		if p.Adaptive.Floor > 0 {
			parts = append(parts, fmt.Sprintf("adaptive down to %d%%", p.Adaptive.Floor))
		}
		if len(p.Requires) > 0 {
			parts = append(parts, fmt.Sprintf("requires %v", p.Requires))
		}
		for _, n := range p.Next {
			parts = append(parts, fmt.Sprintf("then %v from %.3fs", n.Limits, seconds(n.From.UnixNano()-epoch)))
		}
	}
	if c.deleted {
		parts = append(parts, "policy deleted")
	}
	for _, i := range c.put {
		text := i.ID + " is put"
		if !i.From.IsZero() {
			text += fmt.Sprintf(", from %.3fs", seconds(i.From.UnixNano()-epoch))
		}
		if !i.Until.IsZero() {
			text += fmt.Sprintf(", until %.3fs", seconds(i.Until.UnixNano()-epoch))
		}
		parts = append(parts, text)
	}
	if l := c.level; l != nil {
		for _, e := range l.Entries {
			parts = append(parts, fmt.Sprintf("demands of revision %d from %.3fs: %x", e.Revision, seconds(e.From.UnixNano()-epoch), e.Demands))
		}
		parts = append(parts, fmt.Sprintf("until %.3fs", seconds(l.Until.UnixNano()-epoch)))
	}
	if c.levelGone {
		parts = append(parts, "level deleted")
	}
	if c.pace != nil {
		parts = append(parts, fmt.Sprintf("pace %s", quota.FormatLimits(c.pace.Limits)))
	}
	if c.paceGone {
		parts = append(parts, "pace deleted")
	}
	if c.backoff != nil {
		parts = append(parts, fmt.Sprintf("back-off %s", c.backoff))
	}
	if c.resumed {
		parts = append(parts, "back-off deleted")
	}
	if c.garbage != view.Other {
		parts = append(parts, "with garbage")
	}
	for _, id := range c.gone {
		parts = append(parts, id+" is gone")
	}
	return strings.Join(parts, "; ")
}

func seconds(t int64) float64 { return float64(t) / 1e9 }
