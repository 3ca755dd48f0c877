package coordinator

import (
	"context"
	"errors"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Permits of long windows are taken from etcd: package escrow decides, and this file reads
// and writes.
const (
	budgetGather = 5 * time.Millisecond   // from a want until permits are taken, for others to come
	budgetLook   = 100 * time.Millisecond // between two looks at what is in hand, while it is used
	budgetRest   = time.Second            // the same while nothing is used
	budgetIdle   = 10 * time.Second       // unused for so long: it gives back
	budgetTold   = 10 * time.Second       // how old a holding's number of used permits becomes
	budgetRead   = 30 * time.Second       // how old what was read of a window becomes
	budgetAgain  = 10 * time.Second       // until a spent window is looked at again, at most

	// leastPause is between two takings of an instance, but for one that comes at once: so
	// they are at most 10 in any second. Instances beyond 125 add pausePer each, up to
	// mostPause.
	leastPause = 125 * time.Millisecond
	pausePer   = time.Millisecond
	mostPause  = time.Second

	takingTries = 3  // of a transaction, while others come between
	endingTries = 20 // the same of an instance that ends
)

// budgets is what a membership has taken of its budgets. runBudgets's own, and giveBack's once
// that has ended.
type budgets struct {
	holder  string // of this process; no other ever has it
	windows map[time.Duration]*budgetWindow
	next    int64                      // monotonic, when a taking is due after those that were
	leases  map[time.Duration]keyLease // of keys' totals, by windows
}

// budgetWindow is a window of a budget.
type budgetWindow struct {
	protocol.Budget
	policy  int64 // revision that the limit is of
	account escrow.Account
	found   *escrow.Reading  // by the newest read; nil before
	lease   clientv3.LeaseID // of its keys
	used    int64            // as last seen
	rate    float64          // of use, in the last second
	seen    int64            // monotonic, when used was seen
	active  int64            // monotonic, when permits were last used or wanted; 0: never
	patient int64            // how long the last need stays in hand after that
	need    int64            // the last
	read    int64            // monotonic, when found was read
	written int64            // monotonic, when the holding was written
	again   time.Duration    // until a window with too little left is looked at again
}

// taking is a window, and what an exchange does with it.
type taking struct {
	*budgetWindow
	use   escrow.Use
	rule  escrow.Rule
	taken int64 // that the sink knows of
	step  escrow.Step
	spent bool // nothing is left
}

// runBudgets takes permits and gives them back until the membership ends.
func (p *membership) runBudgets() {
	f := &p.budgets
	timer := time.NewTimer(budgetRest) // it is wanted now
	defer timer.Stop()
	for {
		wait := time.Duration(0)
		select {
		case <-p.ctx.Done():
			return
		case <-p.sink.Wanting():
			wait = budgetGather
		case <-timer.C:
		}
		pause := p.pause()
		wait = max(wait, time.Duration(f.next-int64(pause)-p.s.o.Clock.Mono()))
		if wait > 0 && !sleep(p.ctx, wait) {
			return
		}
		now := p.s.o.Clock.Mono()
		p.mu.Lock()
		policy := p.policyAt // before the budgets: they are of it, or of a newer one
		p.mu.Unlock()
		look := time.Duration(0)
		if all := p.sink.Budgets(); len(all) > 0 {
			look = p.takeBudgets(all, policy, now, pause)
		}
		n, ok := p.takeKeys(p.ctx, policy)
		if n > 0 {
			f.next = max(f.next, now) + int64(pause)
		}
		if ok && look == 0 {
			look = budgetRest
		}
		if look > 0 {
			timer.Reset(look/2 + jitter(look)) // out of step with others
		}
	}
}

// pause returns how long it is between two takings, in the long run.
func (p *membership) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(leastPause, time.Duration(p.tracker.Instances())*pausePer), mostPause)
}

