package coordinator

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// A provider's mark says in which store its long windows count: package escrow. An instance reads
// it once, and takes permits on the condition that it is as it was read. So whoever renews it holds
// for all takings that come later.

// errOtherCluster is an answer of a store that the session does not follow, or does not follow yet.
var errOtherCluster = errors.New("another cluster has answered")

// knowMark makes sure that the mark is known, and of the store that is followed. It renews a mark that
// a backup has brought, or that is missing.
func (p *membership) knowMark(ctx context.Context, at standing) error {
	m, key := &p.budgets.mark, p.s.keys.BudgetMark(p.provider)
	for range takingTries {
		if m.Answers == at.cluster {
			if _, renew := m.Renewed(escrow.Found{Moved: at.moved}, 0, 0); !renew {
				return nil
			}
		}
		ops := []clientv3.Op{clientv3.OpGet(key)}
		missing := m.Answers == at.cluster && m.Revision == 0
		if missing { // the oldest and the newest total tell whether this is the store that it was
			for _, folder := range p.totals() {
				for _, order := range []clientv3.SortOrder{clientv3.SortAscend, clientv3.SortDescend} {
					ops = append(ops, clientv3.OpGet(folder, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, order), clientv3.WithLimit(1)))
				}
			}
		}
		r, err := p.s.kv.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return err
		}
		if r.Header.ClusterId != at.cluster {
			return errOtherCluster
		}
		kv := keyIn(r.Responses[0])
		*m = escrow.ReadMark(kv.Value, kv.ModRevision, at.cluster)
		if m.Revision == 0 && !missing {
			continue // now the totals are asked for
		}
		found, seen := escrow.Found{Moved: at.moved, Counted: true}, false
		for _, o := range r.Responses[1:] {
			if kv := keyIn(o); kv.ModRevision != 0 {
				seen, found.Counted = true, found.Counted && escrow.ReadTotal(kv.Value, 0).Cluster == at.cluster
			}
		}
		found.Counted = found.Counted && seen
		next, renew := m.Renewed(found, p.s.o.Clock.Wall(), at.bound)
		if !renew {
			return nil
		}
		text, err := escrow.Encode(next)
		if err != nil {
			return err
		}
		w, err := p.s.kv.Txn(ctx).If(is(key, m.Revision)).Then(clientv3.OpPut(key, text)).Commit()
		if err != nil {
			*m = escrow.MarkAt{} // it may have been written
			return err
		}
		if w.Header.ClusterId != at.cluster {
			*m = escrow.MarkAt{}
			return errOtherCluster
		}
		if w.Succeeded {
			*m = escrow.MarkAt{Mark: next, Revision: w.Header.Revision, Answers: at.cluster}
			if next.Before != 0 {
				p.s.o.Logger.Warn("etcd was restored from a backup, or may have been: nothing more is handed out in windows above a minute that have begun, but for what it counts: give the provider's count by quota-admin budget, see docs/outages.md",
					"provider", p.provider, "before", time.Unix(0, next.Before).UTC())
			}
			return nil
		}
		*m = escrow.MarkAt{}
	}
	return errors.New("the mark of the store changes all the time")
}

// totals returns the folders of the totals of the policy's long windows, its own and those of keys.
func (p *membership) totals() (folders []string) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.policy == nil {
		return nil
	}
	for _, l := range protocol.Long(p.policy) {
		folders = append(folders, p.s.keys.BudgetTotals(p.provider, protocol.WindowName(l)))
	}
	for _, l := range p.policy.Keys.Limits {
		if l.Window > quota.MaxWindow {
			folders = append(folders, p.s.keys.BudgetsOfKeys(p.provider, protocol.WindowName(l)))
		}
	}
	return folders
}

// storeOf returns what the mark says of the keys' window that a budget is.
func (f *budgets) storeOf(b *protocol.Budget) *escrow.Store {
	l := f.of(b.Window)
	if l.store == nil || l.store.Cluster != f.mark.Answers || l.storeBy != f.mark.Revision || l.storeOf != b.Start {
		l.store, l.storeBy, l.storeOf = f.mark.Of(b.Start, true), f.mark.Revision, b.Start
	}
	return l.store
}
