package protocol

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Was is a long limit that a policy had and has no more: it is gone, or counts in other windows now. What was
// handed out by it counts on in the windows of another limit that overlap its own. Operators' tools write all of
// a provider's in one transaction with the policy that replaces them. Nobody can take permits by an earlier policy
// from then on, so the totals of these limits only fall.
type Was struct {
	Limit quota.Limit
	Zone  string // of its days and months
	Keys  bool   // it was a limit of keys
	// In is the length of the windows of the limit in which it counts.
	In time.Duration
	// Until is a corrected wall time, in nanoseconds since the Unix epoch, from which on no instance that obeys
	// its view of the policy issues by this limit, whatever its clock says.
	Until int64
}

// maxWas bounds the limits of which a provider's windows may still have counts, and maxOverlapping the windows of
// one of them: the total of an earlier one has lost its lease.
const (
	maxWas         = 24
	maxOverlapping = 4
)

type wireWas struct {
	Limit string `json:"limit"`
	Zone  string `json:"zone,omitempty"`
	Keys  bool   `json:"keys,omitempty"`
	In    int64  `json:"in_seconds"`
	Until int64  `json:"until"`
}

type wireAllWas struct {
	Schema schema    `json:"schema"`
	Was    []wireWas `json:"was"`
}

// EncodeWas returns the value of the entry in etcd.
func EncodeWas(all []Was) (string, error) {
	w := wireAllWas{}
	for _, one := range all {
		w.Was = append(w.Was, wireWas{one.Limit.String(), one.Zone, one.Keys, int64(one.In / time.Second), one.Until})
	}
	text, err := json.Marshal(w)
	return string(text), err
}

// ReadWas is the reverse of EncodeWas.
func ReadWas(value []byte) (all []Was, err error) {
	var w wireAllWas
	if err := Decode("replaced limits", value, MaxOverridesBytes, &w); err != nil {
		return nil, err
	}
	for _, one := range w.Was {
		limits, err := quota.ParseLimits(one.Limit)
		if err != nil {
			return nil, err
		}
		all = append(all, Was{limits[0], one.Zone, one.Keys, time.Duration(one.In) * time.Second, one.Until})
	}
	return all, nil
}

// ReplaceLong returns which limits count on in others once next replaces the policy old at an instant; was are those
// before it. A policy that is nil has none. Each new limit goes on with the counts of the one of as long a window
// or, if there is none, with those of the longest that goes.
func ReplaceLong(was []Was, old, next *quota.Policy, now time.Time) []Was {
	until := now.Add(settled(old, next)).UnixNano()
	all := slices.Clone(was)
	for _, keys := range []bool{false, true} {
		goes, comes := differ(old, next, keys)
		for _, w := range goes {
			w.Until = until
			all = addWas(all, w)
		}
		goes = slices.DeleteFunc(goes, func(w Was) bool { return w.Limit.InFlight })
		for _, l := range comes {
			if l.Limit.InFlight { // the calls that are under way count in it, whatever their hold is
				for _, w := range slices.Clone(all) {
					if w.Limit.InFlight && w.Limit.Window != l.In {
						w.In = l.In
						all = addWas(all, w)
					}
				}
				continue
			}
			if len(goes) == 0 {
				continue
			}
			from := goes[len(goes)-1].In
			if slices.ContainsFunc(goes, func(w Was) bool { return w.In == l.In }) {
				from = l.In
			}
			for _, w := range slices.Clone(all) { // what counts in from's windows counts in these
				if w.Keys == keys && w.In == from && !w.Limit.InFlight {
					w.In = l.In
					all = addWas(all, w)
				}
			}
		}
	}
	all = slices.DeleteFunc(all, func(w Was) bool { return w.Until+2*int64(max(w.In, w.Limit.Window)) < now.UnixNano() })
	slices.SortStableFunc(all, func(a, b Was) int { return cmp.Compare(b.Until, a.Until) })
	return all[:min(len(all), maxWas)]
}

// same reports whether two limits have the same windows, and count in those of the same one.
func (w Was) same(o Was) bool {
	w.Limit.Permits, w.Until = o.Limit.Permits, o.Until
	return w == o
}

func addWas(all []Was, w Was) []Was {
	if i := slices.IndexFunc(all, w.same); i >= 0 {
		all[i].Until = max(all[i].Until, w.Until)
		return all
	}
	return append(all, w)
}

