//go:build !mutant

package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// TestStoreAnswersAsEtcd runs the same random operations against the model and against a
// real etcd, both by etcd's client: they give the same answers, and their watches tell
// the same events.
func TestStoreAnswersAsEtcd(t *testing.T) {
	rounds := uint64(3)
	if *moreFlag > 0 {
		rounds = *moreFlag
	}
	for seed := uint64(1); seed <= rounds; seed++ {
		_, real := etcdtest.New(t, embedded.Options{})
		want := transcript(t, real, seed)
		var got []string
		synctest.Test(t, func(t *testing.T) {
			w := &world{plan: &plan{seed: seed}, begin: time.Now(), used: map[int64]bool{}}
			w.server = newServer(1, w.now)
			l := w.newLink("model")
			l.calm = true
			model := l.client()
			defer model.Close()
			got = transcript(t, model, seed)
		})
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("seed %d, step %d:\n etcd: %s\nmodel: %s", seed, i, want[i], slices.Concat(got, []string{"nothing"})[min(i, len(got))])
			}
		}
		t.Logf("seed %d: %d answers and events are the same", seed, len(want))
	}
}

// sentinel is the key that is written last, in the range of every watch.
const sentinel = "/k/z"

// operations makes random operations; it knows the revision that the store is at.
type operations struct {
	*rand.Rand
	revision int64
}

// transcript runs random operations on an empty etcd and returns what came of them.
func transcript(t *testing.T, c *clientv3.Client, seed uint64) (lines []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := &operations{rand.New(rand.NewPCG(seed, 4)), 1}
	var watches []clientv3.WatchChan
	for step := range 400 {
		if step%40 == 20 {
			watches = append(watches, o.watch(ctx, c, 0)) // etcd catches up with the past in its own time, which a compaction may cut short
		}
		req := o.next()
		a, err := do(ctx, c, req)
		lines = append(lines, fmt.Sprintf("%v -> %s, %v", text(req), text(a), err))
		if h := headerOf(a); h != nil {
			o.revision = h.Revision
		}
	}
	for range 6 { // of the past, some of it compacted
		watches = append(watches, o.watch(ctx, c, o.Int64N(o.revision+2)))
	}
	if _, err := c.Put(ctx, sentinel, "the end"); err != nil {
		t.Fatal(err)
	}
	for n, x := range watches {
		lines = append(lines, events(n, x)...)
	}
	return lines
}

// watch opens a watch from a revision on; 0 is the present.
func (o *operations) watch(ctx context.Context, c *clientv3.Client, from int64) clientv3.WatchChan {
	options := []clientv3.OpOption{clientv3.WithRange("/k0"), clientv3.WithRev(from)}
	if o.IntN(3) == 0 {
		options = append(options, clientv3.WithFilterDelete())
	}
	return clientv3.NewWatcher(c).Watch(ctx, o.key(), append(options, clientv3.WithCreatedNotify())...)
}

// events returns what a watch told up to the sentinel.
func events(n int, x clientv3.WatchChan) (lines []string) {
	for r := range x {
		if err := r.Err(); err != nil {
			return append(lines, fmt.Sprintf("watch %d: %v, compacted %d", n, err, r.CompactRevision))
		}
		for _, e := range r.Events {
			lines = append(lines, fmt.Sprintf("watch %d: %v %v", n, e.Type, text(e.Kv)))
			if string(e.Kv.Key) == sentinel {
				return lines
			}
		}
	}
	return append(lines, fmt.Sprintf("watch %d: closed", n))
}

func (o *operations) key() string { return fmt.Sprintf("/k/%c", 'a'+o.IntN(6)) }

func (o *operations) lease() int64 {
	if o.IntN(2) == 0 {
		return 0
	}
	return int64(1 + o.IntN(4))
}

func (o *operations) next() proto.Message {
	switch o.IntN(16) {
	case 0, 1, 2:
		return o.put()
	case 3:
		return o.remove()
	case 4, 5, 6:
		return o.get()
	case 7:
		return &pb.LeaseGrantRequest{ID: 1 + o.Int64N(4), TTL: 1000}
	case 8:
		return &pb.LeaseRevokeRequest{ID: 1 + o.Int64N(4)}
	case 9:
		if o.IntN(4) == 0 {
			return &pb.CompactionRequest{Revision: o.revision - 20 + o.Int64N(22)}
		}
	}
	r := &pb.TxnRequest{}
	for range o.IntN(3) {
		r.Compare = append(r.Compare, o.compare())
	}
	r.Success, r.Failure = o.ops(), o.ops()
	return r
}

func (o *operations) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: []byte(o.key()), Value: []byte{byte('0' + o.IntN(4))}, Lease: o.lease(), PrevKv: o.IntN(4) == 0}
	if o.IntN(8) == 0 {
		r.IgnoreValue, r.Value = true, nil
	}
	if o.IntN(8) == 0 {
		r.IgnoreLease, r.Lease = true, 0
	}
	return r
}

