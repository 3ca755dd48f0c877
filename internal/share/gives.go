package share

import (
	"bytes"
	"maps"

	"github.com/quotient-limiter/quotient/quota"
)

// gives reports whether a revision takes permits of window w from nobody. Each instance
// with a share by the view before then has no less by the view after, or has promised
// to issue none. Then the view before need not be waited out (docs/protocol.md, rule
// 3), and a larger total counts at once.
//
// All instances must come to the same answer. So it depends on the two views alone,
// and not on this instance's own share. The division is that of either view.
func gives(change *delta, c *division) bool {
	before, after := change.before, change.after
	start, left := c.start, false
	for _, e := range change.edits {
		was, is := e.old != nil && e.old.takesPart(start), e.new != nil && e.new.takesPart(start)
		switch {
		case was && e.new != nil && e.new.until <= start:
			left = true
		case was && !is: // it may still issue permits
			return false
		case is && !was:
			return false
		case was && (e.old.weight != e.new.weight || e.old.name != e.new.name):
			return false
		}
	}
	if left && before.entry(c.w) != nil { // claims change
		return false
	}
	return before == after || before.timedAs(after) && before.gives(after, c)
}

// Gives reports whether a change of policy takes permits of window w from nobody. An
// instance then uses its gain as soon as it learns of the change. By demand that
// depends on the fleet, and Gives reports false.
func Gives(before, after *quota.Policy, w quota.Window) bool {
	old, new := newTerms(before, 0, nil, nil), newTerms(after, 0, nil, nil)
	return !old.shaped() && !new.shaped() && new.rules.Share != quota.ShareDemand && old.timedAs(new) && old.gives(new, &division{w: w})
}

// timedAs reports whether two views' terms have the same times.
func (t *terms) timedAs(o *terms) bool {
	p, q := &t.rules, &o.rules
	return p.Settle == q.Settle && p.Freshness == q.Freshness && p.ClockError == q.ClockError &&
		p.Guard == q.Guard && p.GuardAuto == q.GuardAuto
}

// gives reports whether no participant has less by the terms after than by t.
func (t *terms) gives(after *terms, c *division) bool {
	w := c.w
	d, e := t.at(w), after.at(w)
	switch {
	case t.blocked == ReasonUnsupported || after.blocked == ReasonUnsupported:
		return false // another version may support it
	case !d.limited || !e.limited || e.total < d.total:
		return false
	case d.reason == ReasonNoPolicy || e.reason == ReasonNoPolicy || e.reason == ReasonPaused && d.reason == ReasonShare:
		return false
	case !t.dividesAs(after):
		return false
	case t.rules.Share != quota.ShareDemand:
		return true
	}
	// By demand: nobody claims less, and what is left for all pays for what counts
	// as claimed no longer.
	old, new := t.entry(w), after.entry(w)
	if (old == nil) != (new == nil) || old != nil && !bytes.Equal(old.Demands, new.Demands) {
		return false
	}
	l, m := c.level(t, d.total), c.level(after, e.total)
	return m.Most >= l.Most && m.Base >= l.Base && e.total-m.Claimed-(d.total-l.Claimed) >= c.n*(m.Base-l.Base)
}

// dividesAs reports whether two policies divide a total by the same rule.
func (t *terms) dividesAs(o *terms) bool {
	p, q := &t.rules, &o.rules
	return p.Share == q.Share && p.Floor == q.Floor && maps.Equal(p.Weights, q.Weights)
}
