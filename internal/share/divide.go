package share

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// NewEntry returns the entry of a level for windows that start at or after from. The
// demands are those that instances had reported at the revision, by ID, in permits per
// 1,000 seconds. An instance that is not listed has reported none.
func NewEntry(demands map[string]int64, revision int64, from time.Time) protocol.LevelEntry {
	return protocol.LevelEntry{From: from, Revision: revision, Demands: listOf(demands)}
}

// Shifted reports whether entry e moves more than the part, in percent, of all
// that is claimed in view v by the level's newest entry.
func Shifted(v *protocol.View, e protocol.LevelEntry, percent int64) bool {
	for _, limit := range protocol.LimitsAt(v.Policy, e.From.UnixNano()) {
		w := quota.WindowAt(limit.Window, e.From.UnixNano()+int64(limit.Window)-1)
		old := e
		old.Demands = v.Level.Entries[len(v.Level.Entries)-1].Demands
		before, asked, ok := levelBy(v, w, old)
		after, asks, _ := levelBy(v, w, e)
		if !ok {
			continue // paused, say
		}
		moved := abs(after.Base-before.Base) * int64(len(asks))
		for id := range asks {
			moved += abs(after.Claim(asks[id]) - before.Claim(asked[id]))
		}
		if moved*100 > max(before.Claimed, after.Claimed)*percent {
			return true
		}
	}
	return false
}

// levelBy is LevelOf, had the view no other entry than e.
func levelBy(v *protocol.View, w quota.Window, e protocol.LevelEntry) (Level, map[string]int64, bool) {
	by := *v
	by.Level = &protocol.Level{Entries: []protocol.LevelEntry{e}, Until: time.Unix(0, w.End())}
	return LevelOf(&by, w)
}

func abs(n int64) int64 { return max(n, -n) }

// Extend returns the level that has e after the entries of current that still
// count: that in force at the instant since (the start of the oldest window that
// runs), and the later ones. An announced entry of the same From is replaced; from
// when current expires until e nobody claims anything, as was foreseen. ok is false
// if there is no room for another entry yet.
func Extend(current *protocol.Level, e protocol.LevelEntry, since int64) (l protocol.Level, ok bool) {
	if current != nil {
		for i, x := range current.Entries {
			last := i+1 == len(current.Entries)
			if !last && current.Entries[i+1].From.UnixNano() <= since || !x.From.Before(e.From) {
				continue
			}
			l.Entries = append(l.Entries, x)
		}
	}
	if n := len(l.Entries); n > 0 && current.Until.Before(e.From) && l.Entries[n-1].From.Before(current.Until) {
		l.Entries = append(l.Entries, protocol.LevelEntry{From: current.Until, Revision: e.Revision})
	}
	l.Entries = append(l.Entries, e)
	bytes := 0
	for _, x := range l.Entries {
		bytes += len(x.Demands)
	}
	return l, len(l.Entries) <= protocol.MaxLevelEntries && bytes <= protocol.MaxLevelDemands
}
