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

// lent is what a guest was lent, or a host has lent, in a window of the shortest limit
// or of a longer one.
type lent struct {
	who     string
	in      quota.Window
	permits int64
}

// lentIn returns what one has lent, or was lent, in a window.
func lentIn(list []lent, who string, in quota.Window) (permits int64) {
	for _, l := range list {
		if l.who == who && l.in == in {
			permits += l.permits
		}
	}
	return permits
}

// note adds a loan to a list, and forgets those whose windows have ended by then.
func note(list []lent, who string, loan *protocol.Loan) []lent {
	list = slices.DeleteFunc(list, func(l lent) bool { return l.in.End() <= loan.Windows[0].Start() })
	for _, w := range loan.Windows {
		list = append(list, lent{who, w, loan.Permits})
	}
	return list
}

// lend issues a third of what is left for each guest of the plan, once in each window
// of the shortest limit, and tells each by out. A debt is paid first.
func (l *ledger) lend(out func(guest string, loan protocol.Loan)) (lent int64) {
	a := l.shortest()
	if len(l.plan.Guests) == 0 || l.debt > 0 || a == nil || l.plan.Shape.Any() || a.window.Length < minLending {
		return 0
	}
	for i, guest := range l.plan.Guests {
		// The remainder goes to each in turn.
		n := (l.budget() + (a.window.Index+int64(i))%3) / 3
		if n = min(n, l.budget()); n <= 0 || lentIn(l.guests, guest, a.window) > 0 {
			continue
		}
		l.charge(n, l.now)
		lent += n
		loan := protocol.Loan{Windows: l.running(), Permits: n}
		l.guests = note(l.guests, guest, &loan)
		if out != nil {
			out(guest, loan)
		}
	}
	return lent
}

// running returns the windows of the limits that bind, shortest first.
func (l *ledger) running() (all []quota.Window) {
	for i := range l.accounts {
		if a := &l.accounts[i]; a.binds {
			all = append(all, a.window)
		}
	}
	slices.SortFunc(all, func(a, b quota.Window) int { return int(a.Length - b.Length) })
	return all
}

// borrow adds what a host has lent to what may be issued, and returns how much that is.
// A loan counts once, under the limits that bind here too, in the windows that run.
// shares are the host's: whoever it is, it lends no more in any window.
func (l *ledger) borrow(host string, loan protocol.Loan, shares []int64) int64 {
	if len(loan.Windows) == 0 || l.early || l.plan.Shape.Any() || !slices.Equal(loan.Windows, l.running()) ||
		lentIn(l.hosts, host, loan.Windows[0]) > 0 {
		return 0
	}
	for i, w := range loan.Windows {
		loan.Permits = min(loan.Permits, shares[i]-lentIn(l.hosts, host, w))
	}
	if loan.Permits <= 0 {
		return 0
	}
	l.hosts = note(l.hosts, host, &loan)
	for i := range l.budgets {
		l.budgets[i].lent += loan.Permits // the host has taken them
	}
	for i := range l.accounts {
		if a := &l.accounts[i]; a.binds && a.bound != Unbounded {
			a.lent += loan.Permits
			a.bound += loan.Permits
		}
	}
	return loan.Permits
}
