package share

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Divide works out the entry of a level for windows that start at or after from:
// how policy p divides its totals among these instances by the demands that they
// had reported at that revision (by ID, in permits per 1,000 seconds; who is not
// there has reported none). Who has left by then claims nothing.
func Divide(p *quota.Policy, instances []quota.Instance, demands map[string]int64, revision int64, from time.Time) quota.LevelEntry {
	e := quota.LevelEntry{From: from, Revision: revision}
	for _, limit := range p.LimitsAt(from.UnixNano()) {
		var asks []int64
		for i := range instances {
			if in := &instances[i]; in.Until.IsZero() || from.Before(in.Until) {
				asks = append(asks, quota.DemandFor(demands[in.ID], limit.Window))
			}
		}
		l := Fill(limit.Permits, p.WithDefaults().Floor, asks)
		l.Window = limit.Window
		e.Limits = append(e.Limits, l)
	}
	return e
}

// Shifted reports whether the claims by entry e and demands differ from those by
// entry old and the demands before by more than the part, in percent, of all that
// is claimed.
func Shifted(old, e *quota.LevelEntry, before, demands map[string]int64, percent int64) bool {
	for i := range e.Limits {
		l, o := &e.Limits[i], old.Limit(e.Limits[i].Window)
		if o == nil {
			return true
		}
		moved := abs(l.Base-o.Base) * int64(len(demands))
		for id, d := range demands {
			moved += abs(l.Claim(d) - o.Claim(before[id]))
		}
		for id, d := range before {
			if _, ok := demands[id]; !ok {
				moved += o.Claim(d)
			}
		}
		if moved*100 > max(l.Claimed, o.Claimed)*percent {
			return true
		}
	}
	return len(e.Limits) != len(old.Limits)
}

func abs(n int64) int64 { return max(n, -n) }

// Extend returns the level that has e after the entries of current that still
// count: that in force at the instant since (the start of the oldest window that
// runs), and the later ones. An announced entry of the same From is replaced. ok
// is false if there is no place for another entry yet.
func Extend(current *quota.Level, e quota.LevelEntry, since int64) (l quota.Level, ok bool) {
	if current != nil {
		for i, x := range current.Entries {
			last := i+1 == len(current.Entries)
			if !last && current.Entries[i+1].From.UnixNano() <= since || !x.From.Before(e.From) {
				continue
			}
			l.Entries = append(l.Entries, x)
		}
	}
	l.Entries = append(l.Entries, e)
	return l.Clone(), len(l.Entries) <= quota.MaxLevelEntries
}
