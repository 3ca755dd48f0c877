package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// lossy is an etcd whose answers to some transactions are lost: to the first ones
// that would register an instance. It keeps those that it was sent last.
type lossy struct {
	clientv3.KV
	lose    atomic.Int64 // so many more
	perform bool         // they are done, or else they are lost on the way there
	lost    atomic.Int64
}

func (l *lossy) Txn(ctx context.Context) clientv3.Txn { return &lossyTxn{Txn: l.KV.Txn(ctx), of: l} }

type lossyTxn struct {
	clientv3.Txn
	of        *lossy
	registers bool
}

func (x *lossyTxn) If(c ...clientv3.Cmp) clientv3.Txn { x.Txn = x.Txn.If(c...); return x }

func (x *lossyTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.registers = len(ops) == 4 && ops[0].IsPut() && ops[3].IsGet()
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	if !x.registers || x.of.lose.Add(-1) < 0 {
		return x.Txn.Commit()
	}
	if x.of.perform {
		if _, err := x.Txn.Commit(); err != nil {
			return nil, err
		}
	}
	x.of.lost.Add(1)
	return nil, errors.New("the answer is lost")
}

// An answer that is lost leaves no key behind that holds a share nobody uses: it
// is the same incarnation that is registered in the end, with what was written.
func TestALostAnswerLeavesNoGhost(t *testing.T) {
	for _, perform := range []bool{true, false} {
		t.Run(fmt.Sprintf("done is %v", perform), func(t *testing.T) {
			client := etcdtest.NewClient(t, server)
			lossy := &lossy{KV: etcdcall.NewKV(client, etcdcall.Timeout), perform: perform}
			f := setupOn(t, client)
			f.set("p", "10/s")
			f.kv = lossy
			lossy.lose.Store(2)
			a, leave := f.subscribe(f.join(Options{}), "p")
			await.Until(t, "a proof", a.is(proved))
			if n := lossy.lost.Load(); n != 2 {
				t.Errorf("%d answers were lost", n)
			}
			told := a.told()
			got, err := client.Get(t.Context(), f.keys.Instances("p"), clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Kvs) != 1 || string(got.Kvs[0].Key) != f.keys.Instance("p", told.self) {
				t.Fatalf("%d keys, of %q: %v", len(got.Kvs), told.self, got.Kvs)
			}
			p := f.only(a)
			p.s.mu.Lock()
			created, from, attempt := p.Own().Created, p.Own().Value.From, p.Own().Value.Attempt
			p.s.mu.Unlock()
			a.mu.Lock()
			seen := a.view.Instances
			a.mu.Unlock()
			if created != got.Kvs[0].CreateRevision || p.attempt != nil || len(seen) != 1 || !seen[0].From.Equal(from) || !from.IsZero() || !seen[0].First {
				t.Errorf("created at %d, want %d; from %v; sees %+v", created, got.Kvs[0].CreateRevision, from, seen)
			}
			if want := map[bool]int{true: 0, false: 2}[perform]; attempt != want { // what was written first is there
				t.Errorf("it is attempt %d that is there, want %d", attempt, want)
			}
			if err := leave(); err != nil {
				t.Error(err)
			}
			f.hasNoInstances("p")
		})
	}
}

// Who closes before the answer is there takes the key along that may be there.
func TestWhoClosesUnansweredLeavesNoGhost(t *testing.T) {
	client := etcdtest.NewClient(t, server)
	lossy := &lossy{KV: etcdcall.NewKV(client, etcdcall.Timeout), perform: true}
	f := setupOn(t, client)
	f.set("p", "10/s")
	f.kv = lossy
	lossy.lose.Store(1 << 30)
	_, leave := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "an answer was lost", func() bool { return lossy.lost.Load() > 0 })
	if err := leave(); err != nil {
		t.Error(err)
	}
	f.hasNoInstances("p")
}

func (f *fixture) hasNoInstances(provider string) {
	f.t.Helper()
	for _, keys := range []string{f.keys.Instances(provider), f.keys.Reports(provider), f.keys.Issuers(provider)} {
		got, err := f.client.Get(f.t.Context(), keys, clientv3.WithPrefix())
		if err != nil {
			f.t.Fatal(err)
		}
		for _, kv := range got.Kvs {
			f.t.Errorf("left behind: %s", kv.Key)
		}
	}
}

// A backup that is put back may have an earlier incarnation of a session, whose lease
// lives. Nobody uses its share: the session deletes its key with the next listing.
func TestARevivedIncarnationIsDeleted(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", a.is(proved))
	key := f.only(a).current().Key
	now, err := f.client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	earlier, other := f.keys.Instance("p", "earlier"), f.keys.Instance("p", "other")
	_, err = f.client.Txn(t.Context()).Then(
		clientv3.OpPut(earlier, string(now.Kvs[0].Value), clientv3.WithLease(clientv3.LeaseID(now.Kvs[0].Lease))),
		clientv3.OpPut(other, string(now.Kvs[0].Value)), clientv3.OpDelete(key)).Commit()
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the session's one instance and the other", func() bool {
		got, err := f.client.Get(t.Context(), f.keys.Instances("p"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		has := func(key string) bool {
			return slices.ContainsFunc(got.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key })
		}
		return len(got.Kvs) == 2 && has(other) && !has(key) && !has(earlier)
	})
}
