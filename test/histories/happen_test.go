package histories

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// action is a kind of event.
type action int

// The actions.
const (
	doPolicy     action = iota // another total
	doTimes                    // another freshness, and the settle time that it needs
	doHasty                    // a settle time that is too short
	doChange                   // another policy
	doAnnounce                 // limits that change later
	doJoin                     // a new instance
	doLeave                    // one leaves, announced
	doQuit                     // one closes at once
	doCrash                    // one is gone without a word
	doNamesake                 // one's key is deleted, and another of its name starts
	doCut                      // nothing goes between one and etcd
	doHang                     // nothing comes to one by streams
	doSlow                     // answers to one come late
	doLag                      // one's member of etcd commits nothing new
	doReset                    // one's connection breaks
	doStall                    // one stands still
	doSleep                    // one's machine is suspended
	doSetClock                 // one's operating system's clock is set
	doLeaderless               // etcd has no leader
	doFreeze                   // etcd commits nothing
	doCompact                  // etcd forgets old revisions
	doRemove                   // somebody deletes an instance's key
	doForge                    // somebody writes what no instance would
	doForgeKey                 // likewise, an instance's key
	doPushBack                 // the provider asks some for a pause
	doEndBackoff               // an operator ends that
	doDrain                    // the application asks one for a pause
	doRest                     // one's callers want nothing
	doRestore                  // a backup is put back
	doFlash                    // likewise, from just before a change of which some have been told
	doShutDown                 // etcd is shut down as on SIGTERM, and started again
	doEmpty                    // etcd comes back without any data, and policies are set again
	actions
)

func (a action) String() string {
	return [...]string{"policy", "times", "hasty", "change", "announce", "join", "leave", "quit", "crash", "namesake", "cut", "hang", "slow", "lag", "reset", "stall",
		"sleep", "clock set", "leaderless", "freeze", "compact", "remove", "forge", "forge a key", "push back", "end of back-off", "drain", "rest", "restore", "flash", "shut down", "empty"}[a]
}

// often is what happens to histories of a kind, as often as it stands here.
func (k kind) often() []action {
	fleet := []action{doPolicy, doPolicy, doPolicy, doAnnounce, doJoin, doJoin, doLeave, doQuit}
	switch k {
	case calm:
		return []action{doJoin, doLeave, doAnnounce}
	case hold:
		return append(fleet, doPolicy, doCrash, doStall, doHang, doReset, doSlow, doLag)
	case split:
		return append(fleet, doCrash, doCut, doCut, doCut, doStall, doHang, doLag)
	}
	fleet = append(fleet, doCrash, doCut, doHang, doHang, doSlow, doLag, doReset, doStall, doSleep, doLeaderless, doFreeze, doCompact, doRemove)
	switch k {
	case measured:
		return append(fleet, doSetClock, doSetClock, doSetClock)
	case faults, restore:
		return fleet
	case inflight, sliding:
		return append(fleet, doChange, doChange, doCrash, doSetClock)
	}
	return append(fleet, doSetClock)
}

// newest stands for the newest instance in an event.
const newest = -1

// mostInstances bounds a fleet.
const mostInstances = 9

// happen lets an event happen.
func (w *world) happen(e event) {
	all := w.all()
	if e.who == newest {
		e.who = len(all) - 1
	}
	i, f, r := all[e.who%len(all)], w.fleets[e.who%len(w.fleets)], rand.New(rand.NewPCG(w.seed, uint64(e.at)))
	w.trace(e.do.String(), i.name, nil)
	w.mu.Lock()
	w.stats.events[e.do]++
	w.mu.Unlock()
	if !w.happenToFleet(e, f, r) {
		w.happenTo(i, e, r)
	}
}

// happenToFleet lets an event happen that is not about one instance.
func (w *world) happenToFleet(e event, f *fleet, r *rand.Rand) bool {
	if w.keyed && (e.do == doPolicy || e.do == doChange || e.do == doJoin) {
		w.overrideKeys(f, uint64(e.at))
	}
	switch e.do {
	case doPolicy:
		w.setPolicy(f, func(p quota.Policy) *quota.Policy {
			if p.InFlight() {
				p.Limits = []quota.Limit{{Permits: e.n, Window: p.Limits[0].Window, InFlight: true}}
				return &p
			}
			p.Limits = append([]quota.Limit{{Permits: e.n, Window: p.Limits[0].Window}}, protocol.Long(&p)...)
			p.Burst = min(p.Burst, e.n)
			for i := range p.Keys.Limits {
				p.Keys.Limits[i].Permits = e.n
			}
			return &p
		})
	case doChange:
		if r.IntN(12) == 0 && w.kind != inflight {
			w.deletePolicy(f)
		}
		w.setPolicy(f, func(p quota.Policy) *quota.Policy { return w.change(r, &p) })
	case doAnnounce:
		w.setPolicy(f, func(p quota.Policy) *quota.Policy { return w.announced(r, &p) })
	case doJoin:
		if len(w.all()) < mostInstances-1 {
			w.join()
		}
	case doLeaderless:
		w.server.hold(&w.server.leaderless, w.now()+e.d/2)
	case doFreeze:
		w.server.hold(&w.server.frozen, w.now()+e.d/2)
	case doShutDown:
		w.shutDown(e.d, e.n)
	case doCompact:
		w.server.mu.Lock()
		_ = w.server.store.compact(max(w.server.store.revision-e.n, 1))
		w.server.mu.Unlock()
	case doRemove:
		f.remove(e.who)
	case doTimes:
		w.setPolicy(f, func(p quota.Policy) *quota.Policy {
			p.Freshness = time.Duration(e.n) * time.Millisecond
			p.Settle = quota.MinSettleFor(p.Freshness, p.ClockError, w.drift())
			return &p
		})
	case doHasty:
		w.forging()
		p := w.policy
		p.Limits = append([]quota.Limit{{Permits: e.n, Window: p.Limits[0].Window}}, protocol.Long(&p)...)
		p.Settle = p.Freshness
		f.write(layout.Policy(f.provider), encoded(p))
	case doForge:
		w.forging()
		f.forgeAgain(r)
	case doForgeKey:
		w.forging()
		f.forgeKey(e.who, e.n)
	case doPushBack:
		f.pushBack(r)
	case doEndBackoff:
		w.operate(func(ctx context.Context) { _, _ = w.admin.Resume(ctx, f.provider) })
	case doRestore:
		w.restore(e)
	case doFlash:
		w.flash(f, e)
	case doEmpty:
		w.restore(event{n: math.MaxInt64, d: e.d})
		for _, f := range w.fleets {
			w.setPolicy(f, func(p quota.Policy) *quota.Policy { return &p })
		}
	default:
		return false
	}
	return true
}

