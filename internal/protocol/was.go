package protocol

import (
	"cmp"
	"encoding/json"
	"maps"
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
	Key   string // of this key alone, whose override came, changed or went; empty: of any
	// In is the length of the windows of the limit in which it counts.
	In time.Duration
	// Until is a corrected wall time, in nanoseconds since the Unix epoch, from which on no instance that obeys
	// its view of the policy issues by this limit, whatever its clock says.
	Until int64
}

// Bounds of what is kept. maxWas is how many limits count in the windows of one limit of the provider, of all keys or of
// one key, and maxOverlapping how many windows of each: the total of an earlier one has lost its lease. So a window of a
// key begins with fewer totals than one transaction reads. mostWas is how many there are where those of single keys
// have become too many for one entry.
const (
	maxWas         = 15
	maxOverlapping = 4
	mostWas        = 200
)

type wireWas struct {
	Limit string `json:"limit"`
	Zone  string `json:"zone,omitempty"`
	Keys  bool   `json:"keys,omitempty"`
	Key   string `json:"key,omitempty"`
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
		w.Was = append(w.Was, wireWas{one.Limit.String(), one.Zone, one.Keys, one.Key, int64(one.In / time.Second), one.Until})
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
		all = append(all, Was{limits[0], one.Zone, one.Keys, one.Key, time.Duration(one.In) * time.Second, one.Until})
	}
	return all, nil
}

// ReplaceLong returns which limits count on in others once next replaces the policy old at an instant; was are those
// before it. A policy that is nil has none. Each new limit goes on with the counts of the one of as long a window
// or, if there is none, with those of the longest that goes.
func ReplaceLong(was []Was, old, next *quota.Policy, now time.Time) []Was {
	r := newReplacing(was, now.Add(settled(old, next)))
	for _, keys := range []bool{false, true} {
		r.replace(longOf(old, keys), longOf(next, keys), "")
	}
	for _, w := range movedOverrides(old, next) {
		r.goes(w)
	}
	return r.bounded(now)
}

// ReplaceLongOfKeys is ReplaceLong where the overrides of single keys change under a policy.
func ReplaceLongOfKeys(was []Was, p *quota.Policy, changes map[string]KeyChange, now time.Time) []Was {
	r := newReplacing(was, now.Add(settled(p, nil)))
	for key, c := range changes {
		with := func(o *Override) *quota.Policy {
			own := *p
			own.Keys = o.In(p.Keys)
			return &own
		}
		r.replace(longOf(with(c.Old), true), longOf(with(c.New), true), key)
	}
	return r.bounded(now)
}

// replacing makes a list of limits whose counts go on.
type replacing struct {
	of    map[string][]Was // by Was.Key
	until int64            // of those that go
}

func newReplacing(was []Was, until time.Time) *replacing {
	r := &replacing{map[string][]Was{}, until.UnixNano()}
	for _, w := range was {
		r.of[w.Key] = append(r.of[w.Key], w)
	}
	return r
}

// goes adds a limit that goes.
func (r *replacing) goes(w Was) {
	w.Until = r.until
	r.add(w)
}

// add adds a limit, or has it count for longer that is there.
func (r *replacing) add(w Was) {
	all := r.of[w.Key]
	if i := slices.IndexFunc(all, w.same); i >= 0 {
		all[i].Until = max(all[i].Until, w.Until)
		return
	}
	r.of[w.Key] = append(all, w)
}

// all returns the limits of a key and those of any; of each key if its name is empty.
func (r *replacing) all(key string) (all []Was) {
	if all = slices.Clone(r.of[""]); key != "" {
		return append(all, r.of[key]...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.of)) {
		if name != "" {
			all = append(all, r.of[name]...)
		}
	}
	return all
}

// replace replaces long limits of the provider, of all keys, or of one key if that is not empty.
func (r *replacing) replace(old, next []Was, key string) {
	gone, comes := without(old, next), without(next, old)
	for _, w := range gone {
		w.Key = key
		r.goes(w)
	}
	gone = slices.DeleteFunc(gone, func(w Was) bool { return w.Limit.InFlight })
	for _, l := range comes {
		counts := func(w Was) bool { return w.Limit.InFlight && w.Limit.Window != l.In } // calls under way, whatever their hold is
		if !l.Limit.InFlight {
			if len(gone) == 0 {
				continue
			}
			from := gone[len(gone)-1].In
			if slices.ContainsFunc(gone, func(w Was) bool { return w.In == l.In }) {
				from = l.In
			}
			// What counts in from's windows counts in these.
			counts = func(w Was) bool { return w.Keys == l.Keys && w.In == from && !w.Limit.InFlight }
		}
		for _, w := range r.all(key) {
			if counts(w) {
				w.In, w.Key = l.In, cmp.Or(key, w.Key)
				r.add(w)
			}
		}
	}
}

