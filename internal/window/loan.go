package window

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// A newcomer has no share for the settle time. Until then others issue permits for
// it: they count at the lender as if its own callers had them, and the newcomer uses
// them in the same windows. So no rule about shares is touched.

// minLending is the shortest window in which lending is worth its messages.
const minLending = 250 * time.Millisecond

// lent is the permits that guests were lent, or hosts have lent, in the windows of all
// limits.
type lent map[lentIn]int64

type lentIn struct {
	who string
	in  quota.Window
}

// with adds a loan, and forgets those whose windows have ended by then.
func (l lent) with(who string, loan *protocol.Loan) lent {
	next := lent{}
	for k, n := range l {
		if k.in.End() > loan.Windows[0].Start() {
			next[k] = n
		}
	}
	for _, w := range loan.Windows {
		next[lentIn{who, w}] += loan.Permits
	}
	return next
}

// lend issues a third of the permits that are left to each guest of the plan, once in
// each window of the shortest limit. It tells each guest by out. A debt is paid first.
func (l *ledger) lend(out func(guest string, loan protocol.Loan)) (lent int64) {
	a := l.shortest()
	if len(l.plan.Guests) == 0 || l.debt > 0 || a == nil || l.plan.Shape.Any() || a.window.Length < minLending {
		return 0
	}
	for i, guest := range l.plan.Guests {
		// The remainder goes to each in turn.
		n := (l.budget() + (a.window.Index+int64(i))%3) / 3
		if n = min(n, l.budget()); n <= 0 || l.guests[lentIn{guest, a.window}] > 0 {
			continue
		}
		l.charge(n, l.now)
		lent += n
		loan := protocol.Loan{Windows: l.running(), Permits: n}
		l.guests = l.guests.with(guest, &loan)
		if out != nil {
			out(guest, loan)
		}
	}
	return lent
}

// running returns the windows of the limits that bind, shortest first.
func (l *ledger) running() (all []quota.Window) {
	for _, a := range l.accounts {
		if a.binds {
			all = append(all, a.window)
		}
	}
	return all
}

// borrow adds what a host has lent to what may be issued, and returns how much that is.
// A loan counts once, under the limits that bind here too, in the windows that run.
// shares are the host's: whoever it is, it lends no more in any window. All hosts together
// lend no more than the total, however often they are replaced.
func (l *ledger) borrow(host string, loan protocol.Loan, shares []int64) int64 {
	if len(loan.Windows) == 0 || l.early || l.plan.Shape.Any() || !slices.Equal(loan.Windows, l.running()) ||
		l.hosts[lentIn{host, loan.Windows[0]}] > 0 {
		return 0
	}
	for i, w := range loan.Windows {
		total, heard := l.plan.totalOf(w), int64(0)
		for k, n := range l.hosts {
			if k.in == w {
				heard += n
			}
		}
		loan.Permits = min(loan.Permits, shares[i]-l.hosts[lentIn{host, w}], total-heard)
	}
	if loan.Permits <= 0 {
		return 0
	}
	l.hosts = l.hosts.with(host, &loan)
	for i := range l.budgets {
		l.budgets[i].lent += loan.Permits // the host has taken them
	}
	for a := range l.bounded {
		a.lent += loan.Permits
		a.bound += loan.Permits
	}
	return loan.Permits
}