// takeBudgets sends one transaction for all budgets, if one of them needs it, and returns about
// when to look again.
func (p *membership) takeBudgets(uses []protocol.BudgetUse, policy, now int64, pause time.Duration) (look time.Duration) {
	f := &p.budgets
	all, due := make([]*taking, 0, len(uses)), false
	look = budgetRest
	for i := range uses {
		u := &uses[i]
		if u.Whole {
			continue
		}
		w := f.window(u, now)
		t := &taking{budgetWindow: w, use: w.see(u, now), rule: p.rule(u), taken: u.Taken}
		t.use.Along = len(uses) > 1
		age := time.Duration(now - w.read)
		again := u.Need > 0 && (age > w.again || w.Permits != u.Permits)
		due = due || w.found == nil && (!t.use.Idle || w.read == 0) || again || age > budgetRead
		w.Budget, w.policy = u.Budget, policy
		if w.found != nil && !due {
			_, due = w.account.Next(t.rule, w.found, t.use, "")
		}
		if now-w.active < int64(budgetRest) && w.active != 0 {
			look = budgetLook
		}
		all = append(all, t)
	}
	if due {
		f.next = max(f.next, now) + int64(pause)
		if err := p.exchange(p.ctx, all); err != nil {
			f.next += int64(mostPause)
		}
	}
	return look
}

// window returns the window of a budget that runs.
func (f *budgets) window(u *protocol.BudgetUse, now int64) *budgetWindow {
	w := f.windows[u.Window]
	if w == nil || w.Start != u.Start {
		next := &budgetWindow{Budget: u.Budget, seen: now, written: now, patient: int64(budgetIdle)}
		if w != nil { // a new window is no use of it
			next.active, next.patient, next.need, next.read = w.active, w.patient, w.need, w.read
		}
		f.windows[u.Window], w = next, next
	}
	return w
}

// see notes what was used and wanted. The permits of the last need stay in hand for twice
// the time after which it came: a caller that comes seldom, and does not wait, finds them.
func (w *budgetWindow) see(u *protocol.BudgetUse, now int64) escrow.Use {
	if u.Used != w.used || u.Need > 0 {
		if w.active != 0 {
			w.patient = max(w.patient, 2*(now-w.active))
		}
		w.active, w.need = now, max(1, u.Need)
	}
	part := time.Duration(now - w.seen).Seconds()
	w.rate += float64(max(0, u.Used-w.used))/max(1, part) - w.rate*min(1, part)
	w.used, w.seen = u.Used, now
	use := escrow.Use{
		Used: u.Used, Need: u.Need, Rate: int64(math.Ceil(w.rate)), Full: u.Full,
		Idle: w.active == 0 || now-w.active > int64(budgetIdle), WriteUsed: now-w.written > int64(budgetTold),
	}
	if w.active != 0 && now-w.active <= w.patient {
		use.Keep = w.need
	}
	return use
}

func (p *membership) rule(u *protocol.BudgetUse) escrow.Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	return escrow.Rule{Limit: u.Permits, Instances: int64(p.tracker.Instances()), Share: u.Share}
}

// exchange sends the transaction that is due, and tells the sink what is taken then.
func (p *membership) exchange(ctx context.Context, all []*taking) error {
	ctx, done := context.WithTimeout(ctx, reportTimeout)
	defer done()
	err := p.transact(ctx, all)
	if err = classify(ctx, "take permits of "+p.provider, err); errors.Is(err, ErrPermission) {
		p.s.o.Logger.Warn("permits of long limits cannot be taken: create the role again: quota-admin roles consumer "+p.provider, "provider", p.provider, "error", err)
	}
	for _, t := range all {
		if t.again = min(max(2*t.again, budgetRest), budgetAgain); !t.spent {
			t.again = budgetRest
		}
		p.set(t, t.account.May(), err != nil)
	}
	return err
}

// transact reads the windows' keys and sends the transaction that is due, again while
// others come between.
func (p *membership) transact(ctx context.Context, all []*taking) error {
	tries := takingTries
	if all[0].use.Ends {
		tries = endingTries
	}
	for range tries {
		if err := p.readBudgets(ctx, all); err != nil {
			return err
		}
		var send []*taking
		for _, t := range all {
			if p.prepare(t) {
				send = append(send, t)
			}
		}
		if len(send) == 0 {
			return nil
		}
		if done, err := p.commit(ctx, send); done || err != nil {
			return err
		}
	}
	return nil
}