// settled returns how long after an instant some may still issue by old, by any clock.
func settled(old, next *quota.Policy) (d time.Duration) {
	for _, p := range []*quota.Policy{old, next} {
		if p != nil {
			of := p.WithDefaults()
			d = max(d, of.Settle+2*of.ClockError)
		}
	}
	return d
}

// Continued returns which long limits of a policy go, and which limits go on with their counts, once next replaces
// it: those of keys or the provider's.
func Continued(old, next *quota.Policy, keys bool) (goes, comes []quota.Limit) {
	was, will := differ(old, next, keys)
	inFlight := func(w Was) bool { return w.Limit.InFlight }
	if slices.ContainsFunc(was, inFlight) != slices.ContainsFunc(will, inFlight) { // they count other things
		return nil, nil
	}
	limits := func(all []Was) (limits []quota.Limit) {
		for _, w := range all {
			limits = append(limits, w.Limit)
		}
		return limits
	}
	return limits(was), limits(will)
}

// differ returns the long limits of old that next has in other windows or not at all, and the reverse, in order of
// their windows' lengths. Each counts in its own windows.
func differ(old, next *quota.Policy, keys bool) (goes, comes []Was) {
	without := func(all, others []Was) []Was {
		return slices.DeleteFunc(slices.Clone(all), func(w Was) bool { return slices.ContainsFunc(others, w.same) })
	}
	before, after := longOf(old, keys), longOf(next, keys)
	return without(before, after), without(after, before)
}

func longOf(p *quota.Policy, keys bool) (all []Was) {
	if keys {
		p = OfKeys(p)
	}
	if p == nil {
		return nil
	}
	of := p.WithDefaults()
	for _, l := range Long(&of) {
		w := Was{Limit: l, Keys: keys, In: l.Window}
		if l.Window >= day && !l.ByParts() {
			w.Zone = p.Zone
		}
		all = append(all, w)
	}
	return all
}

// WasWindow is a window of a limit that was replaced, and the Until of that.
type WasWindow struct {
	Budget
	Replaced int64
}

// countsIn reports whether permits of the limit may have been issued while those of a window count.
func (w *Was) countsIn(b *Budget, keys bool) bool {
	if b.InFlight || w.Limit.InFlight {
		return b.InFlight && w.Limit.InFlight && w.In == b.Window && w.over() > b.Start
	}
	return w.Keys == keys && w.In == b.Window && w.Until > b.Since()
}

// over returns when no call counts any more that is under way by a limit in flight that was replaced.
func (w *Was) over() int64 { return w.Until + (held+1)*int64(partLength(&w.Limit)) }

// CarriedTo returns the latest Until of the limits whose permits may have been issued while those of a window count;
// 0 if there is none.
func CarriedTo(all []Was, b *Budget, keys bool) (to int64) {
	for i := range all {
		if w := &all[i]; w.countsIn(b, keys) {
			to = max(to, w.Until)
		}
	}
	return to
}

// Overlapping returns the windows of these limits, b itself aside.
func Overlapping(all []Was, b *Budget, keys bool) (windows []WasWindow) {
	for _, w := range all {
		if !w.countsIn(b, keys) {
			continue
		}
		zone, err := time.LoadLocation(w.Zone)
		if err != nil {
			zone = time.UTC
		}
		o := BudgetAt(w.Limit, zone, w.Until-1)
		if o.ByParts() { // it has one total
			windows = addWindow(windows, b, WasWindow{o, w.Until})
			continue
		}
		for n := 0; n < maxOverlapping && o.End > b.Since(); n++ {
			windows = addWindow(windows, b, WasWindow{o, w.Until})
			o = BudgetAt(w.Limit, zone, o.Start-1)
		}
	}
	return windows
}

// addWindow adds a window that begins before b ends, once for each total.
func addWindow(all []WasWindow, b *Budget, w WasWindow) []WasWindow {
	same := func(o *Budget) bool { return o.Name() == w.Name() && o.TotalStart() == w.TotalStart() }
	if same(b) || w.Start >= b.End && !w.ByParts() {
		return all
	}
	for i := range all {
		if same(&all[i].Budget) {
			all[i].Replaced = max(all[i].Replaced, w.Replaced)
			return all
		}
	}
	return append(all, w)
}

// PartEnd returns when the part of time of a number ends, of a sliding limit.
func (b *Budget) PartEnd(number int64) int64 {
	return (&quota.Window{Length: partLength(&b.Limit), Index: number}).End()
}
