package live

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// named is how many instances a chart shows by themselves; the others are
	// added up.
	named = 7
	// patience is how long a point waits for instances whose reports are late, or
	// that are gone, and slowPatience where nobody asks for a report every second. Time in
	// which etcd did not answer does not count.
	patience     = 5 * time.Second
	slowPatience = 40 * time.Second
	// interrupted is a time without a look after which patience begins again.
	interrupted = 20 * time.Second
)

// Point is one bucket of a chart: a second, or as many whole windows as fill it.
type Point struct {
	At    int64    `json:"t"` // its start, milliseconds since the Unix epoch
	Limit *float64 `json:"limit"`
	// Total is what was issued; null where no reports tell. All are permits per
	// second.
	Total  *float64           `json:"total"`
	Named  map[string]float64 `json:"named,omitempty"`
	Others float64            `json:"others"`
	Count  int                `json:"count"` // instances behind Total
	// By divides Total by "class", "label" and "key", as far as calls have any and one stands
	// by itself, as the reports of that time divide what was issued.
	By map[string]map[string]float64 `json:"by,omitempty"`
	// Refused is what was asked for in vain, also where shadow mode let it pass.
	Refused float64 `json:"refused"`
	Waiting int64   `json:"waiting"` // callers
	// Mean is set where two reports behind Total are more than maxApart apart: the point is
	// their mean, divided as the limit was.
	Mean bool `json:"mean,omitempty"`
}

// meter turns looks at a fleet into points. It is pure: a look goes in with its
// instant, points come out, each once and in order.
type meter struct {
	length time.Duration // of a bucket
	next   int64         // the bucket to finish next; 0 before the first look
	since  int64         // the first look of those that were not interrupted
	looked int64         // the last look
	quick  bool          // somebody asks for a report every second
	weights
	tracks map[string]*track
	names  leaders // of instances
	parts  map[string]*parts
	policy policies
	last   *Point             // with a total
	used   map[string]float64 // by incarnation, of last
}

func newMeter() *meter {
	return &meter{tracks: map[string]*track{}, names: leaders{weight: map[string]float64{}}, parts: map[string]*parts{}}
}

// see takes a look at the fleet and returns the points that are finished by it.
func (c *meter) see(now time.Time, f *protocol.Fleet) []Point {
	c.policy.see(now, f)
	window := time.Second
	if p := c.policy.now(); p != nil {
		if l := protocol.LimitsAt(p, now.UnixNano()); len(l) > 0 {
			window = l[0].Window
		}
	}
	if length := (time.Second + window - 1) / window * window; length != c.length {
		c.length, c.next, c.last, c.weights = length, 0, nil, weights{}
	}
	for _, t := range c.tracks {
		t.live = false
	}
	before := c.looked
	for _, i := range f.Instances {
		t := c.tracks[i.Instance.ID]
		if t == nil {
			t = &track{name: i.Instance.Name}
			c.tracks[i.Instance.ID] = t
		}
		t.live = true
		if i.Report != nil {
			t.clock.See(now.UnixNano(), before, i.Report)
			t.see(now, i.Report)
		}
	}
	c.seeParts(f)
	return c.finish(now.UnixNano())
}

// observed says whether somebody asks for a report every second.
func (c *meter) observed(quick bool) {
	if quick && !c.quick {
		c.looked = 0 // what was late is on its way
	}
	c.quick = quick
}

func (c *meter) finish(now int64) (points []Point) {
	length, wait := int64(c.length), slowPatience
	if c.quick {
		wait = patience
	}
	if now-c.looked > int64(interrupted) {
		c.since = now
	}
	c.looked = now
	running := now / length
	if c.next == 0 {
		c.next = running - 1
	}
	c.next = max(c.next, running-PointsAtMost) // the past before that is left behind
	c.extend(c.next-int64(maxMean)/length-1, running, func(k int64) *float64 { return c.policy.limit(k*length, c.length) })
	for c.next < running {
		from, to := c.next*length, (c.next+1)*length
		if !c.complete(to) && now-max(to, c.since) < int64(wait) {
			break
		}
		points = append(points, c.point(from, to))
		c.next++
	}
	for id, t := range c.tracks {
		t.issued.forget(c.next * length)
		if t.refused.forget(c.next * length); !t.live && !t.issued.covers(c.next*length) {
			delete(c.tracks, id)
		}
	}
	return points
}

