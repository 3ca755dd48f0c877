package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is back-offs: a provider asks instances for a pause, they write that into
// the key, and those that see it are held back. It is what consumer and coordinator
// do about it; the key is read and counted by the real code.

// pauses are what a host knows of pauses: monotonic instants before which the
// application, the provider that it called, and the fleet want nothing.
type pauses struct {
	own, told, fleet int64
	backoff          view.KnownBackoff
	seen             map[sight]int64 // when it saw which revision of the key first
	spans            []span          // true times in which it is held back
}

// sight is a revision of one of etcd's lives.
type sight struct {
	life     int
	revision int64
}

func (p *pauses) longest() int64 { return max(p.own, p.told, p.fleet) }

// pushBacks lets providers ask for pauses, and operators end them.
func (p *plan) pushBacks(r *rand.Rand) {
	for r.IntN(2) == 0 {
		at := r.Int64N(p.end)
		p.add(r, at, doPushBack)
		if r.IntN(2) == 0 {
			p.add(r, at+r.Int64N(800*ms), doEndBackoff)
		}
	}
}

// pushBack lets the provider ask some hosts, or all, for a pause: a short one, or one
// of days. Now and then somebody forges that it did.
func (w *world) pushBack(r *rand.Rand) string {
	if !w.dense && r.IntN(4) == 0 {
		w.forgeBackoff(r)
		return " (forged)"
	}
	n, part := 0, 1+r.IntN(4)
	for _, h := range w.hosts {
		d, alone := 20*ms+r.Int64N(600*ms), r.IntN(6) == 0
		switch r.IntN(6) {
		case 0:
			d = int64(72 * time.Hour)
		case 1:
			d = 0
		}
		at := w.now + r.Int64N(300*ms)
		if !h.dead && r.IntN(4) < part {
			w.at(at, func() { h.itself(func() { h.pushBack(d, alone) }) })
			n++
		}
	}
	return fmt.Sprintf(" to %d", n)
}

// forgeBackoff writes asks by anybody, for as long as one likes, or garbage.
func (w *world) forgeBackoff(r *rand.Rand) {
	w.forged = true
	var b protocol.Backoff
	for range 1 + r.IntN(3) {
		until := wallTime(w.now+r.Int64N(3000*ms)).AddDate(0, 0, 3*r.IntN(2))
		b.Asks = append(b.Asks, protocol.Ask{By: w.anybody(r), At: wallTime(w.now), Until: until, Alone: r.IntN(2) == 0})
	}
	value := encoded(b)
	if r.IntN(6) == 0 {
		value = w.rubbish()
	}
	w.etcd.write(func() { w.etcd.commit(change{backoff: value}) })
}

func encoded(b protocol.Backoff) []byte {
	value, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return value
}

// endBackoff is an operator's.
func (w *world) endBackoff() {
	w.etcd.write(func() {
		if w.etcd.backoff().Revision != 0 {
			w.etcd.commit(change{resumed: true})
		}
	})
}

// backoff returns the key as it is; the zero key if it is not there.
func (e *etcd) backoff() (k view.Key) {
	for _, x := range e.states[e.current()].keys {
		if x.Kind == view.Backoff {
			k = x
		}
	}
	return k
}

// pushBack is Limiter.PushBack. Without a duration only an instance that has many
// calls refused pauses.
func (h *host) pushBack(d int64, alone bool) {
	if h.shut || d <= 0 && !alone {
		return
	}
	if d <= 0 {
		d = 1000 * ms
	}
	mono := h.read().Mono
	h.told = max(h.told, mono+min(d, int64(protocol.MaxBackoff(h.policy))))
	if h.policy != nil && h.policy.Backoff == quota.BackoffFleet {
		h.writeAsk(protocol.Ask{At: h.wallAt(mono), Until: h.wallAt(h.told), Alone: alone}, h.backoff.Backoff, h.backoff.Revision, true)
	}
	h.pause(true)
}

func (h *host) wallAt(mono int64) time.Time { return time.Unix(0, h.clock.WallAt(mono)) }

