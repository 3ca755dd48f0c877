package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/test/await"
)

// answered is an etcd of which then is called with each answer to a write, before that is
// given.
type answered struct {
	clientv3.KV
	then func()
}

type answeredTxn struct {
	clientv3.Txn
	of        *answered
	registers bool
}

func (d *answered) Txn(ctx context.Context) clientv3.Txn {
	return &answeredTxn{Txn: d.KV.Txn(ctx), of: d}
}

func (x *answeredTxn) If(c ...clientv3.Cmp) clientv3.Txn { x.Txn = x.Txn.If(c...); return x }

func (x *answeredTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *answeredTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.registers = ops[0].IsPut()
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *answeredTxn) Commit() (*clientv3.TxnResponse, error) {
	r, err := x.Txn.Commit()
	if x.registers {
		x.of.then()
	}
	return r, err
}

// TestANewcomerMissesNothing: what the watch tells before the listing arrives is kept, and
// applied after it, once.
func TestANewcomerMissesNothing(t *testing.T) {
	f := setup(t)
	f.set("p", "1000/s")
	s := f.join(Options{})
	told := func(revision int64) {
		await.Until(t, "the watch has told", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.mu.lines[s.keys.Provider("")].Position() >= revision
		})
	}
	s.kv = &answered{KV: s.kv, then: sync.OnceFunc(func() {
		for i := range 5 {
			told(f.set("p", fmt.Sprintf("%d/s", 3000+i)).Revision)
		}
	})}
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	f.set("p", "9000/s")
	await.Until(t, "the last change", r.is(func(r *recorder) bool { return r.view.Policy.Limits[0].Permits == 9000 }))
	if got, want := r.told().totals, []int64{3000, 3001, 3002, 3003, 3004, 9000}; !slices.Equal(got, want) {
		t.Errorf("was told of %v, want %v", got, want)
	}
}

// TestAnEndedWatchSaysNothing: events on their way when a watch ends are not taken. They
// may be of a store that has been replaced.
func TestAnEndedWatchSaysNothing(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	r, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", r.is(proved))
	p := f.only(r)
	told := make(chan clientv3.WatchResponse, 1)
	for range 20 { // select is fair
		s := p.s.newStream(p.ctx, 0)
		s.answers = told
		s.end()
		told <- clientv3.WatchResponse{}
		if _, ok := s.next(); ok {
			t.Fatal("an ended watch has an answer")
		}
		for len(told) > 0 {
			<-told
		}
	}
	p.mu.Lock()
	at, cluster := p.line.Position()+1, p.line.Cluster()
	p.mu.Unlock()
	ended, end := context.WithCancel(p.ctx)
	end()
	late := &mvccpb.KeyValue{Key: []byte(f.admin.keys.Policy("p")), ModRevision: at, CreateRevision: at}
	if err := p.line.take(ended, &clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: cluster}, Events: []*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: late}}}); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.policy == nil {
		t.Error("an ended watch has deleted the policy")
	}
}