// complete reports whether every live instance has told what it issued until an
// instant.
func (c *meter) complete(until int64) bool {
	for _, t := range c.tracks {
		if t.live && len(t.issued) > 0 && !t.issued.covers(until) {
			return false
		}
	}
	return true
}

// drawn is what a point shows of one instance, in permits.
type drawn struct {
	*track
	id   string
	n    float64
	from edge
	to   edge
}

// late is how much of it may belong to later points: not what is known to be issued by now.
func (d *drawn) late() float64 { return d.n - min(d.n, max(0, d.to.least-d.from.n+d.behind)) }

// unsure is how much of it may belong to other points.
func (d *drawn) unsure() float64 { return d.n - min(d.n, max(0, d.to.least-d.from.most)) }

func (c *meter) point(from, to int64) Point {
	p := Point{At: from / int64(time.Millisecond), Limit: c.policy.limit(from, c.length), Named: map[string]float64{}}
	seconds := time.Duration(to - from).Seconds()
	part := func(from, to, at int64) float64 { return c.part(c.length, from, to, at) }
	var all []*drawn
	for id, t := range c.tracks {
		d := &drawn{track: t, id: id, from: t.issued.at(from, part), to: t.issued.at(to, part)}
		if d.from.known && d.to.known {
			d.n = max(0, d.to.n-d.from.n+t.behind)
			all = append(all, d)
			p.Mean = p.Mean || d.from.apart || d.to.apart
		} else {
			t.behind = 0
		}
		before, after := t.refused.at(from, evenly), t.refused.at(to, evenly)
		if before.known && after.known {
			p.Refused += max(0, after.n-before.n) / seconds
		}
		if t.live {
			p.Waiting += max(0, t.last.Waiting)
		}
	}
	if p.Limit != nil && c.policy.exact(from) {
		settle(all, *p.Limit*seconds)
	}
	by, used, total := map[string]float64{}, map[string]float64{}, 0.0
	for _, d := range all {
		rate := d.n / seconds
		by[d.name] += rate
		used[d.id] = rate
		total += rate
	}
	p.Count = len(all)
	c.names.see(by)
	if p.Count == 0 {
		return p
	}
	p.Total, p.Others, p.By = &total, total, c.divide(total)
	for _, name := range c.names.shown {
		if v, ok := by[name]; ok {
			p.Named[name] = v
			p.Others -= v
		}
	}
	p.Others = max(0, p.Others)
	c.last, c.used = &p, used
	return p
}

// settle keeps what is drawn of all instances within the limit, as far as it is a guess. A
// sample tells how much was issued by an instant. If that lies within a point, or two samples
// are some points apart, when it was issued is a guess, of each instance by itself: their sum
// can be more than any point had. Then later points show it, if that may be so, and none if it
// may not. What is known stays, also above the limit.
func settle(all []*drawn, limit float64) {
	over := -limit
	for _, d := range all {
		over += d.n
	}
	reduce := func(most func(*drawn) float64) {
		sum := 0.0
		for _, d := range all {
			sum += most(d)
		}
		if over <= 0 || sum <= 0 {
			return
		}
		part := min(1, over/sum)
		over -= part * sum
		for _, d := range all {
			d.n -= part * most(d)
		}
	}
	reduce((*drawn).late)
	for _, d := range all {
		d.behind = max(0, d.to.n-d.from.n+d.behind-d.n)
	}
	reduce((*drawn).unsure)
}

type instanceRates struct {
	Issued, Refused, Shadowed float64
	Known                     bool          // there were two reports
	Age                       time.Duration // since the newest report was first seen
}

// total returns what all instances issue together by the newest point, if that is of a
// moment ago.
func (c *meter) total() (issued float64, fresh bool) {
	if c.last == nil || c.looked-c.last.At*int64(time.Millisecond) >= int64(2*patience+2*c.length) {
		return 0, false
	}
	return *c.last.Total, true
}

// most is the limit in force, in permits per second, if the fleet issues no more in a second.
func (c *meter) most(now time.Time) *float64 {
	start := now.Truncate(c.length).UnixNano()
	if !c.policy.exact(start) {
		return nil
	}
	return c.policy.limit(start, c.length)
}

// of returns an instance's rates: what it issued by the newest point, or, where
// reports come too seldom for points, between its last two reports.
func (c *meter) of(incarnation string, now time.Time) instanceRates {
	t := c.tracks[incarnation]
	r := t.rates
	r.Age = now.Sub(t.heard)
	if _, fresh := c.total(); fresh {
		r.Issued = c.used[incarnation]
	}
	return r
}

