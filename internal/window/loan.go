package window

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// A host issues permits for a guest: they count at the host as if its own callers had them,
// and the guest uses them in the same windows, or lends them on. So no rule about shares is
// touched: used and lent permits are at most the own bound of this moment and what was
// borrowed. docs/protocol.md, section 13.

// loans are the numbers told to guests, or heard of hosts. A number is the sum of what a host
// has lent to a guest in exactly these windows: so messages may be lost, late, repeated and
// in any order.
type loans map[loanOf]loan

type loanOf struct{ who, list string }

type loan struct {
	permits int64
	until   int64 // the end of the window that ends first
}

// listOf names a list of windows, and of long ones.
func listOf(windows []quota.Window, long []int64) string {
	b := make([]byte, 0, 16*len(windows)+8*len(long))
	for _, w := range windows {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(w.Length)), uint64(w.Index))
	}
	for _, n := range long {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return string(b)
}

// add adds n permits, and returns the number.
func (l *loans) add(who string, windows []quota.Window, long []int64, n int64) int64 {
	if *l == nil {
		*l = loans{}
	}
	k := loanOf{who, listOf(windows, long)}
	next := loan{(*l)[k].permits + n, Forever}
	for _, w := range windows {
		next.until = min(next.until, w.End())
	}
	(*l)[k] = next
	return next.permits
}

// end forgets the loans of windows that have ended by a corrected wall time. It returns their
// permits, and how many instances these were lent to or by.
func (l loans) end(wall int64) (permits int64, partners int) {
	ids := map[string]bool{}
	for of, n := range l {
		if n.until <= wall {
			permits, ids[of.who] = permits+n.permits, true
			delete(l, of)
		}
	}
	return permits, len(ids)
}

// Loans are the permits that were not with their owners in one window of the shortest limit.
type Loans struct {
	Borrowed int64 // permits
	Hosts    int   // instances that lent them
	Lent     int64
	Guests   int // instances that borrowed them
}

// net returns of an instance that lent some and borrowed some the difference only: so a permit
// that is lent on, or comes back, is counted once in the sum of all, and not more permits than
// there are.
func (l Loans) net() Loans {
	if l.Borrowed, l.Lent = max(0, l.Borrowed-l.Lent), max(0, l.Lent-l.Borrowed); l.Borrowed == 0 {
		l.Hosts = 0
	}
	if l.Lent == 0 {
		l.Guests = 0
	}
	return l
}

// endLoans ends the loans of windows that have ended.
func (l *ledger) endLoans() {
	wall := l.now + l.plan.Offset
	l.ended.Borrowed, l.ended.Hosts = l.hosts.end(wall)
	l.ended.Lent, l.ended.Guests = l.guests.end(wall)
}

// borrowable reports whether permits are lent and borrowed under this plan.
func (l *ledger) borrowable() bool {
	a := l.shortest()
	return a != nil && a.bound != Unbounded && a.window.Length >= protocol.MinLending && !l.plan.Shape.Any() && !l.plan.Shadow
}

// lendable reports whether permits can be lent and borrowed in the windows that run.
func (l *ledger) lendable() bool { return !l.early && l.borrowable() }

// lends reports whether permits of this instance are lent: none before a debt is paid.
func (l *ledger) lends() bool { return l.plan.Lending.Lends && l.debt == 0 }

// lend charges n permits, of those that may be issued, to this instance, and returns what to
// tell the guest.
func (l *ledger) lend(guest string, n int64) protocol.Loan {
	l.charge(n, l.now)
	l.issued -= n
	for _, a := range l.accounts {
		a.out += n
	}
	for i := range l.budgets {
		l.budgets[i].out += n
	}
	running, long := l.running(), l.long()
	return protocol.Loan{Windows: running, Long: long, Permits: l.guests.add(l.asGuest(guest), running, long, n)}
}

// running returns the windows of the limits that bind, shortest first.
func (l *ledger) running() (all []quota.Window) {
	for _, a := range l.accounts {
		if a.limit != nil {
			all = append(all, a.window)
		}
	}
	return all
}

// long returns the budgets' windows that bind: a length and a start of each.
func (l *ledger) long() (all []int64) {
	for i := range l.budgets {
		if b := &l.budgets[i]; b.binds {
			all = append(all, int64(b.Window), b.Start)
		}
	}
	return all
}

// borrow adds what a host has lent to what may be issued, and returns how much that is. A
// loan counts in exactly the windows that run, and of several numbers of a host the largest.
// With it an instance has no more than the total: so whoever tells it what, it uses no more.
func (l *ledger) borrow(host string, told protocol.Loan) int64 {
	if !l.lendable() || !slices.Equal(told.Windows, l.running()) || !slices.Equal(told.Long, l.long()) {
		return 0
	}
	n := told.Permits - l.hosts[loanOf{host, listOf(told.Windows, told.Long)}].permits
	for a := range l.bounded {
		n = min(n, a.limit.Limit-(a.bound-a.out))
	}
	if n <= 0 {
		return 0
	}
	l.hosts.add(host, told.Windows, told.Long, n)
	for i := range l.budgets {
		l.budgets[i].lent += n // the host has taken them
	}
	for a := range l.bounded {
		a.lent += n
		a.bound += n
		a.set(l)
	}
	return n
}

// asGuest names a guest in loans. They are told under this incarnation's name: another one's
// begin anew.
func (l *ledger) asGuest(id string) string { return l.plan.Lending.Self + "\x00" + id }

// lentTo returns how many permits were lent to a guest in the windows that run.
func (l *ledger) lentTo(guest string) int64 {
	return l.guests[loanOf{l.asGuest(guest), listOf(l.running(), l.long())}].permits
}

// debtors are the guests to which permits were lent in the windows that run.
func (l *ledger) debtors() (all []lending.Debtor) {
	list := listOf(l.running(), l.long())
	for k, n := range l.guests {
		if id, own := strings.CutPrefix(k.who, l.asGuest("")); own && k.list == list {
			all = append(all, lending.Debtor{ID: id, Permits: n.permits})
		}
	}
	slices.SortFunc(all, func(a, b lending.Debtor) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
