package coordinator

import (
	"context"
	"errors"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Permits of long windows are taken from etcd: package escrow decides, and this file reads
// and writes.
const (
	budgetEvery = time.Second      // between two transactions of an instance
	budgetIdle  = 10 * time.Second // unused for so long: it gives back
	budgetTold  = 10 * time.Second // how old a holding's number of used permits becomes
	budgetAgain = 10 * time.Second // until a spent window is looked at again
)

// funding is what a membership has taken of its budgets. fund's own, and giveBack's once
// that has ended.
type funding struct {
	holder  string // of this process; no other ever has it
	windows map[time.Duration]*funded
	last    int64 // monotonic, when a transaction was sent
}

// funded is a window of a budget.
type funded struct {
	protocol.Budget
	policy  int64 // revision that the limit is of
	account escrow.Account
	found   *escrow.Found    // by the newest read; nil before
	lease   clientv3.LeaseID // of its keys
	used    int64            // as last seen
	rate    int64            // of use, a second
	seen    int64            // monotonic, when used was seen
	active  int64            // monotonic, when permits were last used or wanted
	read    int64            // monotonic, when found was read
	told    int64            // monotonic, when the holding was written
}

// fund takes permits and gives them back until the membership ends.
func (p *membership) fund() {
	f := &p.funding
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.sink.Wanting():
		case <-timer.C:
		}
		now := p.s.o.Clock.Mono()
		if early := time.Duration(f.last + int64(budgetEvery) - now); f.last != 0 && early > 0 {
			if !sleep(p.ctx, early) {
				return
			}
			now = p.s.o.Clock.Mono()
		}
		p.mu.Lock()
		policy := p.policyAt // before the budgets: they are of it, or of a newer one
		p.mu.Unlock()
		if all := p.sink.Budgets(); len(all) > 0 {
			p.fundOne(all, policy, now)
			timer.Reset(budgetEvery/2 + jitter(budgetEvery)) // out of step with others
		}
	}
}

// fundOne sends the transaction that the first of the budgets needs that needs one.
func (p *membership) fundOne(all []protocol.BudgetUse, policy, now int64) {
	f := &p.funding
	for i := range all {
		u := &all[i]
		w := f.windows[u.Window]
		if w == nil || w.Start != u.Start {
			active := now
			if w != nil {
				active = w.active // a new window is no use of it
			}
			w = &funded{Budget: u.Budget, seen: now, active: active, told: now}
			f.windows[u.Window] = w
		}
		use := w.see(u, now)
		again := u.Need > 0 && (now-w.read > int64(budgetAgain) || w.Permits != u.Permits)
		w.Budget, w.policy = u.Budget, policy
		if !u.Whole && (w.found == nil && !use.Idle || w.found != nil && (again || p.due(w, use))) {
			f.last = now
			p.exchange(p.ctx, w, u, use)
			return
		}
	}
}

// see notes what was used and wanted.
func (w *funded) see(u *protocol.BudgetUse, now int64) escrow.Use {
	if u.Used != w.used || u.Need > 0 {
		w.active = now
	}
	if elapsed := now - w.seen; elapsed >= int64(budgetEvery)/2 {
		w.rate = int64(math.Ceil(float64(max(0, u.Used-w.used)) / time.Duration(elapsed).Seconds())) // or one a second would be none
		w.used, w.seen = u.Used, now
	}
	return escrow.Use{
		Used: u.Used, Need: u.Need, Rate: w.rate,
		Idle: now-w.active > int64(budgetIdle), Told: now-w.told > int64(budgetTold),
	}
}

func (p *membership) rule(w *funded) escrow.Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	return escrow.Rule{Limit: w.Permits, Seconds: int64(w.Window / time.Second), Instances: int64(p.tracker.Instances())}
}

// due reports whether a transaction is due by what was found last.
func (p *membership) due(w *funded, use escrow.Use) bool {
	_, ok := w.account.Next(p.rule(w), w.found, use, "")
	return ok
}

// exchange sends the transaction that is due, and tells the sink what is taken then.
func (p *membership) exchange(ctx context.Context, w *funded, u *protocol.BudgetUse, use escrow.Use) {
	ctx, done := context.WithTimeout(ctx, reportTimeout)
	defer done()
	spent, err := p.transact(ctx, w, u, use)
	if err = classify(ctx, "take permits of "+w.String()+" of "+p.provider, err); errors.Is(err, ErrPermission) {
		p.s.o.Logger.Warn("permits of a long window cannot be taken: create the role again: quota-admin roles consumer "+p.provider, "provider", p.provider, "error", err)
	}
	p.set(w, w.account.May(), spent, err != nil)
}