func (o *operations) remove() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{Key: []byte(o.key()), PrevKv: o.IntN(4) == 0}
	if o.IntN(4) == 0 {
		r.RangeEnd = []byte(o.key())
	}
	return r
}

func (o *operations) get() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: []byte(o.key()), Limit: o.Int64N(4), KeysOnly: o.IntN(4) == 0, CountOnly: o.IntN(8) == 0, Serializable: o.IntN(2) == 0}
	switch o.IntN(4) {
	case 0:
		r.RangeEnd = []byte(o.key())
	case 1:
		r.RangeEnd = []byte("/k0")
	case 2:
		r.RangeEnd = []byte{0}
	}
	if o.IntN(3) == 0 {
		r.Revision = o.Int64N(o.revision + 2)
	}
	if o.IntN(3) == 0 {
		r.SortTarget = pb.RangeRequest_SortTarget(o.IntN(5))
		r.SortOrder = pb.RangeRequest_SortOrder(1 + o.IntN(2)) // without an order etcd limits before it sorts
	}
	if o.IntN(6) == 0 {
		r.MaxCreateRevision = o.Int64N(o.revision + 1)
	}
	if o.IntN(6) == 0 {
		r.MinModRevision = o.Int64N(o.revision + 1)
	}
	return r
}

func (o *operations) compare() *pb.Compare {
	c := &pb.Compare{Key: []byte(o.key()), Target: pb.Compare_CompareTarget(o.IntN(5)), Result: pb.Compare_CompareResult(o.IntN(4))}
	switch c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: o.Int64N(3)}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: o.old()}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: o.old()}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: []byte{byte('0' + o.IntN(4))}}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: o.lease()}
	}
	return c
}

// old is a revision of a short while ago, or 0.
func (o *operations) old() int64 {
	if o.IntN(2) == 0 {
		return 0
	}
	return max(0, o.revision-o.Int64N(8))
}

// ops are operations of a transaction: no two write one key.
func (o *operations) ops() (all []*pb.RequestOp) {
	var written []string
	for range o.IntN(4) {
		switch o.IntN(3) {
		case 0:
			all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: o.get()}})
		case 1:
			if r := o.put(); !slices.Contains(written, string(r.Key)) {
				written = append(written, string(r.Key))
				all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}})
			}
		case 2:
			if r := o.remove(); len(r.RangeEnd) == 0 && !slices.Contains(written, string(r.Key)) {
				written = append(written, string(r.Key))
				all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}})
			}
		}
	}
	return all
}

// do sends a request by the client's connection.
func do(ctx context.Context, c *clientv3.Client, m proto.Message) (proto.Message, error) {
	conn := c.ActiveConnection()
	switch r := m.(type) {
	case *pb.PutRequest:
		return pb.NewKVClient(conn).Put(ctx, r)
	case *pb.DeleteRangeRequest:
		return pb.NewKVClient(conn).DeleteRange(ctx, r)
	case *pb.RangeRequest:
		return pb.NewKVClient(conn).Range(ctx, r)
	case *pb.TxnRequest:
		return pb.NewKVClient(conn).Txn(ctx, r)
	case *pb.CompactionRequest:
		return pb.NewKVClient(conn).Compact(ctx, r)
	case *pb.LeaseGrantRequest:
		return pb.NewLeaseClient(conn).LeaseGrant(ctx, r)
	case *pb.LeaseRevokeRequest:
		return pb.NewLeaseClient(conn).LeaseRevoke(ctx, r)
	}
	panic(m)
}

// text shows a message, and of its header the revision only. The headers within an
// answer to a transaction mean nothing.
func text(m proto.Message) string {
	if m == nil || !m.ProtoReflect().IsValid() {
		return "nothing"
	}
	m = proto.Clone(m)
	if h := headerOf(m); h != nil {
		h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
	}
	if a, ok := m.(*pb.TxnResponse); ok {
		for _, o := range a.Responses {
			for _, in := range []proto.Message{o.GetResponseRange(), o.GetResponsePut(), o.GetResponseDeleteRange()} {
				if in.ProtoReflect().IsValid() {
					in.ProtoReflect().Clear(header(in))
				}
			}
		}
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func header(m proto.Message) protoreflect.FieldDescriptor {
	return m.ProtoReflect().Descriptor().Fields().ByName("header")
}

func headerOf(m proto.Message) *pb.ResponseHeader {
	if m == nil || !m.ProtoReflect().IsValid() {
		return nil
	}
	if f := header(m); f != nil && m.ProtoReflect().Has(f) {
		return m.ProtoReflect().Get(f).Message().Interface().(*pb.ResponseHeader)
	}
	return nil
}