// happenTo lets an event happen to an instance.
func (w *world) happenTo(i *instance, e event, r *rand.Rand) {
	switch e.do {
	case doLeave:
		i.leave(true)
	case doQuit:
		i.leave(false)
	case doCrash:
		i.crash()
	case doNamesake:
		w.fleets[0].removeOf(i)
		w.start(r).name = i.name
	case doCut:
		i.link.block(&i.link.cuts, e.d)
	case doHang:
		i.link.block(&i.link.hangs, e.d)
	case doLag:
		i.link.block(&i.link.lags, e.d)
	case doSlow:
		i.link.slow(e.d, e.n)
	case doReset:
		i.link.reset()
	case doStall:
		i.stand(e.d)
	case doSleep:
		i.sleep(e.d)
	case doSetClock:
		if e.n == extreme {
			i.reader.setAhead(w.plan, w.now())
		} else {
			i.reader.setClock(w.plan, r, w.now())
		}
	case doRest:
		w.mu.Lock()
		i.rests = w.now() + e.d
		w.mu.Unlock()
	case doDrain:
		i.drain(min(mostDrain, time.Duration(e.d/2)))
	}
}

// removeOf deletes the key of an instance.
func (f *fleet) removeOf(i *instance) {
	for _, id := range f.ids() {
		if strings.HasPrefix(id, i.name+".") && f.server.writable() {
			f.write(layout.Instance(f.provider, id), nil)
		}
	}
}

func (w *world) forging() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forged = true
}

// remove deletes the key of an instance.
func (f *fleet) remove(who int) {
	if ids := f.ids(); len(ids) > 0 && f.server.writable() {
		f.write(layout.Instance(f.provider, ids[who%len(ids)]), nil)
	}
}

// mostDrain bounds the pauses that the application asks for.
const mostDrain = 600 * time.Millisecond

// drain is the application's: nothing is issued for a while.
func (i *instance) drain(d time.Duration) {
	if i.gone() || !i.running() {
		return
	}
	now := i.reader.read()
	for n, l := range i.limiters() {
		i.w.fleets[n].holdBack(span{i.w.now(), i.w.now() + int64(d)})
		l.PauseUntil(time.Now().Add(d))
	}
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	i.drained = max(i.drained, now.Mono+int64(d))
	i.drains++
}

// holdBack notes that somebody is held back in a part of true time.
func (f *fleet) holdBack(s span) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.held = append(f.held, s)
}

// pushBack lets the provider ask some instances, or all, for a pause: a short one, or one
// of days.
func (f *fleet) pushBack(r *rand.Rand) {
	f.holdBack(span{f.world.now(), f.world.now() + 30_000*ms})
	part := 1 + r.IntN(4)
	for _, i := range f.all() {
		d, at := time.Duration(20*ms+r.Int64N(600*ms)), f.world.now()+r.Int64N(300*ms)
		switch r.IntN(6) {
		case 0:
			d = 72 * time.Hour
		case 1:
			d = 0
		}
		if r.IntN(4) < part {
			f.at(at, func() { i.pushBack(f, d) })
		}
	}
}

func (i *instance) pushBack(f *fleet, d time.Duration) {
	for n, l := range i.limiters() {
		if i.w.fleets[n] == f && i.running() {
			i.w.mu.Lock()
			i.w.pushed[i.name]++
			i.w.mu.Unlock()
			l.Throttled(d, "")
		}
	}
}

// restore puts a backup back as docs/run.md says, so that the cluster has another
// ID. etcd is away for a while, and commits nothing before the freshness has passed.
func (w *world) restore(e event) {
	w.server.restore(e.n)
	for _, f := range w.fleets {
		f.restored()
	}
	freshness := int64(w.policy.Freshness)
	w.server.hold(&w.server.leaderless, w.now()+e.d)
	w.server.hold(&w.server.frozen, w.now()+freshness+freshness/500+e.d/2+ms)
}

// flash has a total committed, and told, that the backup does not have.
func (w *world) flash(f *fleet, e event) {
	if !w.server.writable() {
		return
	}
	p := w.policy
	p.Limits = append([]quota.Limit{{Permits: e.n, Window: p.Limits[0].Window}}, protocol.Long(&p)...)
	f.write(layout.Policy(f.provider), encoded(p))
	w.server.mu.Lock()
	for _, s := range w.server.streams {
		s.pump()
	}
	w.server.mu.Unlock()
	w.restore(event{n: 1, d: e.d})
}

func (s *server) hold(what *int64, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what = max(*what, until)
}

// writable reports whether something can be committed now.
func (s *server) writable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return now >= max(s.leaderless, s.frozen) && s.outage == 0 && s.shut.takes(now, now) == now
}

func putOf(key, value string) *pb.PutRequest {
	return &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
}
