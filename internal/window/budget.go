package window

import (
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// This file joins the provider's long limits, which are counted as those of each key, to the gate.

// spentUntil returns when the windows of long limits end that hold no n permits more; 0 if there
// is none.
func (l *ledger) spentUntil(n int64) (end int64) {
	if end, _ = l.SpentUntil(n); end > 0 {
		end -= l.plan.Offset
	}
	return end
}

// spent reports whether nothing is left of a long limit beside what is in hand.
func (l *ledger) spent() bool {
	for b := range l.binding {
		if b.left() == 0 {
			return true
		}
	}
	return false
}

// leftOfBudgets returns how many permits this instance may have of every long limit, from its hand and etcd together, as far
// as is known of the totals; Unbounded if none binds. Limits in flight are left aside: their calls end at any time, and
// others give back what is wanted of them.
func (l *ledger) leftOfBudgets() int64 {
	least := shape.Unbounded
	for b := range l.binding {
		if b.left() >= 0 && !b.InFlight {
			least = min(least, b.reach())
		}
	}
	return least
}

// wantForQueueLocked wants what queueWantsLocked says.
func (g *Gate) wantForQueueLocked() {
	if len(g.mu.ledger.budgets) > 0 {
		g.wantBudgetsLocked(g.queueWantsLocked())
	}
}

// queueWantsLocked returns what the queue could have now if etcd were asked for it, and at least what its head wants; or
// what is paid of a debt next. It is no more than is left of the long limits: else etcd would not be asked at all (tooMany).
func (g *Gate) queueWantsLocked() int64 {
	l := &g.mu.ledger
	could := min(l.leftOfShares(), l.leftOfBudgets()) - g.takenLocked()
	return max(g.headLocked(), min(g.mu.queue.Permits(), could, l.MostOfBudgets()), l.instalment())
}

// wantNowLocked notes that n permits were wanted and refused: others are asked for some. If a short
// limit has not so many now, more of a long one would be of no use.
func (g *Gate) wantNowLocked(n int64) {
	g.noteLackLocked()
	if l := &g.mu.ledger; len(l.budgets) > 0 && n <= l.leftOfShares()-g.takenLocked() {
		if b := l.inFlight(); b != nil {
			b.wanted.tried = max(b.wanted.tried, n)
		}
		g.wantBudgetsLocked(n)
	}
}

// wantBudgetsLocked notes that n permits are wanted, and says so if it is news.
func (g *Gate) wantBudgetsLocked(n int64) {
	if n > 0 && g.mu.ledger.wants(n, 0, g.takenLocked(), g.mu.last.Mono) {
		g.Wanting()
	}
}

// takenLocked returns how many permits were taken from the segment and are not booked. What backs a front is not taken yet.
func (g *Gate) takenLocked() int64 {
	s := g.segment.Load()
	if left := s.left.Load(); left != sealed {
		return g.mu.published - left - s.backs()
	}
	return 0
}

// Uses hands out the uses of long limits of which more is wanted from etcd, or some is given back,
// at most so many. Each comes back by Fund. used reports whether permits were used since the call
// before, and limited whether there is a long limit.
func (g *Gate) Uses(at clock.Instant, most int) (all []escrow.KeyUse, used, limited bool) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	l, taken := &g.mu.ledger, g.takenLocked()
	n := l.issued + taken - g.mu.seen // less than 0 if more came back
	if g.mu.seen += n; len(l.budgets) == 0 {
		return nil, false, false
	}
	if used = n != 0; used {
		l.wants(0, n, taken, g.mu.last.Mono)
	}
	if !g.mu.closed {
		g.wantForQueueLocked()
		all = l.takeUse("", most, taken, g.mu.last.Mono)
		all = append(all, g.looksLocked(most-len(all))...)
	}
	spare := false
	for i := range l.budgets {
		b := &l.budgets[i]
		spare = spare || b.spare(g.mu.last.Mono, g.mu.closed) > 0 || b.returns(g.mu.closed)
	}
	if spare { // none of them may be taken by a caller any more before they are given back
		g.settleLocked()
		all = append(all, l.GiveBack("", most-len(all), g.mu.last.Mono, g.mu.closed)...)
		g.mu.judge = true
		g.rebuildLocked(at)
	}
	return all, used, true
}

// looksLocked hands out uses that only read what is left, where that was not read for a while or etcd did not answer, or
// take an ask back.
func (g *Gate) looksLocked(most int) (all []escrow.KeyUse) {
	l, now := &g.mu.ledger, g.mu.last.Mono
	for b := range l.binding {
		use, asks := escrow.Use{Used: b.used, Look: true}, g.asksForNobodyLocked(b)
		if asks {
			use.By, b.again = l.by(), 0 // whoever comes now asks anew
		}
		due := now >= b.again && (b.away || b.read == 0 || now-b.read > longRead)
		if len(all) < most && b.state == atRest && !b.Whole && (asks || due) {
			all = append(all, b.handOut(escrow.KeyUse{Use: use}))
		}
	}
	return all
}

// Fund takes a use back that Uses has handed out.
func (g *Gate) Fund(at clock.Instant, u escrow.KeyUse) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	g.settleLocked()
	l := &g.mu.ledger
	could, spent := l.spentUntil(g.headLocked()) == 0, l.spent()
	l.Fund(u, g.mu.last.Mono)
	worse := !spent && l.spent() || could && l.spentUntil(g.headLocked()) > 0
	g.mu.judge = g.mu.judge || worse
	g.rebuildLocked(at)
	if l.AsksAtOnce(g.mu.last.Mono) { // others came first at each try, or a call in flight has ended meanwhile
		g.Wanting()
	}
}

// Restored is Account.Restored for the provider.
func (g *Gate) Restored(at clock.Instant) {
	g.mu.Lock()
	defer g.unlock()
	g.settleLocked()
	g.mu.ledger.Restored()
	g.mu.judge = true
	g.rebuildLocked(at)
}
