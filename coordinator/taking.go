package coordinator

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Permits of long limits, the provider's and those of keys, are taken from etcd in one
// transaction: package escrow decides, and this file reads and writes. Each window of a
// transaction has conditions of its own, so one that another instance has written in between
// holds up no other.

// taking is a window of which permits are taken, or given back.
type taking interface {
	// offer decides by what was read last. An offer without gets is none.
	offer(ctx context.Context, p *membership, at standing) (offer, error)
	// answered takes the answer: at which revision the puts were committed, or what the gets
	// have found at it. It returns whether there is more to do.
	answered(p *membership, at standing, committed bool, found []*etcdserverpb.ResponseOp, revision int64) (again bool, err error)
}

// offer is what a transaction does for one taking: puts when the conditions hold, else gets.
// Without puts it only reads.
type offer struct {
	when       []clientv3.Cmp
	puts, gets []clientv3.Op
}

// standing is what a taking depends on beside its window.
type standing struct {
	id        string // incarnation
	policy    int64  // revision of the policy in the view
	instances int64
	cluster   uint64        // that the session follows
	moved     bool          // the provider was followed in another store before
	fresh     bool          // the view is proved
	bound     time.Duration // on clocks' errors
}

func (p *membership) standing() (s standing) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	s.id, s.policy, s.instances, s.fresh = p.id, p.policyAt, int64(p.tracker.Instances()), p.fresh(p.s.o.Clock.Mono())
	if s.moved, s.bound = p.moved, quota.MaxSettle; p.line != nil {
		s.cluster = p.line.Cluster()
	}
	if p.policy != nil {
		s.bound = p.policy.ClockError
	}
	return s
}

// exchange sends what is due for windows of budgets and for keys, and tells the sink what is
// taken then. The limits are of the policy at a revision.
func (p *membership) exchange(ctx context.Context, tries int, policy int64, windows []*budgetWindow, uses []escrow.KeyUse) error {
	p.setExchanging(true)
	defer p.setExchanging(false)
	ctx, done := context.WithTimeout(ctx, reportTimeout)
	defer done()
	var all []taking
	for _, w := range windows {
		w.known = false
		all = append(all, w)
	}
	for i := range uses {
		uses[i].Away = true
		all = append(all, &keyTaking{KeyUse: &uses[i]})
	}
	err := p.transact(ctx, tries, policy, all)
	err = classify(ctx, "take permits of "+p.provider, err)
	p.s.step(asked{p, toTake, err})
	for _, w := range windows {
		spent := err == nil && w.left() == 0
		if w.again = min(max(2*w.again, budgetRest), budgetAgain); !spent {
			w.again = budgetRest
		}
		p.fund(w, w.account.May(), spent, err != nil)
	}
	if len(uses) > 0 {
		p.sink.FundKeys(uses)
	}
	return err
}

func (p *membership) setExchanging(on bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.exchanging = on
}

// transact sends transactions until each taking is decided, so many at most. Nothing is taken of
// a key by policy 0.
func (p *membership) transact(ctx context.Context, tries int, policy int64, all []taking) (failed error) {
	for ; tries > 0 && len(all) > 0; tries-- {
		at := p.standing() // each time: the view may have changed since the windows were seen
		at.policy, at.fresh = policy, at.fresh && policy != 0
		if at.cluster == 0 { // a total that was read would seem to be of another store
			return errors.Join(failed, errors.New("no etcd cluster is followed yet"))
		}
		if err := p.knowMark(ctx, at); err != nil {
			return errors.Join(failed, err)
		}
		mark := p.s.keys.BudgetMark(p.provider)
		var sent []taking
		var offers []offer
		var ops, reads []clientv3.Op
		for _, t := range all {
			x, err := t.offer(ctx, p, at)
			if err != nil {
				return errors.Join(failed, err)
			}
			if len(x.gets) == 0 {
				continue
			}
			reads = append(reads, x.gets...)
			if sent, offers = append(sent, t), append(offers, x); len(x.puts) > 0 {
				ops = append(ops, clientv3.OpTxn(x.when, x.puts, x.gets))
			} else { // not nested: what only reads needs no agreement of etcd's members
				ops = append(ops, x.gets...)
			}
		}
		if len(sent) == 0 {
			return failed
		}
		// Another mark may forbid all of it: then it is only read.
		r, err := p.s.kv.Txn(ctx).If(is(mark, p.budgets.mark.Revision)).Then(ops...).Else(append(reads, clientv3.OpGet(mark))...).Commit()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) { // a restored etcd does not know it
			for _, l := range p.budgets.lengths {
				l.lease = clientv3.NoLease
			}
		}
		if err == nil && r.Header.ClusterId != at.cluster {
			err = errOtherCluster
		}
		if err != nil {
			return errors.Join(failed, err)
		}
		if !r.Succeeded {
			kv := keyIn(r.Responses[len(r.Responses)-1])
			p.budgets.mark = escrow.ReadMark(kv.Value, kv.ModRevision, at.cluster)
		}
		all = nil
		for i, t := range sent {
			found, committed := r.Responses, false
			if r.Succeeded && len(offers[i].puts) > 0 {
				txn := found[0].GetResponseTxn()
				found, committed, r.Responses = txn.Responses, txn.Succeeded, r.Responses[1:]
			} else {
				r.Responses = r.Responses[len(offers[i].gets):]
			}
			again, err := t.answered(p, at, committed, found, r.Header.Revision)
			if failed = errors.Join(failed, err); again {
				all = append(all, t)
			}
		}
	}
	return failed
}

