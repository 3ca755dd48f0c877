package consumer_test

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// model says what one of several equal instances may issue, worked out from the
// policies that were set and the permits that were issued, by sums over all of
// them and nothing else. Its instants are nanoseconds of wall time.
type model struct {
	instances int64
	views     []view
	log       []issued
	back      []returned
	debt      int64 // what calls have cost beyond their permits, and is not paid
	pausedTo  int64 // PauseUntil
	began     int64 // when the first policy was set
	opened    int64 // when the limiter was opened
}

// view is a policy and since when it was the newest.
type view struct {
	at     int64
	policy quota.Policy
}

// issued is permits and when they were issued.
type issued struct{ at, n int64 }

// returned is permits that were given back.
type returned struct{ taken, at, n int64 }

const unlimited = int64(math.MaxInt64)

func (m *model) newest() *quota.Policy { return &m.views[len(m.views)-1].policy }

func (m *model) set(at int64, p quota.Policy) { m.views = append(m.views, view{at, p.WithDefaults()}) }

func (m *model) issue(at, n int64) { m.log = append(m.log, issued{at, n}) }

// undo takes out permits that were given back.
func (m *model) undo(at, n, now int64) { m.undoPart(at, n, n, now) }

// undoPart takes out a part of n permits.
func (m *model) undoPart(at, n, part, now int64) {
	for i, p := range m.log {
		if p.at == at && p.n == n && part > 0 {
			if m.log[i].n -= part; part == n {
				m.log = slices.Delete(m.log, i, i+1)
			}
			m.back = append(m.back, returned{at, now, part})
			return
		}
	}
}

// limitsAt returns the limits that a policy has for windows that start at wall.
func limitsAt(p *quota.Policy, wall int64) []quota.Limit {
	if !p.From.IsZero() && wall < p.From.UnixNano() {
		return nil
	}
	limits := p.Limits
	for _, c := range p.Next {
		if c.From.UnixNano() <= wall {
			limits = c.Limits
		}
	}
	return limits
}

// total returns what a policy has for the window of a length that starts at
// start: unlimited if it has no limit of that length. For a window that starts
// before the policy is in force, or while it is paused, that is nothing: of every
// length, where most is false; where it is true, only of those that bind.
func total(p *quota.Policy, length time.Duration, start int64, most bool) int64 {
	in := func(limits []quota.Limit) int64 {
		for _, l := range limits {
			if l.Window == length {
				return l.Permits
			}
		}
		return unlimited
	}
	limits := limitsAt(p, start)
	if limits == nil {
		if from := p.From.UnixNano(); most && (from >= start+int64(length) || in(limitsAt(p, from)) == unlimited) {
			return unlimited
		}
		return 0
	}
	n := in(limits)
	if n == unlimited { // a limit that comes within the window rules all of it
		for _, c := range p.Next {
			if at := c.From.UnixNano(); at > start && at < start+int64(length) {
				n = min(n, in(c.Limits))
			}
		}
	}
	if p.Mode == quota.ModePause && (n != unlimited || !most) {
		return 0
	}
	return n
}

