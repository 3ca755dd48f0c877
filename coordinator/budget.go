package coordinator

import (
	"context"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file decides when permits of long windows are taken from etcd; taking.go takes them.
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

	takingTries = 4  // transactions, while others come between; the first one reads
	endingTries = 21 // the same of an instance that ends

	keyBatch = 64 // bounds the keys of a transaction: etcd takes 128 operations
)

// budgets is what a membership has taken of its budgets. runBudgets's own, and giveBack's once
// that has ended.
type budgets struct {
	holder  string // of this process; no other ever has it
	lengths map[time.Duration]*budgetLength
	next    int64         // monotonic, when a taking is due after those that were
	mark    escrow.MarkAt // as last read; of no cluster before that
}

// budgetLength is what a membership has of the windows of one length, its own and those of keys.
type budgetLength struct {
	window   *budgetWindow    // the newest of the provider's budget; nil without one
	lease    clientv3.LeaseID // of the keys of a window, which it outlives
	leased   int64            // start of that window
	store    *escrow.Store    // what the mark says of the keys' window that starts at storeOf
	storeOf  int64
	storeBy  int64 // revision of that mark
	withheld int64 // start of the newest window that is logged to hand out nothing more of keys
}

// of returns what there is of windows of a length.
func (f *budgets) of(length time.Duration) *budgetLength {
	l := f.lengths[length]
	if l == nil {
		l = &budgetLength{}
		f.lengths[length] = l
	}
	return l
}

// budgetWindow is a window of a budget, and what an exchange does with it.
type budgetWindow struct {
	protocol.Budget
	account escrow.Account
	found   *escrow.Reading // by the newest read; nil before
	used    int64           // as last seen
	rate    float64         // of use, in the last second
	seen    int64           // monotonic, when used was seen
	active  int64           // monotonic, when permits were last used or wanted; 0: never
	patient int64           // how long the last need stays in hand after that
	need    int64           // the last
	read    int64           // monotonic, when found was read
	written int64           // monotonic, when the holding was written
	again   time.Duration   // until a window with too little left is looked at again

	use   escrow.Use
	share int64 // that of escrow.Rule
	taken int64 // that the sink knows of
	known bool  // it was read for this exchange
	step  escrow.Step

	withheld string // why nothing more is handed out, as last logged; empty if more is
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
		pause := p.standing().pause()
		wait = max(wait, time.Duration(f.next-int64(pause)-p.s.o.Clock.Mono()))
		if wait > 0 && !sleep(p.ctx, wait) {
			return
		}
		now := p.s.o.Clock.Mono()
		at := p.standing() // before the budgets: they are of its policy, or of a newer one
		windows, look := f.due(p.sink.Budgets(), at, now)
		uses, ok := p.sink.KeyUses(keyBatch)
		if len(windows)+len(uses) > 0 {
			f.next = max(f.next, now) + int64(pause)
			if err := p.exchange(p.ctx, takingTries, at.policy, windows, uses); err != nil {
				f.next += int64(mostPause)
			}
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
func (s standing) pause() time.Duration {
	return min(max(leastPause, time.Duration(s.instances)*pausePer), mostPause)
}

// due returns the windows of the budgets that run, if one of them needs a transaction, and about
// when to look again; 0 if there is no budget.
func (f *budgets) due(uses []protocol.BudgetUse, at standing, now int64) (all []*budgetWindow, look time.Duration) {
	if len(uses) == 0 {
		return nil, 0
	}
	due := false
	look = budgetRest
	for i := range uses {
		u := &uses[i]
		if u.Whole {
			continue
		}
		w := f.window(u, now)
		w.use, w.share, w.taken = w.see(u, now), u.Share, u.Taken
		w.use.Along = len(uses) > 1
		age := time.Duration(now - w.read)
		again := u.Need > 0 && (age > w.again || w.Permits != u.Permits)
		due = due || w.found == nil && (!w.use.Idle || w.read == 0) || again || age > budgetRead
		if w.Budget = u.Budget; w.found != nil && !due {
			_, due = w.account.Next(w.rule(at), w.found, w.use, "")
		}
		if now-w.active < int64(budgetRest) && w.active != 0 {
			look = budgetLook
		}
		all = append(all, w)
	}
	if !due {
		all = nil
	}
	return all, look
}

// window returns the window of a budget that runs.
func (f *budgets) window(u *protocol.BudgetUse, now int64) *budgetWindow {
	l := f.of(u.Window)
	w := l.window
	if w == nil || w.Start != u.Start {
		next := &budgetWindow{Budget: u.Budget, seen: now, written: now, patient: int64(budgetIdle)}
		if w != nil { // a new window is no use of it
			next.active, next.patient, next.need, next.read = w.active, w.patient, w.need, w.read
		}
		l.window, w = next, next
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

func (w *budgetWindow) rule(at standing) escrow.Rule {
	return escrow.Rule{Limit: w.Permits, Instances: at.instances, Share: w.share}
}

// left returns how many permits nobody has taken; negative if that is not known.
func (w *budgetWindow) left() int64 {
	if w.found == nil {
		return -1
	}
	return escrow.Rule{Limit: w.Permits}.Left(w.found)
}

// giveBack gives back what this process, whose sink is closed, has in hand.
func (p *membership) giveBack(ctx context.Context) {
	var windows []*budgetWindow
	for _, u := range p.sink.Budgets() {
		if w := p.budgets.of(u.Window).window; w != nil && w.Start == u.Start && (u.Taken > u.Used || w.account.Unsure()) {
			w.use, w.taken = escrow.Use{Used: u.Used, Ends: true}, u.Taken
			windows = append(windows, w)
		}
	}
	for ctx.Err() == nil { // what cannot be given back is stranded
		uses, _ := p.sink.KeyUses(keyBatch)
		if len(windows)+len(uses) == 0 {
			return
		}
		_ = p.exchange(ctx, endingTries, 0, windows, uses) // nothing is taken, by whichever policy
		windows = nil
	}
}