// writeAsk writes an ask on what is known of the key, and again until it adds nothing:
// at once, the first time, if the key is another one by now.
func (h *host) writeAsk(ask protocol.Ask, known protocol.Backoff, revision int64, first bool) {
	ask.By = h.id
	if !h.registered || h.shut || h.policy == nil || h.policy.Backoff != quota.BackoffFleet ||
		!known.Adds(ask, protocol.Quorum(h.policy, h.tracker.Instances()), h.wallAt(h.read().Mono)) {
		return
	}
	value, created, life, answered := encoded(known.With(ask)), h.created, h.etcd.life, false
	again := func() { h.writeAsk(ask, h.backoff.Backoff, h.backoff.Revision, true) }
	h.at(h.now+500*ms, func() {
		if !answered {
			answered = true
			again()
		}
	})
	h.call(func(int) {
		h.etcd.write(func() {
			if h.etcd.life != life {
				return // its connection is gone
			}
			k := h.etcd.backoff()
			written := k.Revision == revision && h.etcd.created(ask.By) == created
			if written {
				h.askers[ask.By] = true
				h.refused = h.refused || ask.Alone
				h.etcd.commit(change{backoff: value})
			}
			h.answer(func() {
				switch {
				case answered || written:
				case first:
					h.writeAsk(ask, h.asksIn(k.Value), k.Revision, false)
				default:
					h.at(h.now+500*ms, again)
				}
				answered = true
			})
		})
	})
}

// asksIn is coordinator's: what counts of the key's value from now on.
func (h *host) asksIn(value []byte) protocol.Backoff {
	b, _ := h.tracker.AsksIn(value, h.wallAt(h.read().Mono).Add(protocol.MaxBackoff(h.policy)))
	return b
}

// heed obeys the key, if it has changed. What it must not do is said without the rule: be held
// back for longer than backoff_max from when it saw the revision first, or by fewer
// than a quorum.
func (h *host) heed(news bool) {
	if !news || h.shut {
		return
	}
	now, at := h.read().Mono, sight{h.etcd.life, h.backoff.Revision}
	first, known := h.seen[at]
	if !known {
		first, h.seen[at] = now, now
	}
	switch {
	case h.backoff.Revision == 0:
		h.told, h.fleet = 0, 0
	case h.policy != nil && h.policy.Backoff == quota.BackoffFleet:
		quorum := protocol.Quorum(h.policy, h.tracker.Instances())
		ask, ok := h.backoff.Binding(quorum)
		d := ask.Until.UnixNano() - h.clock.WallAt(now)
		if !ok || d <= 0 {
			return
		}
		if late := now + d - first - int64(protocol.MaxBackoff(h.policy)); late > 0 {
			h.wrong("is held back by revision %d for %v longer than it may", h.backoff.Revision, time.Duration(late))
		}
		if n := len(h.askers); !h.forged && !h.refused && n < quorum {
			h.wrong("is held back by %d instances, the quorum is %d", n, quorum)
		}
		h.fleet = max(h.fleet, now+d)
		h.stats.HeldBack++
	}
	h.pause(true)
}

// pause has the longest pause obeyed, or its early end.
func (h *host) pause(warm bool) {
	until, was, now := h.longest(), h.planner.PausedUntil(), h.read()
	if until == was || max(until, was) <= now.Mono {
		return
	}
	if n := len(h.spans); n > 0 {
		h.spans[n-1].to = min(h.spans[n-1].to, h.now)
	}
	h.spans = append(h.spans, span{h.now, h.now + max(0, until-now.Mono)})
	h.planner.PauseUntil(max(until, now.Mono), warm)
	h.gate.Changed(now)
	h.ringAtEnd()
}

// pausedIn reports whether any host is held back in some of a window, or warms up again
// after that.
func (w *world) pausedIn(win quota.Window) bool {
	from, to := win.Start()-epoch-w.e, win.End()-epoch+w.e
	for _, h := range w.hosts {
		for _, s := range h.spans {
			if s.from < to && from < s.to+2010*ms { // by clocks that run fast or slow
				return true
			}
		}
	}
	return false
}

func backoffMutants() []Mutant {
	return []Mutant{
		{Name: "PauseUnbounded", Otherwise: true, Led: []action{doPushBack}},
		{Name: "StrayAskCounts", Otherwise: true, Led: []action{doPushBack}},
		{Name: "BackoffCountsAgain", Otherwise: true, Led: []action{doPushBack, doEndWatch}},
	}
}
