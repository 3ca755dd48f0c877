package histories

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file is accidents with what a consumer's role may write: any key of the provider
// but the policy. Keys are deleted, and written over with garbage, with what another key
// holds or has held, and with well-formed values that ask for too much; once, or many
// times in a row. Nobody invents an end or a loan for another: consumers of a provider
// trust each other with its limit (SECURITY.md).

// forgeAgain does that once, or begins to do it again and again.
func (f *fleet) forgeAgain(r *rand.Rand) {
	if r.IntN(2) == 0 {
		for range 4 {
			f.at(f.world.now()+1+r.Int64N(200*ms), f.forgeLoans)
		}
	}
	n, gap := 1, int64(1)
	if r.IntN(3) == 0 {
		n, gap = 2+r.IntN(12), 1+r.Int64N(100*ms)
	}
	only, at := r.IntN(6), f.world.now()
	for range n {
		own := rand.New(rand.NewPCG(r.Uint64(), 3))
		f.at(at, func() { f.forge(own, only) })
		at += 1 + r.Int64N(gap)
	}
}

// forge writes one key as no honest instance would.
func (f *fleet) forge(r *rand.Rand, only int) {
	if !f.server.writable() {
		return
	}
	if only > 2 {
		only = r.IntN(3)
	}
	switch only {
	case 0:
		f.forgeInstance(r)
	case 1:
		f.forgeBackoff(r)
	default:
		f.forgeReport(r)
	}
}

// write writes a key without a lease: nil deletes it.
func (f *fleet) write(key string, value []byte) {
	if value == nil {
		_, _ = f.server.serve(&pb.DeleteRangeRequest{Key: []byte(key)})
		return
	}
	_, _ = f.server.serve(putOf(key, string(value)))
}

