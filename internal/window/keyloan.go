package window

import (
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// Lend issues up to n permits for a guest: they count here as if callers had them, but for
// the long limits, of which the guest takes permits itself. It keeps
// those that callers will want at the rate of this shortest window and the one before, unless all
// may be lent. It returns the sum
// of what was lent to the guest in these windows, 0 if nothing is lent now. docs/protocol.md,
// section 15.
func (k *Key) Lend(guest string, n, now int64, all bool) (told int64) {
	if k.keys == nil {
		return 0
	}
	keep := int64(0)
	if !all {
		keep = k.wanted(now)
	}
	if n = min(n, k.LeftToBorrowers()-keep); n <= 0 {
		return 0
	}
	for i := range k.accounts {
		k.accounts[i].used += n
		k.accounts[i].out += n
	}
	return k.guests.add(k.keys.Lending.Self+"\x00"+guest, k.keys.Windows, nil, n)
}

// wanted returns how many permits callers will want until the shortest window ends.
func (k *Key) wanted(now int64) int64 {
	a := k.shortest()
	if a == nil {
		return 0
	}
	wall := now + k.keys.Offset
	gone, rest := max(0, wall-a.window.Start()), max(0, a.window.End()-k.keys.Guard-wall)
	return int64(math.Ceil(float64(a.before+a.called()) * float64(rest) / float64(gone+int64(a.window.Length))))
}

// called returns how many permits callers have used.
func (a *keyAccount) called() int64 { return a.used - a.out - a.paid }

// calledBefore returns how many permits callers have used in the account's window, if that is
// the one before w.
func (a *keyAccount) calledBefore(w quota.Window) int64 {
	if a.window.Index+1 != w.Index {
		return 0
	}
	return max(0, a.called())
}

// Rate returns how many permits callers have used in the shortest window, and for how long it
// has run and will.
func (k *Key) Rate(now int64) (used, gone, rest int64) {
	a := k.shortest()
	if a == nil {
		return 0, 0, 0
	}
	wall := now + k.keys.Offset
	return a.called(), wall - a.window.Start(), a.window.End() - k.keys.Guard - wall
}

// shortest returns the account of the shortest window that runs; nil if there is none.
func (k *Key) shortest() *keyAccount {
	for i := range k.accounts {
		if k.keys != nil && k.accounts[i].window == k.keys.Windows[0] {
			return &k.accounts[i]
		}
	}
	return nil
}

// Borrow adds what a host has lent, by the sum that it has told, and returns how much that
// is. A sum counts in exactly the windows that run, and of several of a host the largest.
// With it the key has no more than its total.
func (k *Key) Borrow(host string, windows []quota.Window, told int64, total func(quota.Window) int64) int64 {
	if k.keys == nil || k.early || !slices.Equal(windows, k.keys.Windows) || slices.ContainsFunc(windows, func(w quota.Window) bool {
		return w.End() <= k.keys.Over // the number may be forgotten
	}) {
		return 0
	}
	n := told - k.hosts[loanOf{host, listOf(windows, nil)}].permits
	for a := range k.bounded {
		n = min(n, total(a.window)-(a.bound-a.out))
	}
	if n <= 0 {
		return 0
	}
	k.hosts.add(host, windows, nil, n)
	for i := range k.accounts {
		if a := &k.accounts[i]; slices.Contains(windows, a.window) {
			if a.lent += n; a.bound != Unbounded {
				a.bound += n
			}
		}
	}
	k.repay()
	return n
}

// forgetLoans forgets the numbers of windows that never run again.
func (k *Key) forgetLoans() {
	for _, l := range []loans{k.guests, k.hosts} {
		for of, n := range l {
			if n.until <= k.keys.Over {
				delete(l, of)
			}
		}
	}
}
