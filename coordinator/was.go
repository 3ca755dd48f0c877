package coordinator

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
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

// carryCounts reads what the totals of takings begin with, where they do not have it yet.
func (p *membership) carryCounts(ctx context.Context, at session.Standing, all []*taking) error {
	if err := p.knowReplaced(ctx, at); err != nil || len(p.budgets.replaced.all) == 0 {
		return err
	}
	var ops []clientv3.Op
	read := func(k *taking) (before []escrow.Before) {
		for _, w := range protocol.Overlapping(p.budgets.replaced.all, &k.Budget, k.Key != "") {
			before = append(before, escrow.Before{WasWindow: w})
			ops = append(ops, clientv3.OpGet(p.totalOf(&escrow.KeyUse{Key: k.Key, Budget: w.Budget})))
		}
		return before
	}
	var due []carrying
	for _, k := range all {
		if to := protocol.CarriedTo(p.budgets.replaced.all, &k.Budget, k.Key != ""); !k.Use.Look && to > max(k.carriedTo, k.Purse.Total().CarriedTo) {
			due = append(due, carrying{k, to, read(k)})
		}
	}
	var found []*etcdserverpb.ResponseOp
	for some := range slices.Chunk(ops, etcdcall.MaxOps) {
		r, err := p.s.kv.Txn(ctx).Then(some...).Commit()
		if err == nil && r.Header.ClusterId != at.Cluster {
			err = errOtherCluster
		}
		if err != nil {
			return err
		}
		found = append(found, r.Responses...)
	}
	for _, d := range due { // in the order of the questions
		for i := range d.windows {
			w, kv := &d.windows[i], etcdcall.KeyIn(found[i])
			w.Purse.Part = w.Part()
			w.Purse.Read(kv.Value, kv.ModRevision, p.budgets.mark.Of(w.Since(), d.Key != ""))
		}
		found = found[len(d.windows):]
		d.carried, d.carriedTo = escrow.Carry(d.windows, &d.Budget), d.to
	}
	return nil
}

// carrying is a taking whose total does not have yet what it begins with: the counts of windows, until to.
type carrying struct {
	*taking
	to      int64 // see escrow.Rule.CarriedTo
	windows []escrow.Before
}