// policies are those that bind a chart's buckets, the newest last: a lowered limit
// takes the settle time to bind the whole fleet, so until then the larger one counts.
type policies struct {
	all      []boundPolicy
	revision int64
	looked   time.Time
}

type boundPolicy struct {
	policy *quota.Policy
	until  int64 // the instant from which on it binds nobody
}

// now returns the newest policy, nil if none is in force.
func (p *policies) now() *quota.Policy {
	if n := len(p.all); n > 0 && p.all[n-1].until == math.MaxInt64 {
		return p.all[n-1].policy
	}
	return nil
}

func (p *policies) see(now time.Time, f *protocol.Fleet) {
	if v := f.View(); v.PolicyRevision != p.revision {
		if old := p.now(); old != nil {
			settle, changed := old.Settle, now
			if v.Policy != nil {
				settle = max(settle, v.Policy.Settle)
				// The writer's clock tells when, if it can be right.
				if at := v.Policy.Time; at.After(p.looked) && at.Before(now) {
					changed = at
				}
			}
			p.all[len(p.all)-1].until = changed.Add(settle).UnixNano()
		}
		if p.revision = v.PolicyRevision; v.Policy != nil {
			p.all = append(p.all, boundPolicy{v.Policy, math.MaxInt64})
		}
	}
	p.looked = now
	p.all = slices.DeleteFunc(p.all, func(o boundPolicy) bool { return o.until < now.Add(-maxMean).UnixNano() })
	p.all = p.all[max(0, len(p.all)-policiesAtMost):]
}

// exact reports whether no point can have more than the limit: a bucket's burst comes on top.
func (p *policies) exact(start int64) bool {
	return !slices.ContainsFunc(p.all, func(o boundPolicy) bool { return start < o.until && o.policy.Shape == quota.ShapeBucket })
}

// policiesAtMost bounds the policies that are remembered, however often one is written.
const policiesAtMost = 50

// limit returns the permits per second that a bucket's windows of the shortest
// limit allow, or nil.
func (p *policies) limit(start int64, length time.Duration) (most *float64) {
	for _, o := range p.all {
		limits := protocol.LimitsAt(o.policy, start)
		if start >= o.until || len(limits) == 0 || protocol.Free(limits[0]) || length%limits[0].Window != 0 {
			continue
		}
		if n := float64(limits[0].Permits) / limits[0].Window.Seconds(); most == nil || n > *most {
			most = &n
		}
	}
	return most
}

// short returns the point with as many digits as are drawn.
func (p Point) short() Point {
	for _, f := range []**float64{&p.Total, &p.Limit} {
		if *f != nil {
			*f = new(round(**f))
		}
	}
	named := make(map[string]float64, len(p.Named))
	for name, v := range p.Named {
		named[name] = round(v)
	}
	p.Named, p.Others, p.Refused = named, round(p.Others), round(p.Refused)
	for _, part := range p.By {
		for name, v := range part {
			part[name] = round(v)
		}
	}
	return p
}

// round keeps what people read of a rate, and answers short.
func round(f float64) float64 { return math.Round(f*10) / 10 }

type track struct {
	name            string
	issued, refused series
	behind          float64         // permits that points have left to later ones: see settle
	live            bool            // at the last look
	last            protocol.Report // without its lists
	heard           time.Time       // when last was first seen
	rates           instanceRates   // between the last two reports
	classes         [len(classes)]ClassRate
	clock           Clock
}

// see adds a report. One that was seen before adds nothing.
func (t *track) see(now time.Time, r *protocol.Report) {
	if !r.Time.After(t.last.Time) {
		return
	}
	if before := t.last; !before.Time.IsZero() {
		elapsed := r.Time.Sub(before.Time).Seconds()
		t.rates.Refused, t.rates.Shadowed = max(0, float64(r.Refused-before.Refused)/elapsed), max(0, float64(r.Shadowed-before.Shadowed)/elapsed)
		t.rates.Known = true
		t.seeClasses(r, elapsed)
	}
	t.last, t.heard = *r, now
	t.last.BusiestKeys, t.last.BusiestLabels = nil, nil
	t.refused.add(sample{r.Time.UnixNano(), r.Refused + r.Shadowed})
	s := sample{r.Time.UnixNano(), r.Used}
	if !r.WindowStart.IsZero() {
		s = sample{r.WindowStart.UnixNano(), r.UsedBefore}
	}
	if rate, ok := t.issued.add(s); ok {
		t.rates.Issued = rate
	}
}
