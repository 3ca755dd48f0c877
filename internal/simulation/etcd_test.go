package simulation

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// etcd is a cluster of three members with one line of revisions. Writes and
// linearizable reads need a leader; each member applies the line late, and one
// that is cut off from its peers applies nothing and goes on answering what it
// may answer alone.
type etcd struct {
	w       *world
	cluster uint64
	life    int     // counts the restores
	line    []entry // by revision, from 1 on
	// states are what the provider's keys have been, by the time at which they
	// became so. A restore makes one too. They are what histories are judged by.
	states    []state
	reports   []report // as written
	compacted int64    // revisions up to here are gone
	members   [3]member
	// no leader; no writes
	leaderless, frozen []span
}

// entry is one revision.
type entry struct {
	keys  []view.Key // events for the provider; none if others wrote
	state int        // the provider's state after it
}

// state is the provider's keys from a true time on.
type state struct {
	at   int64
	what change
	view protocol.View
	keys []view.Key
	lost bool // a restore took it back
}

// change is what a write does to the provider. The zero change is others'.
type change struct {
	policy  *quota.Policy
	deleted bool // the policy
	put     []quota.Instance
	gone    []string
	level   *protocol.Level
	// levelGone says that the level is deleted, garbage of which kind of keys the
	// values cannot be read; put then has what they are taken for.
	levelGone bool
	garbage   view.Kind
	pace      *protocol.Pace
	paceGone  bool   // the pace is deleted
	backoff   []byte // the back-off's key
	resumed   bool   // that is deleted
	text      string // what it is, if not told by the rest
}

// member is one etcd server.
type member struct {
	applied int64 // newest revision
	lag     int64 // how late it applies
	alone   []span
	streams []*stream
}

func newEtcd(w *world) etcd {
	e := etcd{w: w, cluster: 1, line: make([]entry, 0, 512), states: make([]state, 0, 64)}
	for i := range e.members {
		e.members[i].lag = w.Int64N(3 * ms)
	}
	return e
}

// revision returns the newest revision.
func (e *etcd) revision() int64 { return int64(len(e.line)) }

// current returns the number of the newest state, -1 before the first.
func (e *etcd) current() int { return len(e.states) - 1 }

// view returns the newest state's view.
func (e *etcd) view() *protocol.View { return &e.states[e.current()].view }

// has reports whether an incarnation's key is there.
func (e *etcd) has(id string) bool {
	return slices.ContainsFunc(e.view().Instances, func(i quota.Instance) bool { return i.ID == id })
}

// created returns the revision at which an incarnation's key was put first, 0 if
// it is not there.
func (e *etcd) created(id string) (revision int64) {
	for i := range e.line {
		for _, k := range e.line[i].keys {
			switch {
			case k.Kind != view.Instance || k.ID != id:
			case k.Deleted:
				revision = 0
			case revision == 0:
				revision = k.Revision
			}
		}
	}
	return revision
}

// key returns an incarnation's key as it is; nil if it is not there.
func (e *etcd) key(id string) *view.Key {
	if n := e.current(); n >= 0 {
		return find(e.states[n].keys, id)
	}
	return nil
}

func find(keys []view.Key, id string) *view.Key {
	for i := range keys {
		if keys[i].Kind == view.Instance && keys[i].ID == id {
			return &keys[i]
		}
	}
	return nil
}

// away reports whether all of etcd is gone for good.
func (e *etcd) away() bool { return e.w.now >= e.w.outage }

// write calls do when something can be committed.
func (e *etcd) write(do func()) {
	if e.away() {
		return
	}
	if at := blocked(e.w.now, append(slices.Clip(e.leaderless), e.frozen...)); at > e.w.now {
		e.w.at(at+e.w.Int64N(20*ms), func() { e.write(do) })
		return
	}
	do()
}

// linear calls do when a linearizable read through member m can be answered.
func (e *etcd) linear(m int, do func()) {
	if e.away() || e.alone(m) {
		return // the caller gives up
	}
	if at := blocked(e.w.now, e.leaderless); at > e.w.now {
		e.w.at(at+e.w.Int64N(20*ms), func() { e.linear(m, do) })
		return
	}
	do()
}

func (e *etcd) alone(m int) bool { return blocked(e.w.now, e.members[m].alone) > e.w.now }

// commit makes one revision and returns it; 0 if nothing can be written now.
func (e *etcd) commit(c change) int64 {
	if e.away() || blocked(e.w.now, e.leaderless) > e.w.now || blocked(e.w.now, e.frozen) > e.w.now {
		return 0
	}
	revision := e.revision() + 1
	if keys := c.keys(e.w, revision); len(keys) > 0 {
		for i := range keys {
			keys[i].First = keys[i].Kind == view.Instance && !keys[i].Deleted && e.key(keys[i].ID) == nil
		}
		e.line = append(e.line, entry{keys, e.current() + 1})
		e.states = append(e.states, e.next(c, keys, revision))
		e.w.note(c.policy)
	} else {
		e.line = append(e.line, entry{nil, e.current()})
	}
	life := e.life
	for m := range e.members {
		e.w.at(e.w.now+e.members[m].lag, func() { e.apply(m, life, revision) })
	}
	return revision
}

