package coordinator

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// mute commits transactions, and hands on no answer while it is on.
type mute struct {
	clientv3.KV
	on atomic.Bool
}

func (m *mute) Txn(ctx context.Context) clientv3.Txn { return &muteTxn{m.KV.Txn(ctx), m} }

type muteTxn struct {
	clientv3.Txn
	m *mute
}

func (x *muteTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { x.Txn = x.Txn.If(cs...); return x }
func (x *muteTxn) Then(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(ops...); return x }
func (x *muteTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *muteTxn) Commit() (*clientv3.TxnResponse, error) {
	r, err := x.Txn.Commit()
	if err == nil && x.m.on.Load() {
		return nil, context.DeadlineExceeded
	}
	return r, err
}

// Places that etcd has handed out in a transaction of which no answer came are the instance's once etcd answers again.
func TestPlacesOfAnAnswerThatDidNotCome(t *testing.T) {
	t.Parallel()
	f := setup(t)
	m := &mute{KV: f.client}
	f.kv = m
	p, _ := f.follower("100/s,1000000/h")
	if err := p.knowMark(t.Context(), p.standing()); err != nil {
		t.Fatal(err)
	}
	b := protocol.BudgetAt(quota.Limit{Permits: 20, Window: 20 * time.Second, InFlight: true}, time.UTC, time.Now().UnixNano())
	m.on.Store(true)
	uses := []escrow.KeyUse{{Key: "tenant", Budget: b, Purse: escrow.Purse{Part: b.Part()}, Use: escrow.Use{Need: 5, By: 1}, Share: 5}}
	if err := p.exchange(t.Context(), takingTries, p.standing().Policy, uses); err == nil || !uses[0].Away || uses[0].Purse.Taken != 0 {
		t.Fatalf("%v, %+v", err, uses[0])
	}
	m.on.Store(false)
	uses[0].Use = escrow.Use{Look: true}
	if err := p.exchange(t.Context(), takingTries, p.standing().Policy, uses); err != nil {
		t.Fatal(err)
	}
	if got := uses[0].Purse.Regained(); !slices.Equal(got, []escrow.Back{{N: 5, Of: b.Part()}}) || uses[0].Purse.Out() != 5 {
		t.Errorf("%+v is had, %d are handed out", got, uses[0].Purse.Out())
	}
}
