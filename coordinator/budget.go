package coordinator

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/session"
)

// This file decides when permits of long windows are taken from etcd; taking.go takes them.
const (
	budgetGather = 5 * time.Millisecond // from a want until permits are taken, for others to come

	// leastPause is between two takings of an instance, but for one that comes at once: so
	// they are at most 10 in any second. Instances beyond 125 add pausePer each, up to
	// mostPause. Of calls in flight inFlightAtOnce come at once, and the pause is half as long,
	// since callers wait for each: an instance asks for a place, and then takes it. So they are
	// at most 21.
	leastPause = 125 * time.Millisecond
	pausePer   = time.Millisecond
	mostPause  = time.Second

	inFlightAtOnce = 4

	takingTries = 4  // transactions, while others come between; the first one may have to read
	endingTries = 21 // the same of an instance that ends

	budgetRest = time.Second // until the first look

	keyBatch = 64 // bounds the windows of a transaction: etcd takes 128 operations
)

// budgets is what a membership knows of its long limits in etcd. runBudgets's own, and giveBack's
// once that has ended.
type budgets struct {
	lengths map[budgetKind]*budgetLength
	next    int64         // monotonic, when a taking is due after those that were
	atOnce  int64         // takings that may come at once
	mark    escrow.MarkAt // as last read; of no cluster before that
	// replaced are the limits whose windows have counts that others go on with.
	replaced replaced
}

// budgetKind are the windows of limits with one Budget.Name, of the provider or of its keys.
type budgetKind struct {
	name string
	keys bool
}

// budgetLength is what a membership has of the windows of one kind.
type budgetLength struct {
	lease     clientv3.LeaseID // of the totals of a window, which it outlives
	leased    int64            // start of that window
	verdict   *escrow.Verdict  // what the mark says of the window that starts at verdictOf
	verdictOf int64
	verdictBy int64 // revision of that mark
	withheld  int64 // until windows begin later than this it is not logged again that nothing more is handed out
	total     *ear  // hears of the total of a limit in flight; nil before the first use of one
}

// of returns what there is of windows as that of a use.
func (f *budgets) of(u *escrow.KeyUse) *budgetLength {
	kind := budgetKind{u.Name(), u.Key != ""}
	l := f.lengths[kind]
	if l == nil {
		l = &budgetLength{}
		f.lengths[kind] = l
	}
	return l
}

// hearTotal has the session hear of the total of a limit in flight: who writes it asks for permits, or has given some
// back. What is missed is asked for again.
func (p *membership) hearTotal(u *escrow.KeyUse) {
	l := p.budgets.of(u)
	if !u.InFlight || l.total != nil {
		return
	}
	p.budgets.atOnce = inFlightAtOnce
	name := u.Name()
	l.total = p.s.hearing.add(&ear{folder: p.s.keys.BudgetTotals(p.Provider, name), refuse: func() {}, hear: func(kv *mvccpb.KeyValue) {
		total, err := escrow.Decode[escrow.Total](kv.Value)
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		if err == nil && !p.Silent() {
			p.Sink.Heard(name, total, kv.ModRevision)
		}
	}})
}

// hearNone ends that.
func (p *membership) hearNone() {
	for _, l := range p.budgets.lengths {
		p.s.hearing.end(l.total)
	}
}

// runBudgets takes permits and gives them back until the membership ends.
func (p *membership) runBudgets() {
	f := &p.budgets
	timer := time.NewTimer(budgetRest)
	defer timer.Stop()
	defer p.hearNone()
	for {
		wait := time.Duration(0)
		select {
		case <-p.ctx.Done():
			return
		case <-p.Sink.Wanting():
			wait = budgetGather
		case <-timer.C:
		}
		pause := takingPause(p.standing())
		if f.atOnce > 0 {
			pause /= 2
		}
		wait = max(wait, time.Duration(f.next-max(1, f.atOnce)*int64(pause)-p.s.o.Clock.Mono()))
		if wait > 0 && !sleep(p.ctx, wait) {
			return
		}
		now := p.s.o.Clock.Mono()
		at := p.standing() // before the uses: they are of its policy, or of a newer one
		uses, look := p.Sink.Uses(keyBatch)
		if len(uses) > 0 {
			for i := range uses {
				p.hearTotal(&uses[i])
			}
			f.next = max(f.next, now) + int64(pause)
			if err := p.exchange(p.ctx, takingTries, at.Policy, uses); err != nil {
				f.next += int64(mostPause)
			}
		}
		if look > 0 {
			timer.Reset(look/2 + jitter(look)) // out of step with others
		}
	}
}

// takingPause returns how long it is between two takings, in the long run.
func takingPause(s session.Standing) time.Duration {
	return min(max(leastPause, time.Duration(s.Instances)*pausePer), mostPause)
}

// giveBack gives back what this process, whose sink is closed, has in hand, unless etcd does not answer.
func (p *membership) giveBack(ctx context.Context) {
	for ctx.Err() == nil { // what cannot be given back is stranded
		uses, _ := p.Sink.Uses(keyBatch)
		if len(uses) == 0 {
			return
		}
		if p.exchange(ctx, endingTries, 0, uses) != nil { // nothing is taken, by whichever policy
			return
		}
	}
}
