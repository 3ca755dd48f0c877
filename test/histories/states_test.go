package histories

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

var layout = func() keys.Layout {
	l, err := keys.New("")
	if err != nil {
		panic(err)
	}
	return l
}()

// fleet is one provider, and what was issued of it.
type fleet struct {
	*world
	*states

	// Guarded by world.mu.
	grants  []*grant
	calls   []*openCalls                      // of a limit in flight
	paid    map[string][]*grant               // permits that have paid debts, by key; "": the provider's
	unset   bool                              // there was no policy for a while
	held    []span                            // true times in which somebody is held back
	exact   bool                              // the rule hold promises an exact sum after the outage too
	lengths []time.Duration                   // every window length that a policy had
	lending sync.Mutex                        // guards lentOf
	lentOf  map[quota.Window]int64            // permits lent, whether or not anybody heard of it
	key     string                            // of which it is judged; empty: the provider
	firsts  map[string]int                    // by incarnation: the state that registered the first of a fleet; made when it is asked for
	net     map[quota.Window]map[string]int64 // permits lent less those borrowed, by incarnation; made when it is asked for
}

// grant is permits issued at once.
type grant struct {
	at      int64 // true time
	wall    int64 // corrected wall time
	first   int64 // the revision with which the limiter's history begins
	permits int64
	id      string         // the incarnation; empty if that is not known for sure
	windows []quota.Window // the limiter's, one of each length that binds
	long    time.Time      // the beginning of the window that a budget is of
	stale   bool           // without a recent proof
	policy  int64          // the revision of the policy that the limiter knew
	key     string         // empty if it is of none
	span    span           // of its permit, in corrected wall time
	pays    bool           // it pays a debt
}

// states are what a provider's keys have been, by the true time at which they became so:
// what histories are judged by.
type states struct {
	now      func() int64
	store    *store
	provider string

	mu       sync.Mutex
	tracker  view.Tracker
	revision int64
	line     trace.Views
	loans    loansOf             // the largest numbers of each host, guest and list of windows
	ofKeys   map[string]loansOf  // the same by key
	asked    int                 // how often asks were written
	ended    []protocol.Instance // as they have announced their ends
}

type loansOf = map[string]*loan

// loan is one that a host has written.
type loan struct {
	host, guest string
	windows     []quota.Window
	permits     int64
}

func newStates(now func() int64, s *store, provider string) *states {
	x := &states{now: now, store: s, provider: provider, loans: loansOf{}, ofKeys: map[string]loansOf{}}
	x.list()
	return x
}

// list begins anew with what the store has.
func (x *states) list() {
	folder := layout.Provider(x.provider)
	x.tracker = view.Tracker{}
	var all []view.Key
	for _, kv := range x.store.in(folder, clientv3.GetPrefixRangeEnd(folder), x.store.revision) {
		all = append(all, x.parse(kv, false))
	}
	x.revision = x.store.revision
	x.add(x.tracker.List(x.revision, all))
}

func (x *states) add(v protocol.View) {
	at := x.now()
	if n := len(x.line); n > 0 {
		at = max(at, x.line[n-1].By+1)
	}
	x.line = append(x.line, trace.View{View: v, After: at - 1, By: at})
}

// commit notes what was committed, under the server's lock.
func (x *states) commit() {
	x.mu.Lock()
	defer x.mu.Unlock()
	folder := layout.Provider(x.provider)
	var events []view.Key
	for _, e := range x.store.since(x.revision+1, x.store.revision, folder, clientv3.GetPrefixRangeEnd(folder)) {
		events = append(events, x.parse(e.Kv, e.Type == mvccpb.Event_DELETE))
	}
	x.noteLoans()
	x.revision = x.store.revision
	changes := x.tracker.Events(events)
	for _, c := range changes {
		before := x.line[len(x.line)-1].Throttle
		if t := c.Throttle; t != nil && len(t.Asks) > 0 && (before == nil || !slices.Equal(before.Asks, t.Asks)) {
			x.asked++
		}
		for _, i := range c.Put {
			if !i.Until.IsZero() {
				x.ended = append(x.ended, i)
			}
		}
		x.add(after(x.line[len(x.line)-1].View, c))
	}
}

// noteLoans notes the loans of the newest revision.
func (x *states) noteLoans() {
	all := layout.AllLoans(x.provider)
	for _, e := range x.store.since(x.store.revision, x.store.revision, all, clientv3.GetPrefixRangeEnd(all)) {
		guest, host, ok := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), all), "/")
		message, err := protocol.ReadNotes(e.Kv.Value)
		if !ok || err != nil {
			continue
		}
		for _, n := range message {
			for name, permits := range n.Permits {
				x.noteLoan(name, loan{host, guest, n.Windows, permits})
			}
		}
	}
}

// noteLoan notes a loan of a key, "" for the provider, that a host has written for a guest.
func (x *states) noteLoan(name string, l loan) {
	all := x.loans
	if name != "" {
		if x.ofKeys[name] == nil {
			x.ofKeys[name] = loansOf{}
		}
		all = x.ofKeys[name]
	}
	k := fmt.Sprint(l.host, l.guest, l.windows)
	if o := all[k]; o == nil || o.permits < l.permits {
		all[k] = &l
	}
}

// restored notes a restore.
func (x *states) restored() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.line {
		if v := &x.line[i]; v.Revision > x.store.revision && v.Lost == 0 {
			v.Lost = len(x.line)
		}
	}
	x.list()
}

// newestAt returns the number of the newest state by true time t, -1 before the first.
func (x *states) newestAt(t int64) int {
	n, _ := slices.BinarySearchFunc(x.line, t, func(s trace.View, t int64) int {
		if s.By <= t {
			return -1
		}
		return 1
	})
	return n - 1
}

// newest is the present state.
func (x *states) newest() *trace.View {
	x.mu.Lock()
	defer x.mu.Unlock()
	return &x.line[len(x.line)-1]
}

// after is a view after a change.
func after(v protocol.View, c protocol.Change) protocol.View {
	v.Revision = c.Revision
	if c.Policy != nil || c.PolicyDeleted {
		v.Policy, v.PolicyRevision = c.Policy, c.Revision
	}
	if c.Throttle != nil || c.ThrottleDeleted {
		v.Throttle = c.Throttle
	}
	if len(c.Overrides) > 0 {
		v.Overrides = maps.Clone(v.Overrides)
		if v.Overrides == nil {
			v.Overrides = map[int]*protocol.Overrides{}
		}
		maps.Copy(v.Overrides, c.Overrides)
	}
	v.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i protocol.Instance) bool {
		return slices.Contains(c.Deleted, i.ID) || slices.ContainsFunc(c.Put, func(p protocol.Instance) bool { return p.ID == i.ID })
	})
	v.Instances = append(v.Instances, c.Put...)
	return v
}

// parse reads a key as coordinator does.
func (x *states) parse(kv *mvccpb.KeyValue, deleted bool) view.Key {
	k := view.Key{Revision: kv.ModRevision, Deleted: deleted, Value: kv.Value}
	switch key := string(kv.Key); key {
	case layout.Policy(x.provider):
		k.Kind = view.Policy
	case layout.Throttle(x.provider):
		k.Kind = view.Throttle
	default:
		if id, ok := keys.IncarnationIn(layout.Instances(x.provider), key); ok {
			k.Kind, k.ID = view.Instance, id
		} else if bucket, ok := layout.BucketOf(x.provider, key); ok {
			k.Kind, k.Bucket = view.Overrides, bucket
		}
	}
	return k
}
