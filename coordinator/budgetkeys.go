package coordinator

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// budgetKeys returns the keys of a window's total and of the own holding in it.
func (p *membership) budgetKeys(w *budgetWindow) (total, own string) {
	k := p.s.keys
	return k.BudgetTotal(p.provider, w.Name(), w.Start), k.BudgetHoldings(p.provider, w.Name(), w.Start) + p.budgets.holder
}

// readBudgets reads the newest total up to each window's, and the own holding in it.
func (p *membership) readBudgets(ctx context.Context, all []*taking) error {
	var gets []clientv3.Op
	for _, t := range all {
		total, own := p.budgetKeys(t.budgetWindow)
		gets = append(gets,
			clientv3.OpGet(p.s.keys.BudgetTotals(p.provider, t.Name()), clientv3.WithRange(total+"\x00"), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1)),
			clientv3.OpGet(own))
	}
	r, err := p.s.kv.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return err
	}
	found := make([]*escrow.Reading, len(all))
	for i, t := range all {
		f := &escrow.Reading{Cluster: r.Header.ClusterId, Revision: r.Header.Revision}
		if kv := keyIn(r.Responses[2*i]); kv.ModRevision != 0 {
			total, _ := p.budgetKeys(t.budgetWindow)
			f.TotalRevision, f.Older = kv.ModRevision, string(kv.Key) != total
			f.Total = escrow.ReadTotal(kv.Value, f.Cluster)
		}
		if kv := keyIn(r.Responses[2*i+1]); kv.ModRevision != 0 {
			f.OwnRevision = kv.ModRevision
			if f.Own, err = escrow.Decode[escrow.Holding](kv.Value); err != nil {
				return err
			}
		}
		found[i] = f
	}
	for i, t := range all {
		t.found, t.read = found[i], p.s.o.Clock.Mono()
	}
	return nil
}

// commitBudgets sends the steps on the condition that nothing has changed since the read,
// nor the policy, if one of them takes permits.
func (p *membership) commitBudgets(ctx context.Context, all []*taking) (*clientv3.TxnResponse, error) {
	var conditions []clientv3.Cmp
	var puts []clientv3.Op
	takes := false
	for _, t := range all {
		total, own := p.budgetKeys(t.budgetWindow)
		leased := func(revision int64) clientv3.OpOption {
			if revision != 0 {
				return clientv3.WithIgnoreLease()
			}
			return clientv3.WithLease(t.lease)
		}
		totalAt := t.found.TotalRevision
		if t.found.Older {
			totalAt = 0
		}
		conditions = append(conditions, is(total, totalAt), is(own, t.found.OwnRevision))
		if t.step.Own.Taken > t.found.Own.Taken && !takes {
			takes = true
			conditions = append(conditions, is(p.s.keys.Policy(p.provider), t.policy))
		}
		totalText, err := escrow.Encode(t.step.Total)
		if err != nil {
			return nil, err
		}
		ownText, err := escrow.Encode(t.step.Own)
		if err != nil {
			return nil, err
		}
		puts = append(puts, clientv3.OpPut(total, totalText, leased(totalAt)), clientv3.OpPut(own, ownText, leased(t.found.OwnRevision)))
	}
	return p.s.kv.Txn(ctx).If(conditions...).Then(puts...).Commit()
}
