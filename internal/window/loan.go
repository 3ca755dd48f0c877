package window

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// A host issues permits for a guest: they count at the host as if its own callers had them,
// and the guest uses them in the same windows, or lends them on. So no rule about shares is
// touched: used and lent permits are at most the own bound of this moment and what was
// borrowed. docs/proof/protocol.md, section 13.

// loans are the numbers told to guests, or heard of hosts. A number is the sum of what a host
// has lent to a guest in exactly these windows: so messages may be lost, late, repeated and
// in any order.
type loans map[loanOf]loan

type loanOf struct{ who, list string }

type loan struct {
	permits int64
	until   int64 // the end of the window that ends first
}

// listOf names a list of windows.
func listOf(windows []quota.Window) string {
	b := make([]byte, 0, 16*len(windows))
	for _, w := range windows {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(w.Length)), uint64(w.Index))
	}
	return string(b)
}

// add adds n permits, and returns the number.
func (l *loans) add(who string, windows []quota.Window, n int64) int64 {
	if *l == nil {
		*l = loans{}
	}
	k := loanOf{who, listOf(windows)}
	next := loan{(*l)[k].permits + n, clock.Forever}
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

// lend issues n permits, of those that may be issued, for a guest: they count here as if callers had
// them. It returns the sum of what was lent to the guest in these windows.
func (a *Account) lend(guest string, n int64) (told int64) {
	for i := range a.spans {
		a.spans[i].Used += n
		a.spans[i].lent += n
	}
	return a.guests.add(a.asGuest(guest), a.windows.Running, n)
}

// asGuest names a guest in loans. They are told under this incarnation's name: another one's begin
// anew.
func (a *Account) asGuest(id string) string { return a.windows.Lending.Self + "\x00" + id }

// Borrow adds what a host has lent in these windows, and returns how much that is. told is the sum of all that the
// host has lent in them. It counts in exactly the windows that run, and of several of a host the largest does. total
// returns what all instances together may issue in a window. With what is added the account has no more than that: so
// whoever tells it what, it uses no more.
func (a *Account) Borrow(host string, windows []quota.Window, told int64, total func(quota.Window) int64) int64 {
	if a.windows == nil || a.early || !slices.Equal(windows, a.windows.Running) || slices.ContainsFunc(windows, func(w quota.Window) bool {
		return w.End() <= a.windows.Over // the number may be forgotten
	}) {
		return 0
	}
	n := told - a.hosts[loanOf{host, listOf(windows)}].permits
	for s := range a.bounded {
		n = min(n, total(s.Window)-(s.Bound-s.lent))
	}
	if n <= 0 {
		return 0
	}
	a.hosts.add(host, windows, n)
	for i := range a.spans {
		if s := &a.spans[i]; slices.Contains(windows, s.Window) {
			s.borrowed += n
			s.Bound = queue.Sum(s.Bound, n)
		}
	}
	return n
}

// endLoans ends the loans of windows that have ended, and notes what they were.
func (l *ledger) endLoans() {
	l.ended.Borrowed, l.ended.Hosts = l.hosts.end(l.windows.Over)
	l.ended.Lent, l.ended.Guests = l.guests.end(l.windows.Over)
}

// lendable reports whether permits can be lent and borrowed in the windows that run.
func (l *ledger) lendable() bool { return !l.early && l.plan.Lendable() }

// lends reports whether permits of this instance are lent: none before a debt is paid.
func (l *ledger) lends() bool { return l.plan.Lending.Lends && l.debt == 0 }

// lend is that of the account, with what to tell the guest.
func (l *ledger) lend(guest string, n int64) protocol.Note {
	l.overIssued += max(0, n-max(0, l.unpaced()))
	told := l.Account.lend(guest, n)
	l.repace()
	return protocol.Note{Windows: l.windows.Running, Permits: map[string]int64{"": told}}
}

// borrow is that of the account, if permits can be borrowed now.
func (l *ledger) borrow(host string, told protocol.Note) int64 {
	if !l.lendable() {
		return 0
	}
	return l.Borrow(host, told.Windows, told.Permits[""], l.total)
}

// lentTo returns how many permits were lent to a guest in the windows that run.
func (a *Account) lentTo(guest string) int64 {
	return a.guests[loanOf{a.asGuest(guest), listOf(a.windows.Running)}].permits
}

// debtors are the guests to which permits were lent in the windows that run.
func (a *Account) debtors() (all []lending.Debtor) {
	list := listOf(a.windows.Running)
	for k, n := range a.guests {
		if id, own := strings.CutPrefix(k.who, a.asGuest("")); own && k.list == list {
			all = append(all, lending.Debtor{ID: id, Permits: n.permits})
		}
	}
	slices.SortFunc(all, func(a, b lending.Debtor) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