// transact reads the window's keys and sends the transaction that is due. It returns
// whether nothing is left.
func (p *membership) transact(ctx context.Context, w *funded, u *protocol.BudgetUse, use escrow.Use) (spent bool, err error) {
	found, err := p.readBudget(ctx, w)
	if err != nil {
		return false, err
	}
	w.found, w.read = found, p.s.o.Clock.Mono()
	w.account.Read(found)
	p.mu.Lock()
	id, fresh := p.id, p.key != "" && p.proved != 0 && p.s.o.Clock.Mono()-p.proved < int64(p.freshness())
	p.mu.Unlock()
	rule := p.rule(w)
	step, ok := w.account.Next(rule, found, use, id)
	if step.Total.Withheld != "" && found.Total.Withheld == "" {
		p.s.o.Logger.Warn("nothing more is handed out in this window: give the provider's count: quota-admin budget "+p.provider+" --used N",
			"provider", p.provider, "limit", w.String(), "because", step.Total.Withheld)
	}
	if !fresh && !use.Ends && step.Own.Taken >= found.Own.Taken && step.Total.Withheld == "" {
		w.found = nil // the view is in doubt: look again
		return false, nil
	}
	if !ok {
		return rule.Left(found) == 0, nil
	}
	if step.Own.Taken < u.Taken {
		// Permits that are given back are not issued from before on.
		if taken, ok := p.set(w, step.Own.Taken, false, false); !ok || taken > step.Own.Taken {
			return false, nil
		}
	}
	if w.lease == clientv3.NoLease {
		l, err := p.s.client.Grant(ctx, int64(2*w.Window/time.Second))
		if err != nil {
			return false, err
		}
		w.lease = l.ID
	}
	w.account.Sent(step.Own.Taken)
	t, err := p.commitBudget(ctx, w, found, &step)
	if err == nil && t.Header.ClusterId != found.Cluster {
		err = errors.New("another cluster has answered")
	}
	if err != nil {
		return false, err
	}
	w.account.Answered(t.Succeeded, t.Header.Revision)
	if !t.Succeeded {
		return false, nil
	}
	w.told = p.s.o.Clock.Mono()
	found.Total, found.TotalRevision, found.Older = step.Total, t.Header.Revision, false
	found.Own, found.OwnRevision, found.Revision = step.Own, t.Header.Revision, t.Header.Revision
	return rule.Left(found) == 0, nil
}

// budgetKeys returns the keys of a window's total and of the own holding in it.
func (p *membership) budgetKeys(w *funded) (total, own string) {
	k := p.s.keys
	return k.BudgetTotal(p.provider, w.Name(), w.Start), k.BudgetHoldings(p.provider, w.Name(), w.Start) + p.funding.holder
}

// readBudget reads the newest total up to a window's, and the own holding in it.
func (p *membership) readBudget(ctx context.Context, w *funded) (*escrow.Found, error) {
	total, own := p.budgetKeys(w)
	r, err := p.s.kv.Txn(ctx).Then(
		clientv3.OpGet(p.s.keys.BudgetTotals(p.provider, w.Name()), clientv3.WithRange(total+"\x00"), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1)),
		clientv3.OpGet(own)).Commit()
	if err != nil {
		return nil, err
	}
	f := &escrow.Found{Cluster: r.Header.ClusterId, Revision: r.Header.Revision}
	if kv := keyIn(r.Responses[0]); kv.ModRevision != 0 {
		f.TotalRevision, f.Older = kv.ModRevision, string(kv.Key) != total
		if f.Total, err = escrow.Decode[escrow.Total](kv.Value); err != nil {
			return nil, err
		}
	}
	if kv := keyIn(r.Responses[1]); kv.ModRevision != 0 {
		f.OwnRevision = kv.ModRevision
		f.Own, err = escrow.Decode[escrow.Holding](kv.Value)
	}
	return f, err
}

// commitBudget sends a step on the condition that nothing has changed since the read, nor
// the policy, if it takes permits.
func (p *membership) commitBudget(ctx context.Context, w *funded, found *escrow.Found, step *escrow.Step) (*clientv3.TxnResponse, error) {
	total, own := p.budgetKeys(w)
	leased := func(revision int64) clientv3.OpOption {
		if revision != 0 {
			return clientv3.WithIgnoreLease()
		}
		return clientv3.WithLease(w.lease)
	}
	totalAt := found.TotalRevision
	if found.Older {
		totalAt = 0
	}
	conditions := []clientv3.Cmp{is(total, totalAt), is(own, found.OwnRevision)}
	if step.Own.Taken > found.Own.Taken {
		conditions = append(conditions, is(p.s.keys.Policy(p.provider), w.policy))
	}
	totalText, err := escrow.Encode(step.Total)
	if err != nil {
		return nil, err
	}
	ownText, err := escrow.Encode(step.Own)
	if err != nil {
		return nil, err
	}
	return p.s.kv.Txn(ctx).If(conditions...).Then(
		clientv3.OpPut(total, totalText, leased(totalAt)), clientv3.OpPut(own, ownText, leased(found.OwnRevision))).Commit()
}

// set tells the sink what is taken of a window.
func (p *membership) set(w *funded, taken int64, spent, away bool) (int64, bool) {
	left := int64(-1)
	if w.found != nil {
		left = p.rule(w).Left(w.found)
	}
	return p.sink.Fund(protocol.BudgetUse{Budget: w.Budget, Taken: taken, Spent: spent, Away: away, Left: left})
}

// giveBack gives back what this process, whose sink is closed, has in hand.
func (p *membership) giveBack(ctx context.Context) {
	for _, u := range p.sink.Budgets() {
		if w := p.funding.windows[u.Window]; w != nil && w.Start == u.Start && u.Taken > u.Used {
			p.exchange(ctx, w, &u, escrow.Use{Used: u.Used, Ends: true})
		}
	}
}