// prepare decides on a window's step by what was found, and reports whether to send it.
func (p *membership) prepare(t *taking) bool {
	found := t.found
	t.account.Read(found)
	p.mu.Lock()
	id, fresh := p.id, p.key != "" && p.proved != 0 && p.s.o.Clock.Mono()-p.proved < int64(p.freshness())
	p.mu.Unlock()
	var ok bool
	t.step, ok = t.account.Next(t.rule, found, t.use, id)
	if t.spent = t.rule.Left(found) == 0; !ok {
		return false
	}
	if t.step.Total.Withheld != "" && found.Total.Withheld == "" {
		p.s.o.Logger.Warn("nothing more is handed out in this window: give the provider's count: quota-admin budget "+p.provider+" --used N --limit "+t.String(),
			"provider", p.provider, "limit", t.String(), "because", t.step.Total.Withheld)
	}
	if !fresh && !t.use.Ends && t.step.Own.Taken >= found.Own.Taken && t.step.Total.Withheld == "" {
		t.found, t.spent = nil, false // the view is in doubt: look again
		return false
	}
	if t.step.Own.Taken < t.taken {
		// Permits that are given back are not issued from before on.
		t.spent = false
		if taken, ok := p.set(t, t.step.Own.Taken, false); !ok || taken > t.step.Own.Taken {
			return false
		}
	}
	return true
}

// commit sends the steps, in one transaction. It returns false if others came between.
func (p *membership) commit(ctx context.Context, all []*taking) (done bool, err error) {
	for _, t := range all {
		if t.lease == clientv3.NoLease {
			l, err := p.s.client.Grant(ctx, int64(2*t.Window/time.Second))
			if err != nil {
				return false, err
			}
			t.lease = l.ID
		}
	}
	for _, t := range all {
		t.account.Sent(t.step.Own.Taken)
	}
	r, err := p.commitBudgets(ctx, all)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // a restored etcd does not know it
		for _, t := range all {
			t.lease = clientv3.NoLease
		}
	}
	if err == nil && r.Header.ClusterId != all[0].found.Cluster {
		err = errors.New("another cluster has answered")
	}
	if err != nil {
		return false, err
	}
	for _, t := range all {
		t.account.Answered(r.Succeeded, r.Header.Revision)
		if !r.Succeeded {
			t.spent = false
			continue
		}
		found := t.found
		found.Total, found.TotalRevision, found.Older = t.step.Total, r.Header.Revision, false
		found.Own, found.OwnRevision, found.Revision = t.step.Own, r.Header.Revision, r.Header.Revision
		t.written, t.spent = p.s.o.Clock.Mono(), t.rule.Left(found) == 0
	}
	return r.Succeeded, nil
}

// set tells the sink what is taken of a window.
func (p *membership) set(t *taking, taken int64, away bool) (int64, bool) {
	left, withheld := int64(-1), ""
	if t.found != nil {
		left, withheld = t.rule.Left(t.found), t.found.Withheld()
	}
	return p.sink.Fund(protocol.BudgetUse{Budget: t.Budget, Taken: taken, Spent: t.spent && !away, Away: away, Left: left, Withheld: withheld})
}

// giveBack gives back what this process, whose sink is closed, has in hand.
func (p *membership) giveBack(ctx context.Context) {
	var all []*taking
	for _, u := range p.sink.Budgets() {
		if w := p.budgets.windows[u.Window]; w != nil && w.Start == u.Start && u.Taken > u.Used {
			all = append(all, &taking{budgetWindow: w, use: escrow.Use{Used: u.Used, Ends: true}, rule: p.rule(&u), taken: u.Taken})
		}
	}
	if len(all) > 0 {
		_ = p.exchange(ctx, all) // what cannot be given back is stranded
	}
	p.giveBackKeys(ctx)
}