// value returns what a key holds.
func (f *fleet) value(key string) []byte {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	if kv := f.store.at(key, f.store.revision); kv != nil {
		return kv.Value
	}
	return nil
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// rubbish is a value that cannot be read. No two are the same.
func rubbish(r *rand.Rand) []byte { return fmt.Appendf(nil, "rubbish %d", r.Uint64()) }

// ids are the incarnations whose keys are there.
func (f *fleet) ids() (all []string) {
	for _, i := range f.newest().Instances {
		all = append(all, i.ID)
	}
	slices.Sort(all)
	return all
}

// anybody is the ID of an incarnation: one whose key is there, or whose report is, or
// nobody's.
func (f *fleet) anybody(r *rand.Rand) string {
	live := f.ids()
	switch n := r.IntN(8); {
	case n < 6 && len(live) > 0:
		return live[r.IntN(len(live))]
	case n == 6:
		f.server.mu.Lock()
		folder := layout.Reports(f.provider)
		kvs := f.store.in(folder, clientv3.GetPrefixRangeEnd(folder), f.store.revision)
		f.server.mu.Unlock()
		if len(kvs) > 0 {
			if id, ok := keys.IncarnationIn(folder, string(kvs[r.IntN(len(kvs))].Key)); ok {
				return id
			}
		}
	}
	return fmt.Sprintf("ghost%d", r.IntN(3))
}

// forgeInstance deletes a key, or writes any value under it; somebody may see a key
// without an owner and delete it.
func (f *fleet) forgeInstance(r *rand.Rand) {
	id := f.anybody(r)
	key := layout.Instance(f.provider, id)
	i := protocol.Instance{ID: id, Name: []string{"i0", "x"}[r.IntN(2)], Attempt: 1000 + r.IntN(1<<30)}
	switch r.IntN(6) {
	case 0, 1:
		f.write(key, nil)
		return
	case 2:
		f.write(key, rubbish(r))
		return
	case 3:
		i.From = wallTime(f.world.now() + r.Int64N(2000*ms) - 1000*ms)
	case 4:
		if i = f.oldEnd(r, i); !i.Until.IsZero() {
			key = layout.Instance(f.provider, i.ID)
		}
	}
	f.write(key, encoded(protocol.Incarnation(i)))
	if r.IntN(2) == 0 {
		f.at(f.world.now()+r.Int64N(int64(f.policy.Settle)), func() { f.write(key, nil) })
	}
}

// forgeKey writes an instance's key: as another's, or without its beginning.
func (f *fleet) forgeKey(who int, what int64) {
	all := slices.Clone(f.newest().Instances)
	if len(all) == 0 || !f.server.writable() {
		return
	}
	slices.SortFunc(all, func(a, b protocol.Instance) int { return strings.Compare(a.ID, b.ID) })
	i := all[who%len(all)]
	i.Attempt++
	if i.From = (time.Time{}); what < 4 {
		i.ID = "ghost"
	}
	f.write(layout.Instance(f.provider, i.ID), encoded(protocol.Incarnation(i)))
}

// forgeLoans writes the loans and asks of the last moments again.
func (f *fleet) forgeLoans() {
	f.server.mu.Lock()
	var all []*mvccpb.KeyValue
	for _, folder := range []string{layout.AllLoans(f.provider), layout.AllAsks(f.provider)} {
		all = append(all, f.store.in(folder, clientv3.GetPrefixRangeEnd(folder), f.store.revision)...)
	}
	f.server.mu.Unlock()
	for _, kv := range all {
		if f.server.writable() {
			f.write(string(kv.Key), kv.Value)
			f.forgeOldLoan(kv)
		}
	}
}

// forgeOldLoan writes a message as the version before would: of 1,000 permits in the same windows, for
// the provider, and for keys under another name. Whoever read it would use permits that nobody has lent.
func (f *fleet) forgeOldLoan(kv *mvccpb.KeyValue) {
	message, err := protocol.ReadNotes(kv.Value)
	if err != nil {
		return
	}
	for _, n := range message {
		f.write(string(kv.Key), encoded(map[string]any{"windows": n.Windows, "permits": 1000}))
		ofKeys := map[string]int64{}
		for name := range n.Permits {
			ofKeys[name] = 1000
		}
		f.write(string(kv.Key)+"/keys", encoded(map[string]any{"windows": n.Windows, "permits": ofKeys}))
	}
}

// oldEnd says again that somebody ends who once said so; i if nobody has.
func (f *fleet) oldEnd(r *rand.Rand, i protocol.Instance) protocol.Instance {
	f.states.mu.Lock()
	defer f.states.mu.Unlock()
	if ended := f.ended; len(ended) > 0 {
		return ended[r.IntN(len(ended))]
	}
	return i
}

// forgeReport deletes a report, or writes one with any evidence over it; with the value
// that it had, or that another has, or another.
func (f *fleet) forgeReport(r *rand.Rand) {
	key := layout.Report(f.provider, f.anybody(r))
	switch r.IntN(6) {
	case 0, 1:
		f.write(key, nil)
	case 2:
		f.write(key, f.value(key))
	case 3:
		f.write(key, f.value(layout.Report(f.provider, f.anybody(r))))
	default:
		f.write(key, encoded(protocol.Report{Refused: []int64{0, 1, 80_000, math.MaxInt64}[r.IntN(4)], Time: wallTime(r.Int64N(1 << 40))}))
	}
}

// throttle returns that which is stored; an empty one if none can be read.
func (f *fleet) throttle() protocol.Throttle {
	if t, err := protocol.ReadThrottle(f.value(layout.Throttle(f.provider))); err == nil {
		return *t
	}
	return protocol.Throttle{}
}

// forgeBackoff writes asks by anybody, for as long as one likes, or garbage.
func (f *fleet) forgeBackoff(r *rand.Rand) {
	f.holdBack(span{f.world.now(), f.world.now() + 30_000*ms})
	if r.IntN(6) == 0 {
		f.write(layout.Throttle(f.provider), rubbish(r))
		return
	}
	t := f.throttle()
	t.Asks = nil
	for range 1 + r.IntN(3) {
		until := wallTime(f.world.now()+r.Int64N(3000*ms)).AddDate(0, 0, 3*r.IntN(2))
		t.Asks = append(t.Asks, protocol.Ask{By: f.anybody(r), At: wallTime(f.world.now()), Until: until, Alone: r.IntN(2) == 0})
	}
	f.write(layout.Throttle(f.provider), encoded(t))
}
