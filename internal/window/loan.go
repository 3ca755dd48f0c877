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

// lent says in which window of the shortest limit a guest was lent something last,
// or a host has lent something.
type lent struct {
	who string
	in  quota.Window
}

// once reports whether somebody is in the list with that window or a later one of
// the same length; if not it is from now on.
func once(list []lent, who string, in quota.Window) ([]lent, bool) {
	for i := range list {
		if l := &list[i]; l.who == who {
			if l.in.Length == in.Length && l.in.Index >= in.Index {
				return list, false
			}
			l.in = in
			return list, true
		}
	}
	return append(list, lent{who, in}), true
}

// lend issues a third of what is left for each guest of the plan, once in each window
// of the shortest limit, and tells each by out.
func (l *ledger) lend(out func(guest string, loan protocol.Loan)) {
	a := l.shortest()
	if len(l.plan.Guests) == 0 || a == nil || l.plan.Shape.Any() || a.window.Length < minLending {
		return
	}
	for i, guest := range l.plan.Guests {
		// The remainder goes to each in turn.
		n := (l.budget() + (a.window.Index+int64(i))%3) / 3
		if n = min(n, l.budget()); n <= 0 {
			continue
		}
		var first bool
		if l.guests, first = once(l.guests, guest, a.window); !first {
			continue
		}
		l.charge(n, l.now)
		if out != nil {
			out(guest, protocol.Loan{Windows: l.running(), Permits: n})
		}
	}
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

// borrow adds what a host has lent to what may be issued. It reports whether it did: a
// loan counts once, under the limits that bind here too, in the windows that run.
func (l *ledger) borrow(host string, loan protocol.Loan) bool {
	if len(loan.Windows) == 0 || loan.Permits <= 0 || l.early || l.plan.Shape.Any() || !slices.Equal(loan.Windows, l.running()) {
		return false
	}
	var first bool
	if l.hosts, first = once(l.hosts, host, loan.Windows[0]); !first {
		return false
	}
	for i := range l.accounts {
		if a := &l.accounts[i]; a.binds && a.bound != Unbounded {
			a.lent += loan.Permits
			a.bound += loan.Permits
		}
	}
	return true
}
