package coordinator

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// Permits of keys' long limits are taken from etcd in batches: an escrow.Purse decides, and this
// file reads and writes. Each key of a batch has a condition of its own, so one that another
// instance has written in between holds up no other.

// keyBatch bounds the uses of a transaction: etcd takes 128 operations.
const keyBatch = 64

// keyLease is the lease of the totals of one window. They outlive it.
type keyLease struct {
	start    int64
	id       clientv3.LeaseID
	withheld bool // of some key nothing more is handed out, which was logged
}

// takeKeys sends a batch for the keys that want permits or give some back, and returns for how
// many; ok is false if no key has a long limit.
func (p *membership) takeKeys(ctx context.Context, policy int64) (n int, ok bool) {
	uses, ok := p.sink.KeyUses(keyBatch)
	if len(uses) == 0 {
		return 0, ok
	}
	ctx, done := context.WithTimeout(ctx, reportTimeout)
	defer done()
	err := p.transactKeys(ctx, uses, policy)
	if err = classify(ctx, "take permits of keys of "+p.provider, err); errors.Is(err, ErrPermission) {
		p.s.o.Logger.Warn("permits of keys' long limits cannot be taken: create the role again: quota-admin roles consumer "+p.provider, "provider", p.provider, "error", err)
	}
	p.sink.FundKeys(uses)
	return len(uses), true
}

// transactKeys sends transactions until each use is decided, three at most. A use that is not
// decided is Away.
func (p *membership) transactKeys(ctx context.Context, uses []escrow.KeyUse, policy int64) error {
	open := make([]*escrow.KeyUse, len(uses))
	for i := range uses {
		open[i] = &uses[i]
		open[i].Away = true
	}
	leases, err := p.leaseKeys(ctx, uses)
	if err != nil {
		return err
	}
	for try := 0; try < takingTries && len(open) > 0; try++ {
		if open, err = p.tryKeys(ctx, open, policy, leases, try > 0); err != nil {
			if errors.Is(err, rpctypes.ErrLeaseNotFound) { // a restored etcd does not know it
				clear(p.budgets.leases)
			}
			return err
		}
	}
	return nil
}

// leaseKeys returns the leases of the uses' windows.
func (p *membership) leaseKeys(ctx context.Context, uses []escrow.KeyUse) (map[time.Duration]keyLease, error) {
	if p.budgets.leases == nil {
		p.budgets.leases = map[time.Duration]keyLease{}
	}
	for i := range uses {
		b := &uses[i].Budget
		if was := p.budgets.leases[b.Window]; was.start >= b.Start && was.id != clientv3.NoLease {
			continue
		}
		l, err := p.s.client.Grant(ctx, int64(2*b.Window/time.Second))
		if err != nil {
			return nil, err
		}
		p.budgets.leases[b.Window] = keyLease{start: b.Start, id: l.ID}
	}
	return p.budgets.leases, nil
}

// tryKeys sends one transaction, and returns the uses that need another one: because their
// totals were not as they were thought to be. read says that the totals are known.
func (p *membership) tryKeys(ctx context.Context, open []*escrow.KeyUse, policy int64, leases map[time.Duration]keyLease, read bool) (again []*escrow.KeyUse, err error) {
	p.mu.Lock()
	cluster, fresh := p.line.Cluster(), p.key != "" && p.proved != 0 && p.s.o.Clock.Mono()-p.proved < int64(p.freshness())
	instances := int64(p.tracker.Instances())
	p.mu.Unlock()
	type step struct {
		next escrow.Total
		n    int64
		ok   bool
	}
	steps := make([]step, len(open))
	ops := make([]clientv3.Op, 0, len(open))
	sent := open[:0:0]
	for _, u := range open {
		key := p.s.keys.BudgetOfKey(p.provider, u.Name(), u.Start, u.Key)
		rule := escrow.Rule{Limit: u.Permits, Instances: instances, Share: u.Share}
		st := step{}
		st.next, st.n, st.ok = u.Purse.Next(rule, u.Use, u.Back, cluster)
		if st.n > 0 && !fresh {
			continue // the view is in doubt
		}
		if !st.ok && read {
			p.decided(u, rule)
			continue
		}
		get := clientv3.OpGet(key)
		if st.ok {
			text, err := escrow.Encode(st.next)
			if err != nil {
				return nil, err
			}
			lease := clientv3.WithLease(leases[u.Window].id)
			if u.Purse.Revision() != 0 {
				lease = clientv3.WithIgnoreLease()
			}
			conditions := []clientv3.Cmp{is(key, u.Purse.Revision())}
			if st.n > 0 {
				conditions = append(conditions, is(p.s.keys.Policy(p.provider), policy))
			}
			get = clientv3.OpTxn(conditions, []clientv3.Op{clientv3.OpPut(key, text, lease)}, []clientv3.Op{get})
		}
		steps[len(sent)] = st
		sent, ops = append(sent, u), append(ops, get)
	}
	if len(sent) == 0 {
		return nil, nil
	}
	r, err := p.s.kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, err
	}
	for i, u := range sent {
		found, st := r.Responses[i], &steps[i]
		if txn := found.GetResponseTxn(); txn != nil && txn.Succeeded {
			if r.Header.ClusterId == cluster {
				u.Purse.Committed(st.next, st.n, r.Header.Revision, cluster)
				p.decided(u, escrow.Rule{Limit: u.Permits})
			}
			continue
		} else if txn != nil {
			found = txn.Responses[0]
		}
		kv := keyIn(found)
		u.Purse.Read(kv.Value, kv.ModRevision, r.Header.ClusterId)
		again = append(again, u)
	}
	return again, nil
}

// decided fills in a use's answer.
func (p *membership) decided(u *escrow.KeyUse, rule escrow.Rule) {
	u.Away, u.Left, u.Withheld = false, u.Purse.Left(rule), u.Purse.Withheld()
	if l := p.budgets.leases[u.Window]; u.Withheld != "" && !l.withheld {
		l.withheld = true
		p.budgets.leases[u.Window] = l
		p.s.o.Logger.Warn("nothing more of some keys is handed out until this window ends", "provider", p.provider, "key", u.Key, "limit", u.String(), "because", u.Withheld)
	}
}

// giveBackKeys gives back what this process, whose sink is closed, has in hand of keys.
func (p *membership) giveBackKeys(ctx context.Context) {
	p.mu.Lock()
	policy := p.policyAt
	p.mu.Unlock()
	for ctx.Err() == nil { // what cannot be given back is stranded
		if n, _ := p.takeKeys(ctx, policy); n == 0 {
			return
		}
	}
}
