package window

import (
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// Keys says in which windows a provider's keys are counted. It belongs to a plan and, like
// it, never changes. The next plan has the same one if the bounds of all keys are the same.
type Keys struct {
	// Windows are those that run, shortest first, one for each length that may bind.
	Windows []quota.Window
	// Budgets are the windows that run of limits above quota.MaxWindow, one for each length
	// that a key may have, without their permits.
	Budgets []protocol.Budget
	// Shut says that nothing is issued for a key: within a guard, or in a window that was
	// over before corrected time was set back.
	Shut bool
	// Offset is corrected wall time minus monotonic time, and Guard the time at either edge
	// of a window in which nothing is issued.
	Offset, Guard int64
	// Over is a corrected wall time: windows that ended by then never run again.
	Over int64
	// Most bounds the keys in use.
	Most int64
	// Lending is that of the provider, as far as keys allow it.
	Lending Lending
}

// Spans goes over the start and the end of each window, in corrected wall time.
func (k *Keys) Spans(yield func(start, end int64) bool) {
	for _, w := range k.Windows {
		if !yield(w.Start(), w.End()) {
			return
		}
	}
	for i := range k.Budgets {
		if !yield(k.Budgets[i].Start, k.Budgets[i].End) {
			return
		}
	}
}

// Opens returns the first monotonic instant after now at which a key may have more permits,
// if there is no news; Forever if nothing is limited.
func (k *Keys) Opens(now int64) int64 {
	at := Forever
	for start, end := range k.Spans {
		if opens := k.opens(start); opens > now {
			at = min(at, opens)
		} else if opens = k.opens(end); opens > now {
			at = min(at, opens)
		}
	}
	return at
}

// Late returns the monotonic instant from which a permit of the shortest window is hardly of use to
// its owner any more.
func (k *Keys) Late() int64 {
	return k.Windows[0].End() - k.Guard - k.Offset - int64(lending.Late*milli)
}

// opens returns the monotonic instant at which permits are issued after an edge of a window.
func (k *Keys) opens(edge int64) int64 { return edge + k.Guard - k.Offset }

// Key counts the permits issued for one key. The zero Key has issued none. The caller keeps
// calls apart. The order of calls: Adopt for the windows that run, then any of the others.
type Key struct {
	keys     *Keys
	accounts []keyAccount
	budgets  []keyBudget
	early    bool // corrected time was set back: an account's window has not begun
	// epoch numbers the spans in which no account moves to another window.
	epoch    uint64
	debt     int64
	reserved int64
	// guests and hosts are the sums that were told to guests, or heard of hosts.
	guests, hosts loans
}

// keyAccount counts the permits of a key under one limit.
type keyAccount struct {
	window      quota.Window
	bound, used int64 // the bound has what was lent to this instance
	lent, out   int64 // by others, and to others; the latter is used too
	paid        int64 // of used: what has paid debts
	before      int64 // used by callers in the window before
}

// Keys returns the windows by which the counts are; nil before the first Adopt.
func (k *Key) Keys() *Keys { return k.keys }

// Adopt moves the accounts to the windows that run. A window's index never goes back. bound
// is asked for the key's bound of each window, and budgets for its long limits, if keys may
// have any.
func (k *Key) Adopt(keys *Keys, bound func(quota.Window) int64, budgets func() []protocol.Budget) {
	k.keys, k.early = keys, false
	if len(keys.Budgets) > 0 || len(k.budgets) > 0 {
		k.adoptBudgets(budgets())
	}
	for i := range k.accounts {
		k.accounts[i].bound = Unbounded
	}
	for _, w := range keys.Windows {
		i := slices.IndexFunc(k.accounts, func(a keyAccount) bool { return a.window.Length == w.Length })
		if i < 0 {
			i = len(k.accounts)
			k.accounts = append(k.accounts, keyAccount{window: w})
			k.epoch++
		}
		switch a := &k.accounts[i]; {
		case w.Index > a.window.Index:
			*a = keyAccount{window: w, before: a.calledBefore(w)}
			k.epoch++
		case w.Index < a.window.Index:
			k.early = true
		}
		if a := &k.accounts[i]; a.window == w {
			a.bound = addCapped(bound(w), a.lent)
		} else {
			a.bound = bound(w)
		}
	}
	k.accounts = slices.DeleteFunc(k.accounts, func(a keyAccount) bool { return a.bound == Unbounded && a.window.End() <= keys.Over })
	k.forgetLoans()
	k.repay()
}

// bounded goes over the accounts whose limits bind.
func (k *Key) bounded(yield func(*keyAccount) bool) {
	for i := range k.accounts {
		if a := &k.accounts[i]; a.bound != Unbounded && !yield(a) {
			return
		}
	}
}

// Left returns how many permits may be issued now, less those reserved: 0 where no limit is
// known to bind.
func (k *Key) Left() int64 { return max(0, min(k.LeftToBorrowers(), k.inHand()-k.reserved)) }

// leftOfShares is left as far as shares decide it.
func (k *Key) leftOfShares() int64 {
	if k.early || k.keys == nil || k.keys.Shut {
		return 0
	}
	least := Unbounded
	for a := range k.bounded {
		least = min(least, a.bound-a.used)
	}
	if least == Unbounded {
		return 0
	}
	return max(0, least)
}

// left is the same with those reserved, and whatever is owed.
func (k *Key) left() int64 { return max(0, min(k.leftOfShares(), k.inHand())) }

// Reserve keeps n permits for a caller that has to wait for the provider's.
func (k *Key) Reserve(n int64) { k.reserved += n }

// Unreserve ends that.
func (k *Key) Unreserve(n int64) { k.reserved -= n }

// Confirm issues n reserved permits, if the windows that run now allow them. The
// reservation ends either way.
func (k *Key) Confirm(n int64) bool {
	k.reserved -= n
	if k.debt > 0 || k.left() < n {
		return false
	}
	k.Charge(n)
	return true
}

// Lapses reports whether the permits that are reserved may be gone in the next windows: a share may
// hold fewer there. Total returns how many the shares of all instances hold.
func (k *Key) Lapses(total func(quota.Window) int64) bool {
	for a := range k.bounded {
		if each := total(a.window) / int64(max(1, k.keys.Lending.Instances)); k.reserved > min(a.bound-a.lent, each) {
			return true
		}
	}
	return false
}

// Charge books n issued permits. They count in the running window of every length.
func (k *Key) Charge(n int64) {
	for i := range k.accounts {
		k.accounts[i].used += n
	}
	for b := range k.binding {
		b.used += n
	}
}

// Refund takes n permits out again that were issued in an epoch; false if that is over.
func (k *Key) Refund(n int64, epoch uint64) bool {
	if epoch != k.epoch {
		return false
	}
	k.Charge(-n)
	k.repay()
	return true
}

// Owe adds n permits that calls have cost beyond those issued. Nothing is issued until
// later permits have paid them.
func (k *Key) Owe(n int64) {
	k.debt = addCapped(k.debt, n)
	k.repay()
}

// Debt returns what is owed, and the monotonic instant at which the own shares alone have paid it,
// about; Forever if that is not known.
func (k *Key) Debt() (n, until int64) {
	until = math.MinInt64
	for a := range k.bounded {
		until = max(until, paidAt(k.debt, a.bound-a.used, a.bound-a.lent, a.window, k.keys.Offset, false))
	}
	if until == math.MinInt64 {
		until = Forever
	}
	return k.debt, until
}

func (k *Key) repay() {
	if n := min(k.debt, k.left()); n > 0 {
		k.Charge(n)
		k.debt -= n
		for i := range k.accounts {
			k.accounts[i].paid += n
		}
	}
}

// Booked returns what is booked of each window.
func (k *Key) Booked() (all []Use) {
	for _, a := range k.accounts {
		all = append(all, Use{a.window, a.bound, a.used, a.lent, a.out, a.paid})
	}
	return all
}

// Epoch returns the number for Refund of permits that are issued now.
func (k *Key) Epoch() uint64 { return k.epoch }

// Span returns from when until when the running windows of all limits last, in corrected
// wall time.
func (k *Key) Span() (start, end int64) {
	end = Forever
	for a := range k.bounded {
		start, end = max(start, a.window.Start()), min(end, a.window.End())
	}
	for b := range k.binding {
		start, end = max(start, b.Start), min(end, b.End)
	}
	return start, end
}

// Opens returns the first monotonic instant after now at which n permits may come, if there
// is no news: at the end of the windows that leave fewer. Forever if nothing is limited.
func (k *Key) Opens(n, now int64) int64 {
	if k.keys == nil {
		return now
	}
	end, lacks := k.SpentUntil(n)
	for a := range k.bounded {
		if a.bound-a.used < n {
			end = max(end, a.window.End())
		}
	}
	switch {
	case k.early || k.keys.Shut || k.debt > 0:
	case end > 0:
		return k.keys.opens(end)
	case lacks:
		return now // as soon as etcd answers
	}
	return k.keys.Opens(now)
}

// Own returns the own share of the windows that run, the smallest of them.
func (k *Key) Own() int64 {
	own := Unbounded
	for a := range k.bounded {
		own = min(own, a.bound-a.lent)
	}
	return own
}

// Earliest returns an instant before which n permits are surely not here, if others lend: until then
// all of the key's total could come to this instance.
func (k *Key) Earliest(n, now int64, total func(quota.Window) int64) (at int64) {
	at = now
	for a := range k.bounded {
		if most := total(a.window); most > 0 && addCapped(n, k.debt) > most-(a.used-a.out) { // 0: nobody knows until when
			at = max(at, k.keys.opens(a.window.End())-k.keys.Guard)
		}
	}
	return at
}

// Over reports whether nothing of the key counts any more: then it may be forgotten, and
// the zero Key stands for it. A budget of which nothing is in hand counts in etcd's total alone;
// it is kept while etcd is not to be asked again.
func (k *Key) Over(keys *Keys) bool {
	return k.debt == 0 && k.reserved == 0 &&
		!slices.ContainsFunc(k.accounts, func(a keyAccount) bool { return a.used > 0 && a.window.End() > keys.Over }) &&
		!slices.ContainsFunc(k.budgets, func(b keyBudget) bool {
			return b.state == handedOut || b.End > keys.Over && (b.again > keys.Over-keys.Offset || b.holds())
		})
}
