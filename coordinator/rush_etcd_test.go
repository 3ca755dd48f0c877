package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
)

// TestNothingOfARushIsSkipped: in a large fleet many changes close the watch for a
// little, and what comes meanwhile is taken all the same, revision by revision.
func TestNothingOfARushIsSkipped(t *testing.T) {
	f := setup(t)
	f.set("p", "1000/s")
	there := 0
	join := func(n int) (ops []clientv3.Op) {
		for range n {
			key := fmt.Sprintf("%sproviders/p/instances/other.%d", f.prefix, there)
			ops = append(ops, clientv3.OpPut(key, `{"schema":1,"name":"other","weight":1}`))
			there++
		}
		return ops
	}
	commit := func(ops ...clientv3.Op) {
		t.Helper()
		if _, err := f.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	commit(clientv3.OpDelete(f.prefix+"providers/p/instances/", clientv3.WithPrefix())) // of a run before
	commit(join(manyInstances)...)
	r, _ := f.subscribe(f.join(Options{Name: "a"}), "p")
	await.Until(t, "the view is proved", r.is(proved))
	p := f.only(r)
	open := func() bool { p.s.mu.Lock(); defer p.s.mu.Unlock(); return p.line.open }
	await.Until(t, "the watch is open", open)
	await.Until(t, "a rush closes the watch", func() bool {
		if !open() {
			return true
		}
		commit(join(rushChanges + 1)...)
		return false
	})
	const more = 30
	for range more {
		commit(join(1)...)
	}
	await.Until(t, "all are seen", r.is(func(r *recorder) bool { return len(r.view.Instances) == 1+there }))
	told := r.told()
	if got := strings.Count(told.log, "put"); got != there-manyInstances || strings.Contains(told.log, "after") || strings.Count(told.log, "reset") != 1 {
		t.Errorf("%d joins were seen, want %d: %s", got, there-manyInstances, told.log)
	}
	await.Until(t, "the view is proved again", r.is(func(r *recorder) bool { return r.proofs > told.proofs }))
}

// crowded is an etcd in which others join just before a registration is committed.
type crowded struct {
	clientv3.KV
	join  func()
	looks atomic.Int64 // how often the instances were counted
}

func (d *crowded) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	d.looks.Add(1)
	return d.KV.Do(ctx, op)
}

type crowdedTxn struct {
	clientv3.Txn
	of        *crowded
	registers bool
}

func (d *crowded) Txn(ctx context.Context) clientv3.Txn {
	return &crowdedTxn{Txn: d.KV.Txn(ctx), of: d}
}

func (x *crowdedTxn) If(c ...clientv3.Cmp) clientv3.Txn { x.Txn = x.Txn.If(c...); return x }

func (x *crowdedTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *crowdedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.registers = len(ops) == 4 && ops[0].IsPut()
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *crowdedTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.registers {
		x.of.join()
	}
	return x.Txn.Commit()
}

// TestAStormIsWaitedOut: an instance that registers while very many others do lists after
// them.
func TestAStormIsWaitedOut(t *testing.T) {
	for others, waits := range map[int]bool{stormJoins: false, stormJoins + 1: true} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			client := etcdtest.NewClient(t, server)
			f := setupOn(t, client)
			f.set("p", "1000/s")
			kv := newKV(client, defaultTimeout)
			store := &crowded{KV: kv, join: func() {
				for i := range others {
					if _, err := kv.Put(t.Context(), f.admin.keys.Instance("p", fmt.Sprint("a", i)), `{"schema":1,"name":"a","weight":1}`); err != nil {
						t.Error(err)
					}
				}
			}}
			f.kv = store
			r, leave := f.subscribe(f.join(Options{TTL: time.Minute}), "p")
			await.Until(t, "a proof", r.is(proved))
			if log := r.told().log; !strings.HasPrefix(log, fmt.Sprintf("reset %d", others+1)) {
				t.Errorf("was told %.40q, want all to be listed", log)
			}
			if waited := store.looks.Load() > 1; waited != waits {
				t.Errorf("waited until nobody joins: %v, want %v", waited, waits)
			}
			if err := leave(); err != nil {
				t.Error(err)
			}
		})
	}
}
