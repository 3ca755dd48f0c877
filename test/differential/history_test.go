package differential

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// story is the views that an instance holds about one window.
type story struct {
	*rand.Rand
	w     quota.Window
	key   string   // whose shares are meant; empty: the provider's
	owned bool     // the key has owners, at least as many as there are instances
	ids   []string // sorted
	views []held
}

// held is a view, and how it came.
type held struct {
	protocol.View
	change  protocol.Change
	at      int64 // when it was applied, in wall time
	written bool  // the revision writes the policy or the key's override
}

// most is the largest settle time of a story.
const most = 3500 * time.Millisecond

// history asks for the shares by a few views, and for a bound that goes by those of the
// lookback.
func history(r *rand.Rand) question { return newStory(r, "", false).question() }

// keyHistory asks for the same of a key.
func keyHistory(r *rand.Rand) question {
	return newStory(r, fmt.Sprint("key", r.IntN(1000)), false).question()
}

// ownedHistory asks for the same of a key whose number of owners changes. All instances own it:
// then the model's equal division is that among owners.
func ownedHistory(r *rand.Rand) question {
	return newStory(r, fmt.Sprint("key", r.IntN(1000)), true).question()
}

func newStory(r *rand.Rand, key string, owned bool) *story {
	length := []time.Duration{100, 250, 1000, 60_000}[r.IntN(4)] * time.Millisecond
	s := &story{Rand: r, key: key, owned: owned, w: quota.WindowAt(length, int64(time.Hour)+r.Int64N(math.MaxInt64/4))}
	for i := range 2 + r.IntN(5) {
		s.ids = append(s.ids, fmt.Sprintf("i%d.%x", i, r.Uint64()))
	}
	slices.Sort(s.ids)
	s.begin()
	for range r.IntN(5) {
		s.next()
	}
	s.date()
	return s
}

func (s *story) one(in int) bool { return s.IntN(in) == 0 }

// begin makes the first view.
func (s *story) begin() {
	v := held{View: protocol.View{Revision: 10, Policy: s.policy(), PolicyRevision: 3}}
	for _, id := range s.ids {
		if !s.one(3) {
			v.Instances = append(v.Instances, s.instance(id))
		}
	}
	if s.key != "" && s.one(2) {
		v.Overrides = s.overrides()
	}
	s.views = append(s.views, v)
}

// instance is a version of an instance's key.
func (s *story) instance(id string) protocol.Instance {
	in := protocol.Instance{ID: id}
	if s.one(5) {
		in.From = time.Unix(0, s.w.Start()+s.Int64N(3)-1)
	}
	if s.one(5) {
		in.Until = time.Unix(0, s.w.Start()+s.Int64N(3)-1)
	}
	return in
}

func (s *story) permits() int64 { return s.Int64N(2 + s.Int64N(1<<(1+s.IntN(30)))) }

// policy is one with a limit of the window, mostly.
func (s *story) policy() *quota.Policy {
	if s.one(20) {
		return nil
	}
	p := quota.Policy{Timing: quota.Timing{Settle: 3 * time.Second}}
	limit := quota.Limit{Permits: s.permits(), Window: s.w.Length}
	if s.one(12) {
		limit.Window = 3 * time.Second
	}
	p.Limits = []quota.Limit{limit}
	if s.key != "" {
		p.Keys.Limits, p.Limits = p.Limits, []quota.Limit{{Permits: 1000, Window: time.Second}}
		p.Keys.Owners = s.owners()
	}
	switch s.IntN(11) {
	case 0:
		p.Mode = quota.ModePause
	case 1:
		p.Requires = []string{"a feature of a later version"}
	case 2:
		p.From = time.Unix(0, s.w.Start()+s.Int64N(3)-1)
	case 3:
		p.From = time.Unix(0, s.w.End())
	case 4:
		p.Next = []quota.LimitChange{{From: time.Unix(0, s.w.Start()+s.Int64N(3)-1), Limits: []quota.Limit{{Permits: s.permits(), Window: s.w.Length}}}}
	case 5:
		p.Settle = most
	case 6:
		p.Guard = time.Millisecond
	}
	p = p.WithDefaults()
	return &p
}

// owners is a number of owners; 0 where the key has none.
func (s *story) owners() int64 {
	if !s.owned {
		return 0
	}
	return 6 + s.Int64N(3)
}

