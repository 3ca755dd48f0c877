package share_test

import (
	"hash/fnv"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// model is the settle rule written down as its words say: it keeps every view
// in full and answers every question by looking at all of them.
type model struct {
	self  string
	seed  uint64 // of a key, in ranks; 0: the provider's
	reset int64
	until int64
	held  []heldView // oldest first
}

// heldView is a view and the instants between which it was the newest.
type heldView struct {
	from, to int64
	view     protocol.View
}

func newModel(at int64, self string, v protocol.View) *model {
	return &model{self: self, reset: at, until: math.MaxInt64,
		held: []heldView{{at, math.MaxInt64, v}}}
}

// apply copies the newest view, changes the copy and holds it.
func (m *model) apply(at int64, c protocol.Change) bool {
	last := &m.held[len(m.held)-1]
	if c.Revision <= last.view.Revision {
		return false
	}
	v := last.view
	v.Revision = c.Revision
	v.Instances = slices.Clone(v.Instances)
	for _, p := range c.Put {
		v.Instances = slices.DeleteFunc(v.Instances, func(i protocol.Instance) bool { return i.ID == p.ID })
		v.Instances = append(v.Instances, p)
	}
	for _, id := range c.Deleted {
		v.Instances = slices.DeleteFunc(v.Instances, func(i protocol.Instance) bool { return i.ID == id })
	}
	if c.Policy != nil || c.PolicyDeleted {
		v.Policy, v.PolicyRevision = c.Policy, c.Revision
	}
	last.to = at
	m.held = append(m.held, heldView{at, math.MaxInt64, v})
	return true
}

func settleOf(v *protocol.View) int64 {
	if v.Policy == nil || v.Policy.Settle == 0 {
		return int64(quota.DefaultSettle)
	}
	return int64(v.Policy.Settle)
}

// lookback finds the largest S of the views that are held within their own S
// of the window's start.
func (m *model) lookback(w quota.Window, now, offset int64) int64 {
	start := w.Start() - offset
	var settle int64
	for _, h := range m.held {
		if s := settleOf(&h.view); h.to >= min(start-s, now) {
			settle = max(settle, s)
		}
	}
	return min(start-settle, now)
}

func (m *model) bound(w quota.Window, now, offset, frozen int64) (permits int64) {
	if w.Start() >= m.until {
		return 0
	}
	from := min(m.lookback(w, now, offset), frozen)
	if from < m.reset {
		return 0
	}
	permits = share.Unbounded
	for i, h := range m.held {
		left := i+1 < len(m.held) && naiveGives(&h.view, &m.held[i+1].view, w)
		if h.to >= from && !left {
			permits = min(permits, m.share(&h.view, w))
		}
	}
	return permits
}

// share is one view's share of self, for the model's key.
func (m *model) share(v *protocol.View, w quota.Window) int64 {
	if m.seed == 0 {
		return naiveShare(v, m.self, w)
	}
	var order []string
	if v.Policy == nil || v.Policy.LimitsAt(w.Start()) == nil || v.Policy.Mode == quota.ModePause || len(v.Policy.Unsupported()) > 0 {
		return 0
	}
	total, limited := limitOf(v.Policy, w)
	for _, i := range v.Instances {
		if protocol.TakesPart(&i, w.Start()) {
			order = append(order, i.ID)
		}
	}
	if !slices.Contains(order, m.self) {
		return 0
	}
	if !limited {
		return share.Unbounded
	}
	seed := splitmix(splitmix(splitmix(uint64(w.Length))+uint64(w.Index)) ^ m.seed)
	if v.Policy.Keys.Owners > 0 {
		seed = splitmix(m.seed)
	}
	rank := func(id string) uint64 {
		f := fnv.New64a()
		f.Write([]byte(id))
		return splitmix(f.Sum64() ^ seed)
	}
	sort.Slice(order, func(i, j int) bool { return rank(order[i]) > rank(order[j]) })
	if owners := int(v.Policy.Keys.Owners); owners > 0 && len(order) > owners {
		order = order[:owners]
	}
	if !slices.Contains(order, m.self) {
		return 0
	}
	n := int64(len(order))
	if permits := total / n; int64(slices.Index(order, m.self)) >= total%n {
		return permits
	}
	return total/n + 1
}

// naiveGives writes rule 3's exception down as its words say it.
func naiveGives(u, v *protocol.View, w quota.Window) bool {
	start := w.Start()
	for _, id := range idsOf(u, v) {
		a, b := instanceOf(u, id), instanceOf(v, id)
		was, is := a != nil && protocol.TakesPart(a, start), b != nil && protocol.TakesPart(b, start)
		if was && b != nil && !b.Until.IsZero() && b.Until.UnixNano() <= start {
			continue // it has announced that it issues nothing
		}
		if was != is {
			return false
		}
	}
	old, p := u.Policy, v.Policy
	if unsupported(old) || unsupported(p) || timesOf(old) != timesOf(p) {
		return false
	}
	if old == nil || p == nil || old.LimitsAt(start) == nil || p.LimitsAt(start) == nil || p.Mode == quota.ModePause && old.Mode != quota.ModePause {
		return false
	}
	before, had := limitOf(u.Policy, w)
	after, has := limitOf(v.Policy, w)
	if !had || !has || after < before {
		return false
	}
	return old.Keys.Owners == p.Keys.Owners
}

func idsOf(views ...*protocol.View) (ids []string) {
	for _, v := range views {
		for _, i := range v.Instances {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func instanceOf(v *protocol.View, id string) *protocol.Instance {
	for i := range v.Instances {
		if v.Instances[i].ID == id {
			return &v.Instances[i]
		}
	}
	return nil
}

func unsupported(p *quota.Policy) bool {
	return p != nil && len(p.Unsupported()) > 0
}

// timesOf are the times that must not change.
func timesOf(p *quota.Policy) [4]time.Duration {
	d := (&quota.Policy{}).WithDefaults()
	if p != nil {
		d = p.WithDefaults()
	}
	return [4]time.Duration{d.Settle, d.Freshness, d.ClockError, d.Guard}
}

// lengths tries every length that the tests' policies have.
func (m *model) lengths(now, offset int64, tried []time.Duration) []time.Duration {
	var lengths []time.Duration
	for _, l := range tried {
		w := quota.WindowAt(l, now+offset)
		binds := slices.ContainsFunc(m.held, func(h heldView) bool {
			if h.view.Policy == nil || h.to < m.lookback(w, now, offset) {
				return false
			}
			_, ok := limitOf(h.view.Policy, w)
			return ok || comesWithin(h.view.Policy, w)
		})
		if binds {
			lengths = append(lengths, l)
		}
	}
	return lengths
}

// comesWithin reports whether the policy comes into force within the window,
// with a limit of its length. It gives nothing of that window, and binds it.
func comesWithin(p *quota.Policy, w quota.Window) bool {
	from := p.From.UnixNano()
	return !p.From.IsZero() && w.Start() < from && from < w.End() &&
		slices.ContainsFunc(p.LimitsAt(from), func(l quota.Limit) bool { return l.Window == w.Length })
}

func limitOf(p *quota.Policy, w quota.Window) (int64, bool) {
	for _, l := range p.LimitsAt(w.Start()) {
		if l.Window == w.Length {
			return l.Permits, true
		}
	}
	if p.LimitsAt(w.Start()) == nil {
		return 0, false
	}
	// A length that comes into force within the window binds all of it.
	least, ok := int64(0), false
	for _, c := range p.Next {
		if at := c.From.UnixNano(); at <= w.Start() || at >= w.End() {
			continue
		}
		for _, l := range c.Limits {
			if l.Window == w.Length && (!ok || l.Permits < least) {
				least, ok = l.Permits, true
			}
		}
	}
	return least, ok
}

// naiveShare is one view's share of self, by sorting everybody.
func naiveShare(v *protocol.View, self string, w quota.Window) int64 {
	var ids []string
	for _, i := range v.Instances {
		if protocol.TakesPart(&i, w.Start()) {
			ids = append(ids, i.ID)
		}
	}
	if !slices.Contains(ids, self) || v.Policy == nil || v.Policy.LimitsAt(w.Start()) == nil ||
		v.Policy.Mode == quota.ModePause || len(v.Policy.Requires) > 0 || len(v.Policy.Unsupported()) > 0 ||
		slices.Contains(v.Policy.Ignored, "share weighted") {
		return 0
	}
	total, ok := limitOf(v.Policy, w)
	if !ok {
		return share.Unbounded
	}
	return naiveSplit(total, ids, w)[self]
}

func naiveRank(id string, w quota.Window) uint64 {
	f := fnv.New64a()
	f.Write([]byte(id))
	return splitmix(f.Sum64() ^ splitmix(splitmix(uint64(w.Length))+uint64(w.Index)))
}

// naiveSplit deals total out one permit at a time, in order of rank, when few
// permits are left over after the equal parts.
func naiveSplit(total int64, ids []string, w quota.Window) map[string]int64 {
	type lot struct {
		id   string
		rank uint64
	}
	var order []lot
	for _, id := range ids {
		order = append(order, lot{id, naiveRank(id, w)})
	}
	sort.Slice(order, func(i, j int) bool {
		if a, b := order[i].rank, order[j].rank; a != b {
			return a > b
		}
		return order[i].id < order[j].id
	})
	n := int64(len(ids))
	shares := map[string]int64{}
	for _, id := range ids {
		shares[id] += total / n
	}
	for left := total - total/n*n; left > 0; left-- {
		shares[order[0].id]++
		order = order[1:]
	}
	return shares
}

// splitmix is the reference form of splitmix64's next().
func splitmix(state uint64) uint64 {
	z := state + 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
