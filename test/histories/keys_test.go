package histories

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// judgeKey judges the permits of one key as those of a provider that has the key's limits.
func (f *fleet) judgeKey(name string) (wrong []*violation) {
	k := &fleet{world: f.world, states: &states{provider: f.provider + " " + name, loans: f.ofKeys[name]}, exact: f.exact, unset: f.unset, held: f.held, key: name}
	for _, g := range f.grants { // those that paid the provider's debts are of no key
		if g.key != name {
			continue
		}
		of := *g
		of.windows, of.long = nil, time.Time{}
		if f.keyBudget > 0 { // as of all policies with keys
			of.long = time.Unix(0, quota.WindowAt(budgetWindow, g.span.from).Start())
		}
		for _, l := range keyLengths { // the part of a window that the provider's and the key's share tells which it is
			of.windows = append(of.windows, quota.WindowAt(l, min(max(g.wall, g.span.from), g.span.to-1)))
		}
		k.grants = append(k.grants, &of)
	}
	k.grants = append(k.grants, f.paid[name]...)
	if len(k.grants) == 0 || f.kind == hold && !f.exact {
		return nil
	}
	for _, v := range f.line {
		of := v.View // with the policy of all
		v.Shares = func(w quota.Window) map[string]int64 {
			_, shares, _ := share.OfKey(&of, name, w)
			return shares
		}
		v.Policy = protocol.OfKeys(v.Policy)
		if own, _ := v.Override(name); v.Policy != nil && own != nil {
			v.Policy.Limits = own.Limits
			f.stats.overridden++
		}
		k.line = append(k.line, v)
	}
	if v := k.judgeBudget(); v != nil {
		v.what = "of key " + name + ", at most"
		wrong = append(wrong, v)
	}
	k.noteLengths()
	b := newBook(k)
	for _, l := range k.lengths {
		b.count(l, false)
		for n := range b.n {
			if sum, part := b.window(n); sum > 0 {
				f.stats.keyed++
				if v := k.judgeWindow(quota.Window{Length: l, Index: b.base + int64(n)}, b, part, sum); v != nil {
					v.what = "of key " + name + ", at most"
					wrong = append(wrong, v)
				}
			}
		}
	}
	return wrong
}