// overrides are the documents after a change of the key's one.
func (s *story) overrides() map[int]*protocol.Overrides {
	bucket := protocol.OverrideBucket(s.key)
	switch s.IntN(8) {
	case 0:
		return map[int]*protocol.Overrides{bucket: nil}
	case 1:
		return map[int]*protocol.Overrides{bucket: {Broken: true}}
	}
	o := &protocol.Override{Limits: []quota.Limit{{Permits: s.permits(), Window: s.w.Length}}}
	if s.one(12) {
		o.Limits[0].Window = 3 * time.Second
	}
	if n := s.owners(); n > 0 && !s.one(3) {
		o.Owners = &n
	}
	if len(s.views) > 0 && s.one(2) { // only the owners change
		if was := s.override(&s.views[len(s.views)-1]); was != nil {
			o.Limits = was.Limits
		}
	}
	return map[int]*protocol.Overrides{bucket: {Keys: map[string]*protocol.Override{s.key: o, s.key + "'": {}}}}
}

// document is the one that may have the key's override.
func (s *story) document(v *held) *protocol.Overrides {
	if d := v.Overrides[protocol.OverrideBucket(s.key)]; d != nil {
		return d
	}
	return &protocol.Overrides{}
}

func (s *story) override(v *held) *protocol.Override { return s.document(v).Keys[s.key] }

// next adds the view of one more revision.
func (s *story) next() {
	was := &s.views[len(s.views)-1]
	v := held{View: was.View}
	v.Revision++
	v.change.Revision, v.Instances = v.Revision, slices.Clone(was.Instances)
	switch s.IntN(5) {
	case 0:
		v.Policy, v.written = s.policy(), true
		v.change.Policy, v.change.PolicyDeleted = v.Policy, v.Policy == nil
	case 1, 2, 3: // a small change, or none
		if was.Policy == nil {
			break
		}
		p := *was.Policy
		limits := &p.Limits
		if s.key != "" {
			limits = &p.Keys.Limits
		}
		l := slices.Clone(*limits)
		switch s.IntN(7) {
		case 0: // a limit goes, or comes
			l[0].Window = s.w.Length + 3*time.Second - l[0].Window
		case 1:
			p.Mode = map[quota.Mode]quota.Mode{quota.ModePause: quota.ModeEnforce}[p.Mode]
			if p.Mode == "" {
				p.Mode = quota.ModePause
			}
		case 3: // the division changes
			p.Keys.Owners = s.owners()
		case 2:
			l[0].Permits = s.Int64N(2) * s.permits()
		default:
			l[0].Permits = max(0, l[0].Permits+s.Int64N(4)-1)
		}
		*limits = l
		v.Policy, v.change.Policy, v.written = &p, &p, true
	case 4:
		if s.key == "" {
			break
		}
		v.Overrides = s.overrides()
		v.change.Overrides = v.Overrides
		v.written = v.Policy != nil && !(s.document(&v).Broken == s.document(was).Broken && s.override(&v).Equal(s.override(was)))
	}
	for range max(0, s.IntN(5)-2) {
		id := s.ids[s.IntN(len(s.ids))]
		at := slices.IndexFunc(v.Instances, func(i protocol.Instance) bool { return i.ID == id })
		if slices.Contains(v.change.Deleted, id) || slices.ContainsFunc(v.change.Put, func(i protocol.Instance) bool { return i.ID == id }) {
			continue
		}
		switch {
		case at < 0:
			v.Instances = append(v.Instances, s.instance(id))
			v.change.Put = append(v.change.Put, v.Instances[len(v.Instances)-1])
		case s.one(3):
			v.Instances = slices.Delete(v.Instances, at, at+1)
			v.change.Deleted = append(v.change.Deleted, id)
		case s.one(2): // an end
			v.Instances[at].Until = time.Unix(0, s.w.Start()+s.Int64N(3)-1)
			v.change.Put = append(v.change.Put, v.Instances[at])
		default:
			v.Instances[at] = s.instance(id)
			v.change.Put = append(v.change.Put, v.Instances[at])
		}
	}
	s.views = append(s.views, v)
}

// date says when the views came: often at an end of the lookback.
func (s *story) date() {
	begins, times := s.w.Start()-int64(most)-1-s.Int64N(int64(time.Second)), make([]int64, len(s.views)-1)
	for i := range times {
		times[i] = begins + s.Int64N(int64(most)+int64(time.Second))
		if settle := []time.Duration{3 * time.Second, most}[s.IntN(2)]; s.one(2) {
			times[i] = s.w.Start() - int64(settle) + s.Int64N(3) - 1
		}
		times[i] = max(times[i], begins)
	}
	slices.Sort(times)
	s.views[0].at = begins
	for i, at := range times {
		s.views[i+1].at = at
	}
}

// counted returns the views that were held at some time since the lookback began: S before
// the window's start, for the largest S of those for which that is so.
func (s *story) counted() []held {
	ends := func(i int) int64 {
		if i == len(s.views)-1 {
			return math.MaxInt64
		}
		return s.views[i+1].at
	}
	from := s.w.Start()
	for i := range s.views {
		settle := quota.DefaultSettle
		if p := s.views[i].Policy; p != nil {
			settle = p.Settle
		}
		if at := s.w.Start() - int64(settle); ends(i) >= at {
			from = min(from, at)
		}
	}
	for i := range s.views {
		if ends(i) >= from {
			return s.views[i:]
		}
	}
	return nil
}

