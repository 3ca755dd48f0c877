package coordinator

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/await"
)

// heap returns the bytes of live objects, of the embedded etcd too.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLargeKeysAndValuesFillNoMemory: somebody with a consumer's rights writes names
// and values of 1.4 MB. Neither an instance nor an operator keeps any of that.
func TestLargeKeysAndValuesFillNoMemory(t *testing.T) {
	const (
		large = 1400 << 10
		most  = 8 << 20
		n     = 30
	)
	f := setup(t)
	f.set("p", "100/s")
	flood := func() {
		t.Helper()
		for i := range n {
			for _, key := range []string{
				f.admin.keys.Instance("p", fmt.Sprint("value", i)),
				f.admin.keys.Report("p", fmt.Sprint("value", i)),
			} {
				if _, err := f.client.Put(t.Context(), key, strings.Repeat("x", large)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.client.Put(t.Context(), f.admin.keys.Instances("p")+fmt.Sprint(i, strings.Repeat("x", large)), "{}"); err != nil {
				t.Fatal(err)
			}
		}
	}
	flood()
	before := heap()
	a, _ := f.subscribe(f.join(Options{TTL: time.Minute}), "p")
	await.Until(t, "a proof", a.is(proved))
	if !a.is(members(n + 1))() {
		t.Errorf("an instance with too large a value takes part, and a name that is too long is none: %d instances", len(a.view.Instances))
	}
	if kept := heap() - before; kept > most {
		t.Errorf("the instance keeps %d MB of a listing", kept>>20)
	}
	fleet, err := f.admin.Fleet(t.Context(), "p")
	if err != nil || len(fleet.Instances) != n+1 {
		t.Fatalf("%d instances, %v", len(fleet.Instances), err)
	}
	if kept := heap() - before; kept > most {
		t.Errorf("the operator keeps %d MB of a fleet", kept>>20)
	}
	if all, err := f.admin.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d policies, %v", len(all), err)
	}
	if kept := heap() - before; kept > most {
		t.Errorf("the operator keeps %d MB of a list", kept>>20)
	}
	for _, s := range fleet.Instances {
		if s.Problem != nil && len(s.Problem.Error()) > 1000 {
			t.Errorf("a problem of %d bytes", len(s.Problem.Error()))
		}
	}
	runtime.KeepAlive(fleet)
}

// TestALargeAnswerIsRefusedUnread: by the real client, before it is in memory.
func TestALargeAnswerIsRefusedUnread(t *testing.T) {
	f := setup(t)
	for i := range 10 {
		if _, err := f.client.Put(t.Context(), fmt.Sprint(f.prefix, i), strings.Repeat("x", 1400<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.admin.kv.Get(t.Context(), f.prefix, clientv3.WithPrefix()); !tooLarge(err) {
		t.Errorf("14 MB were read: %v", err)
	}
	if r, err := f.admin.kv.Get(t.Context(), f.prefix, clientv3.WithPrefix(), clientv3.WithLimit(5)); err != nil || len(r.Kvs) != 5 {
		t.Errorf("7 MB were not read: %v", err)
	}
}

// TestPagesShrinkWhereValuesAreLarge: every key comes once and in order, and no
// page is beyond the bound.
func TestPagesShrinkWhereValuesAreLarge(t *testing.T) {
	const keys, bound = 1000, 12 << 20
	size := func(i int) int {
		if i%400 > 200 {
			return 3 << 20
		}
		return 100
	}
	asked, got := 0, 0
	err := eachKey("0000", "9999", func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		asked++
		op := clientv3.OpGet(from, o...)
		var first int
		if _, err := fmt.Sscanf(strings.TrimRight(from, "\x00"), "%d", &first); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(from, "\x00") {
			first++
		}
		r, bytes := &pb.RangeResponse{}, 0
		for i := first; i < keys; i++ {
			if int64(len(r.Kvs)) == op.Limit() {
				r.More = true
				break
			}
			bytes += size(i)
			r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%04d", i)})
		}
		if bytes > bound {
			return nil, status.Error(codes.ResourceExhausted, "grpc: received message larger than max (1 vs. 0)")
		}
		return r, nil
	}, nil, func(kv *mvccpb.KeyValue) {
		if string(kv.Key) != fmt.Sprintf("%04d", got) {
			t.Fatalf("key %s, want %04d", kv.Key, got)
		}
		got++
	})
	if err != nil || got != keys || asked > keys {
		t.Errorf("%d keys by %d pages, %v", got, asked, err)
	}
}

// parts is a stream of answers.
type parts struct {
	pb.Watch_WatchClient
	all []*pb.WatchResponse
}

func (p *parts) Recv() (*pb.WatchResponse, error) {
	if len(p.all) == 0 {
		return nil, io.EOF
	}
	r := p.all[0]
	p.all = p.all[1:]
	return r, nil
}

// TestAnswersInPartsAreWholeRevisions: a revision that goes on in the next part
// waits for it; progress does not.
func TestAnswersInPartsAreWholeRevisions(t *testing.T) {
	part := func(fragment bool, revisions ...int64) *pb.WatchResponse {
		r := &pb.WatchResponse{Fragment: fragment}
		for _, n := range revisions {
			r.Events = append(r.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: n}})
		}
		return r
	}
	s := &wholeRevisions{Watch_WatchClient: &parts{all: []*pb.WatchResponse{
		part(false), part(true, 1, 1, 2, 3), part(true, 3), part(true, 3, 4), part(false, 4, 4, 5), part(false, 6),
	}}}
	var got []string
	for {
		r, err := s.Recv()
		if err != nil {
			break
		}
		var revisions []int64
		for _, e := range r.Events {
			revisions = append(revisions, e.Kv.ModRevision)
		}
		if r.Fragment {
			t.Error("told to wait for another part")
		}
		got = append(got, fmt.Sprint(revisions))
	}
	want := []string{"[]", "[1 1 2]", "[3 3 3]", "[4 4 4 5]", "[6]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEtcdCutsLongAnswers: a watch that begins far back is told of 28 MB, a few
// revisions at a time, each whole.
func TestEtcdCutsLongAnswers(t *testing.T) {
	f := setup(t)
	first := int64(0)
	for range 20 {
		r, err := f.client.Txn(t.Context()).Then(
			clientv3.OpPut(f.prefix+"a", strings.Repeat("x", 700<<10)), clientv3.OpPut(f.prefix+"b", strings.Repeat("x", 700<<10)),
		).Commit()
		if err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = r.Header.Revision
		}
	}
	w := newWatcher(f.client)
	defer w.Close()
	var got []int64
	for r := range w.Watch(t.Context(), f.prefix, clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithFragment()) {
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		if n := len(r.Events); n > 6 || n%2 != 0 {
			t.Errorf("%d events at once", n)
		}
		for _, e := range r.Events {
			got = append(got, e.Kv.ModRevision)
		}
		if len(got) >= 40 {
			break
		}
	}
	if len(got) != 40 || !slices.IsSorted(got) || got[0] != first {
		t.Errorf("%d events: %v", len(got), got)
	}
}
