package coordinator

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session"
)

// Where an operator changes the windows of a long limit, the first total of a new window is written with what the
// old ones have handed out. They are read after the policy was, and the new total is written on the condition
// that this is still the policy: so nobody takes permits by an earlier one meanwhile.

// replaced is what a membership knows of the limits that the policy has no more.
type replaced struct {
	all     []protocol.Was
	policy  int64 // revision of the policy by which they were read, or 0
	cluster uint64
}

// knowReplaced reads them, once for each policy.
func (p *membership) knowReplaced(ctx context.Context, at session.Standing) error {
	b := &p.budgets
	if at.Policy == 0 || b.replaced.policy == at.Policy && b.replaced.cluster == at.Cluster {
		return nil
	}
	r, err := p.s.kv.Get(ctx, p.s.keys.BudgetsBefore(p.Provider))
	if err != nil {
		return err
	}
	if r.Header.ClusterId != at.Cluster {
		return errOtherCluster
	}
	b.replaced = replaced{policy: at.Policy, cluster: at.Cluster}
	for _, kv := range r.Kvs {
		if b.replaced.all, err = protocol.ReadWas(kv.Value); err != nil {
			b.replaced = replaced{}
			return fmt.Errorf("read which limits the policy had before: %w", err)
		}
	}
	return nil
}

// carryCounts reads what the totals of takings begin with, where they do not have it yet: once for each, but for those of
// limits in flight.
func (p *membership) carryCounts(ctx context.Context, at session.Standing, all []*taking) error {
	if err := p.knowReplaced(ctx, at); err != nil {
		return err
	}
	was := p.budgets.replaced.all
	for _, k := range all {
		to := protocol.CarriedTo(was, &k.Budget, k.Key)
		again := k.InFlight && k.Purse.Carries() > 0 // calls end
		if k.Use.Look || to == 0 || to <= max(k.carriedTo, k.Purse.Total().CarriedTo) && !again {
			continue
		}
		var before []escrow.Before
		var ops []clientv3.Op // fewer than etcd takes
		for _, w := range protocol.Overlapping(was, &k.Budget, k.Key) {
			before = append(before, escrow.Before{WasWindow: w, Purse: escrow.Purse{Part: w.Part()}})
			ops = append(ops, clientv3.OpGet(p.totalOf(&escrow.KeyUse{Key: k.Key, Budget: w.Budget})))
		}
		r, err := p.s.kv.Txn(ctx).Then(ops...).Commit()
		if err == nil && r.Header.ClusterId != at.Cluster {
			err = errOtherCluster
		}
		if err != nil {
			return err
		}
		for i, found := range r.Responses {
			w, kv := &before[i], etcdcall.KeyIn(found)
			w.Purse.Read(kv.Value, kv.ModRevision, p.budgets.mark.Of(w.Since(), k.Key != ""))
		}
		k.carried, k.carriedTo = escrow.Carry(before, &k.Budget), to
	}
	return nil
}
