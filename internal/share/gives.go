package share

import "github.com/quotient-limiter/quotient/quota"

// gives reports whether a revision takes permits of window w from nobody, by the terms
// before and after, which are the provider's or those of its keys. Each instance
// with a share by the view before then has no less by the view after, or has promised
// to issue none. Then the view before need not be waited out (docs/proof/protocol.md, rule
// 3), and a larger total counts at once.
//
// All instances must come to the same answer. So it depends on the two views alone,
// and not on this instance's own share.
func gives(change *delta, before, after *terms, w quota.Window) bool {
	start := w.Start()
	for _, e := range change.edits {
		was, is := e.old != nil && e.old.takesPart(start), e.new != nil && e.new.takesPart(start)
		switch {
		case was && e.new != nil && e.new.until <= start: // it has promised to issue none
		case was && !is: // it may still issue permits
			return false
		case is && !was:
			return false
		}
	}
	return before == after || before.timedAs(after) && before.noneHasLess(after, w)
}

// Gives reports whether a change of policy takes permits of window w from nobody. An
// instance then uses its gain as soon as it learns of the change.
func Gives(before, after *quota.Policy, w quota.Window) bool {
	old, new := newTerms(before, 0), newTerms(after, 0)
	return !old.shaped() && !new.shaped() && old.timedAs(new) && old.noneHasLess(new, w)
}

// timedAs reports whether two views' terms have the same times.
func (t *terms) timedAs(o *terms) bool {
	p, q := &t.rules, &o.rules
	return p.Settle == q.Settle && p.Freshness == q.Freshness && p.ClockError == q.ClockError && p.Guard == q.Guard
}

// noneHasLess reports whether no participant has less by the terms after than by t.
func (t *terms) noneHasLess(after *terms, w quota.Window) bool {
	d, e := t.at(w), after.at(w)
	switch {
	case t.blocked == ReasonUnsupported || after.blocked == ReasonUnsupported:
		return false // another version may support it
	case !d.limited || !e.limited || e.total < d.total:
		return false
	case d.reason == ReasonNoPolicy || e.reason == ReasonNoPolicy || e.reason == ReasonPaused && d.reason == ReasonShare:
		return false
	}
	return t.dividesAs(after)
}

// dividesAs reports whether two policies divide a total by the same rule.
func (t *terms) dividesAs(o *terms) bool {
	return t.owners == o.owners
}