// leaseOf returns the lease of a window's keys.
func (p *membership) leaseOf(ctx context.Context, b *protocol.Budget) (clientv3.LeaseID, error) {
	l := p.budgets.of(b.Window)
	if l.lease == clientv3.NoLease || l.leased < b.Start {
		r, err := p.s.client.Grant(ctx, int64(2*b.Window/time.Second))
		if err != nil {
			return clientv3.NoLease, err
		}
		l.leased, l.lease = b.Start, r.ID
	}
	return l.lease, nil
}

// put adds the write of a total or a holding, if its key is at a revision; 0: it is not there.
func put[T escrow.Total | escrow.Holding](ctx context.Context, p *membership, x *offer, b *protocol.Budget, key string, revision int64, value T) error {
	text, err := escrow.Encode(value)
	if err != nil {
		return err
	}
	lease := clientv3.WithIgnoreLease()
	if revision == 0 {
		id, err := p.leaseOf(ctx, b)
		if err != nil {
			return err
		}
		lease = clientv3.WithLease(id)
	}
	x.when, x.puts = append(x.when, is(key, revision)), append(x.puts, clientv3.OpPut(key, text, lease))
	return nil
}

// onPolicy adds the condition that the policy is the one that the limits are of.
func (p *membership) onPolicy(x *offer, at standing) {
	x.when = append(x.when, is(p.s.keys.Policy(p.provider), at.policy))
}

// offer implements taking.
func (w *budgetWindow) offer(ctx context.Context, p *membership, at standing) (x offer, err error) {
	total, own := p.budgetKeys(w)
	x.gets = []clientv3.Op{ // the newest total up to the window's, and the own holding
		clientv3.OpGet(p.s.keys.BudgetTotals(p.provider, w.Name()), clientv3.WithRange(total+"\x00"), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1)),
		clientv3.OpGet(own),
	}
	if w.known = w.known && w.found.Cluster == at.cluster; !w.known {
		return x, nil
	}
	found := w.found
	found.Store = *p.budgets.mark.Of(w.Start, false)
	step, ok := w.account.Next(w.rule(at), found, w.use, at.id)
	if w.step = step; !ok {
		return offer{}, nil
	}
	if !at.fresh && !w.use.Ends && w.step.Own.Taken >= found.Own.Taken && w.step.Total.Withheld == "" {
		w.found = nil // the view is in doubt: look again
		return offer{}, nil
	}
	if w.step.Own.Taken < w.taken {
		// Permits that are given back are not issued from before on.
		if taken, ok := p.fund(w, w.step.Own.Taken, false, false); !ok || taken > w.step.Own.Taken {
			return offer{}, nil
		}
	}
	totalAt := found.TotalRevision
	if found.Older {
		totalAt = 0
	}
	if err = errors.Join(put(ctx, p, &x, &w.Budget, total, totalAt, w.step.Total), put(ctx, p, &x, &w.Budget, own, found.OwnRevision, w.step.Own)); err != nil {
		return x, err
	}
	if w.step.Own.Taken > found.Own.Taken {
		p.onPolicy(&x, at)
	}
	w.account.Sent(w.step.Own.Taken)
	return x, nil
}