// keys are the events of a change.
func (c *change) keys(w *world, revision int64) []view.Key {
	var keys []view.Key
	if c.policy != nil {
		keys = append(keys, view.Key{Kind: view.Policy, Value: w.policyValue(c.policy), Revision: revision})
	}
	if c.deleted {
		keys = append(keys, view.Key{Kind: view.Policy, Revision: revision, Deleted: true})
	}
	for _, i := range c.put {
		value := w.instanceValue(i)
		if c.garbage == view.Instance {
			value = w.rubbish()
		}
		keys = append(keys, view.Key{Kind: view.Instance, ID: i.ID, Value: value, Revision: revision})
	}
	switch {
	case c.level != nil:
		keys = append(keys, view.Key{Kind: view.Level, Value: w.levelValue(c.level), Revision: revision})
	case c.garbage == view.Level:
		keys = append(keys, view.Key{Kind: view.Level, Value: w.rubbish(), Revision: revision})
	case c.levelGone:
		keys = append(keys, view.Key{Kind: view.Level, Revision: revision, Deleted: true})
	}
	switch {
	case c.pace != nil:
		keys = append(keys, view.Key{Kind: view.Pace, Value: w.paceValue(c.pace), Revision: revision})
	case c.garbage == view.Pace:
		keys = append(keys, view.Key{Kind: view.Pace, Value: w.rubbish(), Revision: revision})
	case c.paceGone:
		keys = append(keys, view.Key{Kind: view.Pace, Revision: revision, Deleted: true})
	}
	if c.backoff != nil || c.resumed {
		keys = append(keys, view.Key{Kind: view.Backoff, Value: c.backoff, Revision: revision, Deleted: c.resumed})
	}
	for _, id := range c.gone {
		keys = append(keys, view.Key{Kind: view.Instance, ID: id, Revision: revision, Deleted: true})
	}
	return keys
}

// next returns the state after a change. States do not share what changes.
func (e *etcd) next(c change, keys []view.Key, revision int64) state {
	s := state{at: e.w.now, what: c}
	if len(e.states) > 0 {
		last := &e.states[e.current()]
		s.at = max(s.at, last.at+1)
		s.view, s.keys = last.view, last.keys
	}
	if c.level != nil || c.levelGone || c.garbage == view.Level {
		s.view.Level = c.level
	}
	if c.pace != nil || c.paceGone || c.garbage == view.Pace {
		s.view.Pace = c.pace
	}
	for _, id := range c.gone {
		e.reports = append(e.reports, report{revision: revision, id: id, gone: true})
	}
	s.view.Revision = revision
	if c.policy != nil || c.deleted {
		s.view.Policy, s.view.PolicyRevision = c.policy, revision
	}
	s.view.Instances = slices.DeleteFunc(slices.Clone(s.view.Instances), func(i quota.Instance) bool {
		return slices.Contains(c.gone, i.ID) || slices.ContainsFunc(c.put, func(p quota.Instance) bool { return p.ID == i.ID })
	})
	s.view.Instances = append(s.view.Instances, c.put...)
	s.keys = slices.DeleteFunc(slices.Clone(s.keys), func(k view.Key) bool {
		return slices.ContainsFunc(keys, func(n view.Key) bool { return n.Kind == k.Kind && n.ID == k.ID })
	})
	for _, k := range keys {
		if !k.Deleted {
			s.keys = append(s.keys, k)
		}
	}
	return s
}

// apply brings a member up to a revision.
func (e *etcd) apply(m, life int, revision int64) {
	if life != e.life {
		return
	}
	if at := blocked(e.w.now, e.members[m].alone); at > e.w.now {
		e.w.at(at, func() { e.apply(m, life, revision) })
		return
	}
	e.members[m].applied = max(e.members[m].applied, revision)
	e.members[m].streams = slices.DeleteFunc(e.members[m].streams, (*stream).over)
	for _, s := range e.members[m].streams {
		s.pump()
	}
}

// restore puts etcd back by some revisions, as if a backup of its data had been
// copied back. The client opens its watches again behind what it was sent last,
// and they wait until there is something to send.
func (e *etcd) restore(back int64) {
	e.life++
	revision := max(1, e.revision()-back)
	e.line = slices.Clone(e.line[:revision])
	kept := e.line[revision-1].state
	for s := kept + 1; s < len(e.states); s++ {
		e.states[s].lost = true
	}
	s := e.states[kept]
	s.at = max(e.w.now, e.states[e.current()].at+1)
	s.what = change{text: "restored from a backup"}
	e.states = append(e.states, s)
	e.line[revision-1].state = e.current()
	e.compacted = min(e.compacted, revision)
	e.reports = slices.DeleteFunc(e.reports, func(r report) bool { return r.revision > revision })
	for m := range e.members {
		e.members[m].applied = revision
		for _, s := range e.members[m].streams {
			s.past = nil
			for n := range s.lanes { // what was under way is lost with the connection
				clear(s.lanes[n].sent)
			}
			s.next = s.host.tracker.Position() + 1
		}
	}
}

// stateAt returns the number of the newest state by true time t, -1 before the
// first.
func (w *world) stateAt(t int64) int {
	n, _ := slices.BinarySearchFunc(w.etcd.states, t, func(s state, t int64) int {
		if s.at <= t {
			return -1
		}
		return 1
	})
	return n - 1
}
