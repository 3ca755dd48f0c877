package shipped

import (
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

var layout = func() keys.Layout {
	l, err := keys.New("")
	if err != nil {
		panic(err)
	}
	return l
}()

// states are what the provider's keys have been, by the true time at which they became
// so: what histories are judged by.
type states struct {
	now   func() int64
	store *store

	mu       sync.Mutex
	tracker  view.Tracker
	revision int64
	all      []state
}

// state is the provider's view from a true time on.
type state struct {
	at   int64
	view protocol.View
	lost bool // a restore took it back
}

func newStates(now func() int64, s *store) *states {
	x := &states{now: now, store: s}
	x.list()
	return x
}

// list begins anew with what the store has.
func (x *states) list() {
	folder := layout.Provider(provider)
	x.tracker = view.Tracker{}
	var all []view.Key
	for _, kv := range x.store.in(folder, clientv3.GetPrefixRangeEnd(folder), x.store.revision) {
		all = append(all, parse(kv, false))
	}
	x.revision = x.store.revision
	x.add(x.tracker.List(readAt(x.now()), x.revision, 1, all))
}

func (x *states) add(v protocol.View) {
	at := x.now()
	if n := len(x.all); n > 0 {
		at = max(at, x.all[n-1].at+1)
	}
	x.all = append(x.all, state{at: at, view: v})
}

// commit notes what was committed, under the server's lock.
func (x *states) commit() {
	x.mu.Lock()
	defer x.mu.Unlock()
	folder := layout.Provider(provider)
	var events []view.Key
	for _, e := range x.store.since(x.revision+1, x.store.revision, folder, clientv3.GetPrefixRangeEnd(folder)) {
		events = append(events, parse(e.Kv, e.Type == mvccpb.Event_DELETE))
	}
	x.revision = x.store.revision
	changes, _ := x.tracker.Events(events)
	for _, c := range changes {
		x.add(after(x.all[len(x.all)-1].view, c))
	}
}

// restore notes a restore.
func (x *states) restore(do func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	do()
	for i := range x.all {
		if x.all[i].view.Revision > x.store.revision {
			x.all[i].lost = true
		}
	}
	x.list()
}

// at returns the number of the newest state by true time t, -1 before the first.
func (x *states) at(t int64) int {
	n, _ := slices.BinarySearchFunc(x.all, t, func(s state, t int64) int {
		if s.at <= t {
			return -1
		}
		return 1
	})
	return n - 1
}

// after is a view after a change.
func after(v protocol.View, c protocol.Change) protocol.View {
	v.Revision = c.Revision
	if c.Policy != nil || c.PolicyDeleted {
		v.Policy, v.PolicyRevision = c.Policy, c.Revision
	}
	if c.Level != nil || c.LevelDeleted {
		v.Level = c.Level
	}
	if c.Pace != nil || c.PaceDeleted {
		v.Pace = c.Pace
	}
	v.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i quota.Instance) bool {
		return slices.Contains(c.Deleted, i.ID) || slices.ContainsFunc(c.Put, func(p quota.Instance) bool { return p.ID == i.ID })
	})
	v.Instances = append(v.Instances, c.Put...)
	return v
}

// parse reads a key as coordinator does.
func parse(kv *mvccpb.KeyValue, deleted bool) view.Key {
	k := view.Key{Revision: kv.ModRevision, Deleted: deleted, Value: kv.Value}
	switch key := string(kv.Key); key {
	case layout.Policy(provider):
		k.Kind = view.Policy
	case layout.Level(provider):
		k.Kind = view.Level
	case layout.Pace(provider):
		k.Kind = view.Pace
	case layout.Backoff(provider):
		k.Kind = view.Backoff
	default:
		if id, ok := keys.IncarnationIn(layout.Instances(provider), key); ok {
			k.Kind, k.ID = view.Instance, id
		}
	}
	return k
}
