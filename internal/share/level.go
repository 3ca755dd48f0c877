package share

import (
	"cmp"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Sharing by demand: each instance claims its demand, up to a level that is the
// same for all (water-filling: max-min fair, see Bertsekas and Gallager, Data
// Networks, 6.5.2), and the unclaimed rest is divided equally. The view's
// protocol.Level lists the demands. The list is a wish, not a right: claims are
// counted over the instances that are in the view, and cut to the total. So the
// shares of a view sum to the total exactly, for any list.

// Level is the result of water-filling one window's total.
type Level struct {
	Base    int64 // an instance's equal part of the floor, which it need not claim
	Most    int64 // the most that an instance may claim
	Claimed int64 // the sum of all claims
}

// Claim returns the claim of an instance that asks for so many permits.
func (l *Level) Claim(asks int64) int64 { return min(max(0, asks-l.Base), l.Most) }

// ask is a demand, as in protocol.Report.Demand, and how many instances have it.
type ask struct{ demand, n int64 }

// fill divides total permits of one window among n instances: some have these
// demands, which are positive and in ascending order, and the others have none.
// floor percent of the total are never claimed.
func fill(total, floor, n int64, window time.Duration, asks []ask) (l Level) {
	if n <= 0 {
		return l
	}
	pool := total - floorOf(total, floor)
	l.Base = (total - pool) / n
	left, rest := pool, int64(0)
	for _, a := range asks {
		rest += a.n
	}
	// The level rises past one demand after the other: smaller demands are served
	// whole, the others share the rest of the pool equally.
	for _, a := range asks {
		claim := min(max(0, protocol.DemandFor(a.demand, window)-l.Base), quota.MaxPermits)
		if claim > left/rest {
			l.Most = left / rest
			left -= rest * l.Most
			break
		}
		l.Most = claim
		left -= a.n * claim
		rest -= a.n
	}
	l.Claimed = pool - left
	return l
}

// floorOf is the part of total that is always divided equally, rounded up.
func floorOf(total, percent int64) int64 {
	percent = min(max(percent, 0), 100)
	return (total*percent + 99) / 100
}

// ordered sorts demands, and counts those that are the same together.
func ordered(asks []ask) []ask {
	slices.SortFunc(asks, func(a, b ask) int { return cmp.Compare(a.demand, b.demand) })
	together := asks[:0]
	for _, a := range asks {
		if last := len(together) - 1; last >= 0 && together[last].demand == a.demand {
			together[last].n += a.n
		} else {
			together = append(together, a)
		}
	}
	return slices.DeleteFunc(together, func(a ask) bool { return a.n == 0 })
}

// counted counts n more instances with a demand; asks stay in order.
func counted(asks []ask, demand, n int64) []ask {
	i, there := slices.BinarySearchFunc(asks, demand, func(a ask, demand int64) int { return cmp.Compare(a.demand, demand) })
	if !there {
		asks = slices.Insert(asks, i, ask{demand: demand})
	}
	if asks[i].n += n; asks[i].n == 0 {
		asks = slices.Delete(asks, i, i+1)
	}
	return asks
}

// entry returns the entry of the level in force for window w, nil if shares are
// not by demand or there is none.
func (t *terms) entry(w quota.Window) *protocol.LevelEntry {
	if t.rules.Share != quota.ShareDemand {
		return nil
	}
	return t.level.At(w.Start())
}

// LevelOf returns the level of window w by view v, and the demand in the window of
// each instance that takes part. ok is false if shares are not by demand, or no
// level is in force.
func LevelOf(v *protocol.View, w quota.Window) (l Level, asks map[string]int64, ok bool) {
	t := newTerms(v.Policy, v.PolicyRevision, v.Level, v.Throttle)
	e, d := t.entry(w), t.at(w)
	if e == nil || d.reason != ReasonShare {
		return l, nil, false
	}
	var h History
	h.fill(v.Instances)
	asks = map[string]int64{}
	for id, m := range h.members {
		if m.takesPart(w.Start()) {
			asks[id] = protocol.DemandFor(demandIn(e.Demands, m.hash), w.Length)
		}
	}
	return newDivision(t, w, "", crowd{h: &h}).level(t, d.total), asks, true
}

func membersOf(instances []protocol.Instance) map[string]*member {
	members := make(map[string]*member, len(instances))
	for i := range instances {
		members[instances[i].ID] = newMember(&instances[i])
	}
	return members
}