// bounded returns those that may still count at an instant, the newest first, and no more than are written. Those of
// single keys that are too many for one entry become limits of all keys: then a key counts too much that has had both.
func (r *replacing) bounded(now time.Time) []Was {
	all := r.newest(now)
	if text, err := EncodeWas(all); err == nil && len(text) <= MaxOverridesBytes {
		return all
	}
	r.of = map[string][]Was{}
	for _, w := range all {
		w.Key = ""
		r.add(w)
	}
	all = r.newest(now)
	return all[:min(len(all), mostWas)]
}

// newest returns those that may still count, the newest first, and at most maxWas of those of the same windows.
func (r *replacing) newest(now time.Time) []Was {
	all := r.all("")
	slices.SortStableFunc(all, func(a, b Was) int { return cmp.Compare(b.Until, a.Until) })
	n := map[Was]int{} // by whose they are, and in which windows they count
	return slices.DeleteFunc(all, func(w Was) bool {
		in := Was{Keys: w.Keys, Key: w.Key, In: w.In}
		n[in]++
		return n[in] > maxWas || w.Until+2*int64(max(w.In, w.Limit.Window)) < now.UnixNano()
	})
}

// same reports whether two limits have the same windows, and count in those of the same one.
func (w Was) same(o Was) bool {
	w.Limit.Permits, w.Until = o.Limit.Permits, o.Until
	return w == o
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
	before, after := longOf(old, keys), longOf(next, keys)
	return without(before, after), without(after, before)
}

// without returns those of all that others has not.
func without(all, others []Was) []Was {
	return slices.DeleteFunc(slices.Clone(all), func(w Was) bool { return slices.ContainsFunc(others, w.same) })
}

// movedOverrides returns the windows that single keys may have by overrides, and that begin at other times, or slide or
// slide no more, once next replaces the policy old: WithPhases. Nobody reads the overrides for that.
func movedOverrides(old, next *quota.Policy) (all []Was) {
	if OfKeys(old) == nil || OfKeys(next) == nil {
		return nil
	}
	lengths := []quota.Limit{{Permits: 1, Window: day}, {Permits: 1, Window: month}}
	for _, l := range slices.Concat(old.Keys.Limits, next.Keys.Limits) {
		lengths = append(lengths, quota.Limit{Permits: 1, Window: l.Window})
	}
	with := func(p *quota.Policy) []Was {
		own := *p
		own.Keys.Limits = WithPhases(lengths, p.Keys.Limits)
		return longOf(&own, true)
	}
	return without(with(old), with(next))
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

// countsIn reports whether permits of the limit may have been issued while those of a window count: of a key, or of
// the provider if its name is empty.
func (w *Was) countsIn(b *Budget, key string) bool {
	if b.InFlight || w.Limit.InFlight {
		return b.InFlight && w.Limit.InFlight && w.In == b.Window && w.over() > b.Start
	}
	return w.Keys == (key != "") && (w.Key == "" || w.Key == key) && w.In == b.Window && w.Until > b.Since()
}

// over returns when no call counts any more that is under way by a limit in flight that was replaced.
func (w *Was) over() int64 { return w.Until + (held+1)*int64(partLength(&w.Limit)) }

// CarriedTo returns the latest Until of the limits whose permits may have been issued while those of a window count;
// 0 if there is none.
func CarriedTo(all []Was, b *Budget, key string) (to int64) {
	for i := range all {
		if w := &all[i]; w.countsIn(b, key) {
			to = max(to, w.Until)
		}
	}
	return to
}

// Overlapping returns the windows of these limits, b itself aside.
func Overlapping(all []Was, b *Budget, key string) (windows []WasWindow) {
	for _, w := range all {
		if !w.countsIn(b, key) {
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