// question asks for it all, and has the code's answers.
func (s *story) question() question {
	self := s.ids[s.IntN(len(s.ids))]
	views := s.counted()
	var l line
	l.WriteString("bound")
	s.ranks(&l)
	l.ints(int64(slices.Index(s.ids, self)), int64(len(views)))
	var answers []string
	for i := range views {
		l.bools(views[i].written)
		s.write(&l, &views[i])
		answers = append(answers, s.shares(&views[i]))
	}
	return question{l.String(), strings.Join(append(answers, bound(s.bound(self))), " ")}
}

// ranks writes the window's start, and v of each instance.
func (s *story) ranks(l *line) {
	l.ints(s.w.Start(), int64(len(s.ids)))
	for _, id := range s.ids {
		v := s.rank(id)
		l.ints(int64(v>>32), int64(v&math.MaxUint32))
	}
}

// write writes what a view shows of the window, for proof/answers.ml.
func (s *story) write(l *line, v *held) {
	p := v.Policy
	if p == nil {
		p = &quota.Policy{From: time.Unix(0, math.MaxInt64)}
	}
	limit := int64(-1)
	limits, next, owners := p.Limits, p.Next, p.Keys.Owners
	if s.key != "" {
		limits, next = p.Keys.Limits, nil
		if own := s.override(v); own != nil && len(limits) > 0 {
			if limits = own.Limits; own.Owners != nil {
				owners = *own.Owners
			}
		}
	}
	start := time.Unix(0, s.w.Start())
	if len(next) > 0 && (!next[0].From.After(start) || limits[0].Window != s.w.Length && next[0].From.Before(time.Unix(0, s.w.End()))) {
		limits = next[0].Limits
	}
	if len(limits) > 0 && limits[0].Window == s.w.Length && p.From.Before(time.Unix(0, s.w.End())) {
		limit = limits[0].Permits
	}
	l.ints(limit)
	l.bools(!start.Before(p.From), len(p.Requires) == 0 && !(s.key != "" && s.document(v).Broken), p.Mode == quota.ModePause)
	l.ints(4, int64(p.Settle), int64(p.Freshness), int64(p.ClockError), int64(p.Guard))
	if !s.owned { // there are none
		owners = 0
	}
	l.ints(owners)
	in := s.sorted(v)
	l.ints(int64(len(in)))
	for _, i := range in {
		from, until := int64(math.MinInt64/4), int64(math.MaxInt64/2)
		if !i.From.IsZero() {
			from = i.From.UnixNano()
		}
		if !i.Until.IsZero() {
			until = i.Until.UnixNano()
		}
		l.ints(int64(slices.Index(s.ids, i.ID)), from, until)
	}
}

func (s *story) sorted(v *held) []protocol.Instance {
	return slices.SortedFunc(slices.Values(v.Instances), func(a, b protocol.Instance) int { return cmp.Compare(a.ID, b.ID) })
}

// shares are the code's, by one view.
func (s *story) shares(v *held) string {
	_, shares, ok := share.Of(&v.View, s.w)
	if s.key != "" {
		_, shares, ok = share.OfKey(&v.View, s.key, s.w)
	}
	if !ok {
		return "none"
	}
	var all []string
	for _, i := range s.sorted(v) {
		all = append(all, bound(shares[i.ID]))
	}
	return strings.Join(all, ",")
}

// bound is the code's, of an instance that has held the views.
func (s *story) bound(self string) int64 {
	var p share.Planner
	p.Clock = clock.New()
	instant := func(at int64) clock.Instant { return clock.Instant{Mono: at, Wall: at} }
	p.Reset(instant(s.views[0].at), self, s.views[0].View)
	for _, v := range s.views[1:] {
		p.Apply(instant(v.at), v.change)
	}
	now := max(s.views[len(s.views)-1].at, s.w.Start()+1)
	return p.Bound(share.KeyOf(s.key), s.w, now).Permits
}

// rank is v of an instance in the window, in parts of 2^64, by docs/proof/protocol.md, section 1:
// by code of its own, so that a mistake in that of package share shows.
func (s *story) rank(id string) uint64 {
	window := splitmix(splitmix(uint64(s.w.Length)) + uint64(s.w.Index))
	switch {
	case s.owned:
		window = splitmix(fnv1a(s.key))
	case s.key != "":
		window = splitmix(window ^ fnv1a(s.key))
	}
	return math.MaxUint64 - splitmix(fnv1a(id)^window)
}

func fnv1a(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// splitmix is a step and the finalizer of splitmix64.
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