// answered implements taking.
func (w *budgetWindow) answered(p *membership, at standing, committed bool, found []*etcdserverpb.ResponseOp, revision int64) (again bool, err error) {
	now := p.s.o.Clock.Mono()
	if committed {
		w.account.Committed(revision)
		w.found = &escrow.Reading{Store: w.found.Store, Revision: revision, Total: w.step.Total, TotalRevision: revision, Own: w.step.Own, OwnRevision: revision}
		w.written = now
		return false, nil
	}
	f := &escrow.Reading{Store: *p.budgets.mark.Of(w.Start, false), Revision: revision}
	if kv := keyIn(found[0]); kv.ModRevision != 0 {
		total, _ := p.budgetKeys(w)
		f.TotalRevision, f.Older, f.Total = kv.ModRevision, string(kv.Key) != total, escrow.ReadTotal(kv.Value, at.cluster)
	}
	if kv := keyIn(found[1]); kv.ModRevision != 0 {
		f.OwnRevision = kv.ModRevision
		if f.Own, err = escrow.Decode[escrow.Holding](kv.Value); err != nil {
			return false, err
		}
	}
	if w.known {
		w.account.Refused(f)
	} else {
		w.account.Read(f)
	}
	w.found, w.read, w.known = f, now, true
	return true, nil
}

// budgetKeys returns the keys of a window's total and of the own holding in it.
func (p *membership) budgetKeys(w *budgetWindow) (total, own string) {
	k := p.s.keys
	return k.BudgetTotal(p.provider, w.Name(), w.Start), k.BudgetHoldings(p.provider, w.Name(), w.Start) + p.budgets.holder
}

// fund tells the sink what is taken of a window.
func (p *membership) fund(w *budgetWindow, taken int64, spent, away bool) (int64, bool) {
	withheld := ""
	if w.found != nil {
		withheld = w.found.Withheld()
	}
	if withheld != w.withheld && withheld != "" {
		p.s.o.Logger.Warn("nothing more is handed out in this window: give the provider's count: quota-admin budget "+p.provider+" --used N --limit "+w.String(),
			"provider", p.provider, "limit", w.String(), "because", withheld)
	}
	w.withheld = withheld
	return p.sink.Fund(protocol.BudgetUse{Budget: w.Budget, Taken: taken, Spent: spent, Away: away, Left: w.left(), Withheld: withheld})
}

// keyTaking is the taking of a window of a key. Use.Away is true until it is decided.
type keyTaking struct {
	*escrow.KeyUse
	known bool         // the total was read for this
	total escrow.Total // to be written
	n     int64        // permits that are taken by it
}

// offer implements taking.
func (k *keyTaking) offer(ctx context.Context, p *membership, at standing) (x offer, err error) {
	store := p.budgets.storeOf(&k.Budget)
	if !k.Purse.Of(store) { // what it had in hand is of another store, and counts no more
		if k.Purse = (escrow.Purse{Taken: k.Use.Used}); k.Back > 0 {
			k.decided(p)
			return x, nil
		}
	}
	key, rule := p.s.keys.BudgetOfKey(p.provider, k.Name(), k.Start, k.Key), escrow.Rule{Limit: k.Permits, Instances: at.instances, Share: k.Share}
	total, n, ok := k.Purse.Next(rule, k.Use, k.Back, store)
	k.total, k.n = total, n
	switch {
	case k.n > 0 && !at.fresh: // the view is in doubt
		return x, nil
	case !ok && k.known:
		k.decided(p)
		return x, nil
	}
	x.gets = []clientv3.Op{clientv3.OpGet(key)}
	if ok && (k.known || k.n >= 0) { // a give-back has one try, but for those that Refused allows
		err = put(ctx, p, &x, &k.Budget, key, k.Purse.Revision(), k.total)
	}
	if k.n > 0 {
		p.onPolicy(&x, at)
	}
	return x, err
}

// answered implements taking.
func (k *keyTaking) answered(p *membership, at standing, committed bool, found []*etcdserverpb.ResponseOp, revision int64) (again bool, err error) {
	if committed {
		k.Purse.Committed(k.total, k.n, revision, p.budgets.storeOf(&k.Budget))
		k.decided(p)
		return false, nil
	}
	kv := keyIn(found[0])
	never := k.Purse.Refused(k.total, kv.Value, kv.ModRevision, p.budgets.storeOf(&k.Budget))
	if k.known && k.n < 0 && !never { // a copy of the give-back may be committed
		k.decided(p)
		return false, nil
	}
	k.known = true
	return true, nil
}

// decided notes that etcd has answered.
func (k *keyTaking) decided(p *membership) {
	k.Away = false
	why := k.Purse.Withheld()
	if l := p.budgets.of(k.Window); why != "" && l.withheld != k.Start {
		l.withheld = k.Start
		p.s.o.Logger.Warn("nothing more of some keys is handed out in this window: give the provider's counts: quota-admin budget "+p.provider+" --key KEY --used N, or --keys-unused",
			"provider", p.provider, "key", k.Key, "limit", k.String(), "because", why)
	}
}