// lengths returns the window lengths of all policies that there were.
func (m *model) lengths() []time.Duration {
	var all []time.Duration
	for _, v := range m.views {
		all = append(all, lengthsOf(&v.policy)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lengthsOf returns the window lengths of a policy.
func lengthsOf(p *quota.Policy) (all []time.Duration) {
	for _, limits := range append(changed(p), p.Limits) {
		for _, l := range limits {
			all = append(all, l.Window)
		}
	}
	return all
}

// windowStart returns the start of the window of a length that holds an instant.
func windowStart(length time.Duration, at int64) int64 { return at - at%int64(length) }

// share is the settle rule by its letter: the smallest share by all views that
// were held at any time from S before the window's start until now, but for those
// whose next one takes from nobody.
func (m *model) share(length time.Duration, start, now int64, most bool) int64 {
	least := unlimited
	for i, v := range m.views {
		if i+1 < len(m.views) && m.views[i+1].at < min(start-int64(v.policy.Settle), now) {
			continue // replaced before that
		}
		if i+1 < len(m.views) && m.gives(&v.policy, &m.views[i+1].policy, length, start, most) {
			continue
		}
		if n := total(&v.policy, length, start, most); n != unlimited {
			least = min(least, n/m.instances)
		}
	}
	return least
}

// gives reports whether nobody has less of a window by the next policy, which is
// divided in the same way. Where policies had another shape at any time, it may also
// be so that no view is left out.
func (m *model) gives(p, next *quota.Policy, length time.Duration, start int64, most bool) bool {
	if !most && slices.ContainsFunc(m.views, func(v view) bool { return v.policy.Shape != quota.ShapeFixed }) {
		return false
	}
	unpaused := func(p quota.Policy) *quota.Policy {
		p.Mode = quota.ModeEnforce
		return &p
	}
	before, after := total(unpaused(*p), length, start, true), total(unpaused(*next), length, start, true)
	return before != unlimited && after != unlimited && after >= before && limitsAt(p, start) != nil && limitsAt(next, start) != nil &&
		(next.Mode != quota.ModePause || p.Mode == quota.ModePause) &&
		p.Settle == next.Settle && p.Freshness == next.Freshness && p.ClockError == next.ClockError && p.Guard == next.Guard
}

// sum returns the permits that were issued in [from, to).
func (m *model) sum(from, to int64) (n int64) {
	for i := len(m.log) - 1; i >= 0 && m.log[i].at >= from; i-- {
		if m.log[i].at < to {
			n += m.log[i].n
		}
	}
	return n
}

// fixedLeft returns how many permits the running windows leave at an instant. A
// limit that came within a window does not know what was issued in it before:
// what is left at the least is told with it, and what is left at the most without.
func (m *model) fixedLeft(now int64, class int, most bool) int64 {
	left := unlimited
	for _, l := range m.lengths() {
		start := windowStart(l, now)
		if s := m.share(l, start, now, most); s != unlimited {
			if most {
				start = max(start, m.added(l, now)+1) // what came at the same instant may have come before
			}
			left = min(left, s-m.sum(start, now+1)-m.kept(l, s, class, now))
		}
	}
	if left == unlimited {
		return 0
	}
	return max(0, left)
}

// added returns since when there has always been a limit of that length.
func (m *model) added(length time.Duration, now int64) (since int64) {
	for i, v := range m.views {
		end := now
		if i+1 < len(m.views) {
			end = min(end, m.views[i+1].at)
		}
		changes := []int64{v.at, v.policy.From.UnixNano()}
		for _, c := range v.policy.Next {
			changes = append(changes, c.From.UnixNano())
		}
		slices.Sort(changes)
		for k, at := range changes {
			if at = max(at, v.at); at > end {
				continue
			}
			if !slices.ContainsFunc(limitsAt(&v.policy, at), func(l quota.Limit) bool { return l.Window == length }) {
				since = end
				if k+1 < len(changes) {
					since = min(end, max(v.at, changes[k+1]))
				}
			}
		}
	}
	return since
}

// guarded reports whether an instant lies within the guard of an edge of any
// window of these lengths.
func (m *model) guarded(now int64, lengths []time.Duration) bool {
	g := int64(0)
	for _, v := range m.views {
		g = max(g, int64(v.policy.Guard))
	}
	for _, l := range lengths {
		start := windowStart(l, now)
		if now < start+g || now >= start+int64(l)-g {
			return true
		}
	}
	return false
}

// calm returns since when nothing has changed that a share depends on, for so
// long that the change has settled; false if that is not so yet.
func (m *model) calm(now int64) (since int64, calm bool) {
	settle, longest := int64(0), int64(m.lengths()[len(m.lengths())-1])
	for _, v := range m.views {
		settle = max(settle, int64(v.policy.Settle))
	}
	last := m.began
	if len(m.views) > 1 {
		last = m.views[len(m.views)-1].at + settle
	}
	p := m.newest()
	changes := []int64{m.pausedTo, p.From.UnixNano()}
	for _, c := range p.Next {
		changes = append(changes, c.From.UnixNano())
	}
	for _, at := range changes {
		if at > now {
			return 0, false
		}
		last = max(last, at)
	}
	if p.WarmUp > 0 {
		last = max(last, m.opened) + int64(p.WarmUp) + longest
	}
	last += 4 * longest
	return last, now >= last && p.Mode == quota.ModeEnforce
}

// slotOf is the time in which shapes other than fixed windows tell permits apart.
func slotOf(length time.Duration) int64 { return int64(length) / 500 }

// slidingLeft returns how many permits there are at least, under shape sliding.
func (m *model) slidingLeft(now int64) int64 {
	left := unlimited
	for _, l := range limitsAt(m.newest(), now) {
		left = min(left, l.Permits/m.instances-m.sum(now-int64(l.Window)-int64(m.newest().Guard)-4*slotOf(l.Window), now+1))
	}
	return left
}

// bucketLeft returns how many permits there are at least, under shape bucket:
// what has accrued since the instant since, a little more slowly than it does.
func (m *model) bucketLeft(since, now int64) int64 {
	left, p := unlimited, m.newest()
	for _, l := range limitsAt(p, now) {
		share := l.Permits / m.instances
		burst := float64(burstOf(p, l, m.instances))
		// A permit that is taken from a full bucket counts from its slot's end: up to
		// a slot's permits spill.
		slot := slotOf(l.Window)
		brim := max(0, burst-float64(share)/500)
		level, at, last := 0.0, since, since
		accrue := func(to int64) {
			level = min(brim, level+0.99*float64(share)*float64(to-at)/float64(l.Window))
			at = to
		}
		for _, e := range m.bucketEvents(since, now, float64(share)/float64(l.Window)) {
			accrue(e.at)
			level, last = min(brim, level-e.n), e.at
		}
		accrue(max(at, now-2*slot))
		if level == brim && last < now-2*slot {
			level = burst
		}
		left = min(left, int64(math.Floor(level+1e-6)))
	}
	return left
}

// event is permits that a bucket loses, or gets back, and when.
type event struct {
	at int64
	n  float64
}

// bucketEvents returns what has happened to a bucket that fills at a rate since
// an instant. What is given back counts but for what has accrued since it was
// issued.
func (m *model) bucketEvents(since, now int64, rate float64) (all []event) {
	for _, i := range m.log {
		all = append(all, event{i.at, float64(i.n)})
	}
	for _, r := range m.back {
		all = append(all, event{r.taken, float64(r.n)}, event{r.at, min(0, rate*float64(r.at-r.taken)+1-float64(r.n))})
	}
	all = slices.DeleteFunc(all, func(e event) bool { return e.at < since || e.at > now })
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return all
}

// burstOf returns what an instance may issue at once of a limit, under shape
// bucket.
func burstOf(p *quota.Policy, l quota.Limit, instances int64) int64 {
	burst := l.Permits
	if p.Burst > 0 {
		burst = min(burst, p.Burst)
	}
	meet := math.Ceil(float64(l.Permits) * float64(p.Guard) / float64(l.Window))
	return max(1, (burst-int64(meet))/instances)
}

// atLeast returns how many permits can be had at an instant at the least, by
// a caller of a class that is the first in line since the instant since. known is false where the
// model cannot tell. A debt is first.
func (m *model) atLeast(now, since int64, class int) (n int64, known bool) {
	if m.debt > 0 {
		return 0, true
	}
	return m.unowed(now, since, class)
}

// unowed is atLeast for a debt.
func (m *model) unowed(now, since int64, class int) (n int64, known bool) {
	p := m.newest()
	calmSince, calm := m.calm(now)
	switch {
	case now < m.pausedTo:
		return 0, true
	case p.Shape == quota.ShapeSliding:
		return m.slidingLeft(now), calm
	case p.Shape == quota.ShapeBucket:
		return m.bucketLeft(calmSince, now), calm
	case p.WarmUp > 0 && !calm:
		return 0, false
	case m.guarded(now, m.lengths()):
		return 0, true
	case p.Pacing != quota.PacingEven:
		return m.fixedLeft(now, class, false), true
	}
	return m.pacedLeft(now, since), calm
}

// pacedLeft returns how many permits are released at least by an instant under
// pacing even, if somebody has waited for them since an instant: the even part of
// every window since then, and all at its end to who waited all along.
func (m *model) pacedLeft(now, since int64) int64 {
	left := m.fixedLeft(now, 0, false)
	for _, l := range limitsAt(m.newest(), now) {
		since = max(since, windowStart(l.Window, now)+int64(m.newest().Guard))
	}
	for _, l := range limitsAt(m.newest(), now) {
		start, guard := windowStart(l.Window, now), int64(m.newest().Guard)
		step := min(int64(slice), int64(l.Window)/50)
		if since <= start+guard && now >= start+int64(l.Window)-guard-step {
			continue // all is due
		}
		even := float64(l.Permits/m.instances) / float64(l.Window)
		left = min(left, max(0, int64(even*float64(max(0, now-since-3*step)))-1))
	}
	return left
}

// atMost returns how many permits may be issued to a class at an instant at the most.
func (m *model) atMost(now int64, class int) int64 {
	p := m.newest()
	if now < m.pausedTo && p.Mode != quota.ModeShadow {
		return 0
	}
	if p.Shape == quota.ShapeFixed {
		var in []time.Duration
		for _, l := range limitsAt(p, now) {
			in = append(in, l.Window)
		}
		if m.guarded(now, in) {
			return 0
		}
		return m.fixedLeft(now, class, true)
	}
	// Every span that ends now, against the largest share and burst there were.
	least := unlimited
	for _, length := range m.lengths() {
		share, burst := int64(-1), int64(0)
		for _, v := range m.views {
			for _, limits := range append([][]quota.Limit{v.policy.Limits}, changed(&v.policy)...) {
				n := int64(-1)
				for _, l := range limits {
					if l.Window == length {
						n = l.Permits
					}
				}
				if n < 0 {
					share = unlimited // once there was no such limit
				} else if share != unlimited {
					share, burst = max(share, n/m.instances), max(burst, burstOf(&v.policy, quota.Limit{Permits: n, Window: length}, m.instances))
				}
			}
		}
		if share == unlimited {
			continue
		}
		if p.Shape == quota.ShapeSliding {
			least = min(least, share-m.sum(now-int64(length)-int64(p.Guard), now+1))
			continue
		}
		sum := int64(0)
		least = min(least, burst)
		for _, entry := range slices.Backward(m.log) {
			sum += entry.n
			accrued := float64(burst) + float64(share)*float64(now-entry.at)/float64(length)
			least = min(least, int64(math.Floor(accrued+1e-6))-sum)
		}
	}
	return max(0, least)
}

func changed(p *quota.Policy) (all [][]quota.Limit) {
	for _, c := range p.Next {
		all = append(all, c.Limits)
	}
	return all
}

// nextEdge returns the next window's start or end, guard considered.
func (m *model) nextEdge(now int64) int64 {
	next := int64(math.MaxInt64)
	for _, l := range m.lengths() {
		start, g := windowStart(l, now), int64(m.newest().Guard)
		for _, e := range []int64{start + g, start + int64(l) - g - 1, start + int64(l)} {
			if e > now {
				next = min(next, e)
			}
		}
	}
	return next
}
