package shipped

import (
	"encoding/json"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// action is a kind of event.
type action int

// The actions.
const (
	doPolicy     action = iota // another total
	doJoin                     // a new instance
	doLeave                    // one leaves, announced
	doQuit                     // one closes at once
	doCrash                    // one is gone without a word
	doCut                      // nothing goes between one and etcd
	doHang                     // nothing comes to one by streams
	doSlow                     // answers to one come late
	doReset                    // one's connection breaks
	doStall                    // one stands still
	doSleep                    // one's machine is suspended
	doLeaderless               // etcd has no leader
	doFreeze                   // etcd commits nothing
	doCompact                  // etcd forgets old revisions
	doRemove                   // somebody deletes an instance's key
	doRestore                  // a backup is put back
	doFlash                    // likewise, from just before a change of which some have been told
	actions
)

func (a action) String() string {
	return [...]string{"policy", "join", "leave", "quit", "crash", "cut", "hang", "slow", "reset", "stall", "sleep", "leaderless", "freeze", "compact", "remove", "restore", "flash"}[a]
}

// often is what happens, as often as it stands here.
var often = []action{
	doPolicy, doPolicy, doPolicy, doJoin, doJoin, doLeave, doQuit, doCrash, doCut, doHang, doHang, doSlow, doReset, doStall, doSleep, doLeaderless, doFreeze, doCompact, doRemove,
}

// happen lets an event happen.
func (w *world) happen(e event) {
	all := w.all()
	i := all[e.who%len(all)]
	w.trace(e.do.String(), i.name, nil)
	w.mu.Lock()
	w.stats.events[e.do]++
	w.mu.Unlock()
	switch e.do {
	case doPolicy:
		w.setPolicy(func(p *quota.Policy) { p.Limits = []quota.Limit{{Permits: e.n, Window: p.Limits[0].Window}} })
	case doJoin:
		if len(all) < 8 {
			w.join()
		}
	case doLeave:
		i.leave(true)
	case doQuit:
		i.leave(false)
	case doCrash:
		i.crash()
	case doCut:
		i.link.block(&i.link.cuts, e.d)
	case doHang:
		i.link.block(&i.link.hangs, e.d)
	case doSlow:
		i.link.slow(e.d, e.n)
	case doReset:
		i.link.reset()
	case doStall:
		i.stand(e.d)
	case doSleep:
		i.sleep(e.d)
	case doLeaderless:
		w.server.hold(&w.server.leaderless, w.now()+e.d/2)
	case doFreeze:
		w.server.hold(&w.server.frozen, w.now()+e.d/2)
	case doCompact:
		w.server.mu.Lock()
		_ = w.server.store.compact(max(w.server.store.revision-e.n, 1))
		w.server.mu.Unlock()
	case doRemove:
		w.remove(e.who)
	case doRestore:
		w.restore(e)
	case doFlash:
		w.flash(e)
	}
}

// remove deletes the key of an instance.
func (w *world) remove(who int) {
	folder := layout.Instances(provider)
	a, err := w.server.serve(&pb.RangeRequest{Key: []byte(folder), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(folder))})
	if err != nil {
		panic(err)
	}
	if kvs := a.(*pb.RangeResponse).Kvs; len(kvs) > 0 && w.server.writable() {
		_, _ = w.server.serve(&pb.DeleteRangeRequest{Key: kvs[who%len(kvs)].Key})
	}
}

// restore puts a backup back: etcd is away for a while, and committed nothing that
// matters before the new one has been silent for the freshness (docs/protocol.md,
// section 11).
func (w *world) restore(e event) {
	w.states.restore(func() { w.server.restore(e.n) })
	freshness := int64(w.policy.Freshness)
	w.server.hold(&w.server.leaderless, w.now()+e.d)
	w.server.hold(&w.server.frozen, w.now()+freshness+freshness/500+e.d/2+ms)
}

// flash has a total committed, and told, that the backup does not have.
func (w *world) flash(e event) {
	if !w.server.writable() {
		return
	}
	p := w.policy
	p.Limits = []quota.Limit{{Permits: e.n, Window: p.Limits[0].Window}}
	value, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	_, _ = w.server.serve(putOf(layout.Policy(provider), string(value)))
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
	return s.now() >= max(s.leaderless, s.frozen)
}

func putOf(key, value string) *pb.PutRequest {
	return &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
}
