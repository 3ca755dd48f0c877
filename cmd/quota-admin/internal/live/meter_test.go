package live

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// worker is an instance of an invented fleet: it issues its share within the
// first half of each window, and reports at instants of its own.
type worker struct {
	name     string
	share    int64            // of each window
	phase    time.Duration    // of its reports, once a second
	from, to int              // seconds in which it is there; reports until it goes
	report   *protocol.Report // newest
}

// issued returns what the worker had issued by an instant, and before the window
// that runs then.
func (w *worker) issued(at time.Time, window time.Duration) (all, before int64, began time.Time) {
	began = time.Unix(0, quota.WindowAt(window, at.UnixNano()).Start())
	windows := int64(began.Sub(start.Add(time.Duration(w.from)*time.Second))/window) + 10
	part := min(1, float64(at.Sub(began))/float64(window/2))
	before = windows * w.share
	return before + int64(part*float64(w.share)), before, began
}

func fleetAt(now time.Time, window time.Duration, total int64, workers []*worker) *protocol.Fleet {
	p := quota.Policy{Limits: []quota.Limit{{Permits: total, Window: window}}}.WithDefaults()
	f := &protocol.Fleet{Provider: "p", Policy: protocol.Stored{Provider: "p", Policy: p, Revision: 7}}
	for _, w := range workers {
		s := now.Sub(start)
		if s < time.Duration(w.from)*time.Second || s >= time.Duration(w.to)*time.Second {
			continue
		}
		at := now.Add(-w.phase).Truncate(time.Second).Add(w.phase)
		if at.Sub(start) >= time.Duration(w.from)*time.Second {
			all, before, began := w.issued(at, window)
			w.report = &protocol.Report{Time: at, Used: all, UsedBefore: before, WindowStart: began, PolicyRevision: 7, State: quota.StateActive}
		}
		f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: w.name + ".1", Name: w.name}, Report: w.report})
	}
	return f
}

func run(window time.Duration, total int64, seconds int, workers []*worker) (points []Point, c *meter) {
	c = newMeter()
	c.observed(true)
	for i := range seconds {
		// A look comes somewhat late each time, as they do.
		now := start.Add(time.Duration(i)*time.Second + 300*time.Millisecond + time.Duration(i%7)*20*time.Millisecond)
		points = append(points, c.see(now, fleetAt(now, window, total, workers))...)
	}
	return points, c
}

// A fleet that uses its limit is drawn as using all of it in every second, and
// never more, whenever each instance happens to report.
func TestPointsAreExact(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second} {
		var workers []*worker
		for i := range 12 {
			workers = append(workers, &worker{name: fmt.Sprintf("w-%d", i), share: 10, phase: time.Duration(i) * 83 * time.Millisecond, to: 1000})
		}
		points, c := run(window, 120, 40, workers)
		want := 120 / window.Seconds()
		known := 0
		for i, p := range points {
			if i > 0 && p.At != points[i-1].At+c.length.Milliseconds() {
				t.Errorf("%v: points at %d and %d", window, points[i-1].At, p.At)
			}
			if p.Limit == nil || math.Abs(*p.Limit-want) > 1e-6 {
				t.Errorf("%v: limit %v, want %v", window, p.Limit, want)
			}
			if p.Total == nil {
				continue
			}
			if p.Count == 12 {
				known++
			}
			if p.Count == 12 && math.Abs(*p.Total-want) > 1e-6 {
				t.Errorf("%v: point %d has %v of %v", window, i, *p.Total, want)
			}
			sum := p.Others
			for _, v := range p.Named {
				sum += v
			}
			if math.Abs(sum-*p.Total) > 1e-6 || len(p.Named) != min(named, p.Count) {
				t.Errorf("%v: layers of %v sum to %v of %v", window, p.Named, sum, *p.Total)
			}
		}
		if least := 30 / int(c.length/time.Second); known < least-3 {
			t.Errorf("%v: %d points with a total, of %d", window, known, len(points))
		}
	}
}

// Who is killed leaves a gap in its layer, and the others go on.
func TestAKilledInstanceLeavesTheChart(t *testing.T) {
	t.Parallel()
	points, c := run(time.Second, 30, 40, []*worker{
		{name: "a", share: 10, to: 1000}, {name: "b", share: 10, phase: 400 * time.Millisecond, to: 1000},
		{name: "gone", share: 10, phase: 200 * time.Millisecond, to: 20},
	})
	if last := points[len(points)-1]; last.Count != 2 || *last.Total != 20 {
		t.Errorf("at the end %+v", last)
	}
	if len(c.tracks) != 2 {
		t.Errorf("%d tracks are kept", len(c.tracks))
	}
	most := 0.0
	for _, p := range points {
		if p.Total != nil {
			most = max(most, *p.Total)
		}
	}
	if most != 30 {
		t.Errorf("at most %v", most)
	}
}

// Of permits issued while etcd was away only the sum is known: their points are a mean, and
// say so. Those before and after it are told by second.
func TestAnOutageIsAMean(t *testing.T) {
	t.Parallel()
	w := []*worker{{name: "a", share: 10, to: 1000}}
	c := newMeter()
	c.observed(true)
	var points []Point
	for i := range 60 {
		now := start.Add(time.Duration(i)*time.Second + 300*time.Millisecond)
		f := fleetAt(now, time.Second, 10, w)
		if i >= 20 && i < 40 {
			continue // no answer
		}
		points = append(points, c.see(now, f)...)
	}
	for i, p := range points {
		second := (p.At - start.UnixMilli()) / 1000
		if i > 0 && p.At != points[i-1].At+1000 {
			t.Errorf("second %d comes after %d", second, (points[i-1].At-start.UnixMilli())/1000)
		}
		if p.Mean != (second >= 19 && second < 40) {
			t.Errorf("second %d: mean is %v", second, p.Mean)
		}
		if second > 4 && (p.Total == nil || math.Abs(*p.Total-10) > 1e-6) {
			t.Errorf("second %d has %v", second, p.Total)
		}
	}
	if last := points[len(points)-1]; last.At < start.Add(55*time.Second).UnixMilli() {
		t.Errorf("the last point is of %v", time.UnixMilli(last.At).UTC())
	}
}

// While nobody looks, instances report each 30 s. Where a lower limit begins to bind between
// two reports, their mean is divided as the limits are: no point is over its limit, and the
// points sum to what was issued.
func TestAMeanExceedsNoLimit(t *testing.T) {
	t.Parallel()
	c := newMeter()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}, Next: []quota.LimitChange{
		{From: start.Add(80 * time.Second), Limits: []quota.Limit{{Permits: 20, Window: time.Second}}},
	}}.WithDefaults()
	sum := 0.0
	for look := range 20 {
		now := start.Add(time.Duration(10*look)*time.Second + 300*time.Millisecond)
		at := now.Truncate(30 * time.Second) // of the newest report
		s := int64(at.Sub(start) / time.Second)
		used := 100*min(s, 80) + 20*max(0, s-80)
		f := &protocol.Fleet{Policy: protocol.Stored{Policy: policy, Revision: 7}, Instances: []protocol.InstanceStatus{{
			Instance: protocol.Instance{ID: "a", Name: "a"}, Report: &protocol.Report{Time: at, Used: used, UsedBefore: used, WindowStart: at},
		}}}
		for _, p := range c.see(now, f) {
			second := (p.At - start.UnixMilli()) / 1000
			if p.Total == nil {
				continue
			}
			if !p.Mean || *p.Total > *p.Limit+1e-6 {
				t.Errorf("second %d: %v of %v, mean is %v", second, *p.Total, *p.Limit, p.Mean)
			}
			sum += *p.Total
		}
	}
	if want := 100.0*80 + 20*(180-80); math.Abs(sum-want) > 1e-3 {
		t.Errorf("the points sum to %v, want %v", sum, want)
	}
}

// Points have what was refused, shadowed included, and who waits.
func TestPointsHaveWhatWasRefused(t *testing.T) {
	t.Parallel()
	c := newMeter()
	c.observed(true)
	for i := range 12 {
		now := start.Add(time.Duration(i)*time.Second + 300*time.Millisecond)
		n := int64(i)
		f := &protocol.Fleet{Instances: []protocol.InstanceStatus{{Instance: protocol.Instance{ID: "a"}, Report: &protocol.Report{
			Time: now, Used: 10 * n, Refused: 5 * n, Shadowed: 2 * n, Waiting: 3,
		}}}}
		for _, p := range c.see(now, f) {
			if p.Total != nil && (math.Abs(p.Refused-7) > 1e-6 || p.Waiting != 3) {
				t.Errorf("at %v: %v refused, %v waiting", time.UnixMilli(p.At).UTC(), p.Refused, p.Waiting)
			}
		}
	}
	if c.last == nil {
		t.Error("there are no points")
	}
}

// A lowered limit is drawn when it binds the whole fleet, a raised one at once.
func TestTheLimitThatBinds(t *testing.T) {
	t.Parallel()
	c := newMeter()
	at := func(second int, permits, revision int64) *float64 {
		p := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}.WithDefaults()
		if revision == 2 { // written at 2.9 s: the fleet obeys from 5.9 s on, in the window that starts at 6 s
			p.Time = start.Add(2900 * time.Millisecond)
		}
		f := &protocol.Fleet{Policy: protocol.Stored{Policy: p, Revision: revision}}
		var last *float64
		for _, p := range c.see(start.Add(time.Duration(second)*time.Second+500*time.Millisecond), f) {
			last = p.Limit
		}
		return last
	}
	for _, s := range []struct {
		second            int
		permits, revision int64
		want              float64
	}{
		{1, 100, 1, 100}, {2, 100, 1, 100}, {3, 40, 2, 100}, {4, 40, 2, 100}, {5, 40, 2, 100}, {6, 40, 2, 100}, {7, 40, 2, 40}, {8, 40, 2, 40},
		{9, 70, 3, 70}, {10, 70, 3, 70},
	} {
		if got := at(s.second, s.permits, s.revision); got == nil || *got != s.want {
			t.Errorf("second %d: limit %v, want %v", s.second, got, s.want)
		}
	}
}

// Whatever instances report, points come in order, each once, and no number is
// negative or not a number.
func TestAnyReports(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newMeter()
		now := start
		last := int64(math.MinInt64)
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "pause")))
			f := &protocol.Fleet{}
			for id := range rapid.IntRange(0, 4).Draw(t, "instances") {
				s := protocol.InstanceStatus{Instance: protocol.Instance{ID: fmt.Sprint(id), Name: fmt.Sprint(id % 2)}}
				if rapid.Bool().Draw(t, "reports") {
					r := &protocol.Report{Time: now.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "when"))), Used: rapid.Int64().Draw(t, "used")}
					if rapid.Bool().Draw(t, "new") {
						r.WindowStart, r.UsedBefore = r.Time.Truncate(time.Second), rapid.Int64().Draw(t, "before")
					}
					s.Report = r
				}
				f.Instances = append(f.Instances, s)
			}
			for _, p := range c.see(now, f) {
				if p.At <= last {
					t.Fatalf("a point at %d after %d", p.At, last)
				}
				last = p.At
				if p.Total != nil && (math.IsNaN(*p.Total) || math.IsInf(*p.Total, 0) || *p.Total < 0 || p.Others < 0) {
					t.Fatalf("point %+v", p)
				}
			}
		}
	})
}

// TestRatesNeverSumToMoreThanTheLimit: an instance issues its share in the first
// tenth of each window, and its share is halved when another joins. Rates between
// reports, as they come, would cut windows in two and add spans that differ.
func TestRatesNeverSumToMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	const total, joins = 500, 20
	m := newMeter()
	known := 0
	for look := range 400 {
		now := start.Add(time.Duration(look)*100*time.Millisecond + 50*time.Millisecond)
		p := quota.Policy{Limits: []quota.Limit{{Permits: total, Window: time.Second}}}.WithDefaults()
		f := &protocol.Fleet{Policy: protocol.Stored{Policy: p, Revision: 7}}
		add := func(id string, phase time.Duration, before func(second int64) int64) {
			at := now.Add(-phase).Truncate(time.Second).Add(phase)
			began := at.Truncate(time.Second)
			second := int64(began.Sub(start) / time.Second)
			part := min(1, float64(at.Sub(began))/float64(100*time.Millisecond))
			used := before(second) + int64(part*float64(before(second+1)-before(second)))
			f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: id, Name: id}, Report: &protocol.Report{
				Time: at, Used: used, UsedBefore: before(second), WindowStart: began,
			}})
		}
		add("a", 900*time.Millisecond, func(s int64) int64 { return 500*min(max(s, 0), joins) + 250*max(0, s-joins) })
		if now.Sub(start) > joins*time.Second+time.Second {
			add("b", 50*time.Millisecond, func(s int64) int64 { return 250 * max(0, s-joins) })
		}
		m.see(now, f)
		sum := 0.0
		for _, i := range f.Instances {
			sum += m.of(i.Instance.ID, now).Issued
		}
		all, ok := m.total()
		if ok {
			known++
		}
		if sum > total+1e-6 || all > total+1e-6 {
			t.Fatalf("at %v: %v and %v of %v", now.Sub(start), sum, all, total)
		}
	}
	if known < 300 {
		t.Errorf("only %d looks of 400 show a rate", known)
	}
}

// Means of different times have no sum above the limit, which no second had.
func TestMeansSumToTheLimit(t *testing.T) {
	t.Parallel()
	b := []*worker{{name: "b", share: 10, from: 20, to: 1000}} // it has all from second 20 on
	c := newMeter()
	var points []Point
	for i := range 80 {
		now := start.Add(time.Duration(i)*time.Second + 300*time.Millisecond)
		f := fleetAt(now, time.Second, 10, b)
		second := i
		if i >= 12 && i < 28 { // it reports seldom
			second = 12
		}
		at, used := start.Add(time.Duration(second)*time.Second), int64(100+10*min(second, 20))
		f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: "a.1", Name: "a"}, Report: &protocol.Report{
			Time: at, Used: used, UsedBefore: used, WindowStart: at, PolicyRevision: 7, State: quota.StateActive,
		}})
		points = append(points, c.see(now, f)...)
	}
	means := 0
	for _, p := range points {
		second := (p.At - start.UnixMilli()) / 1000
		if second < 5 || p.Total == nil {
			continue
		}
		if sum := p.Named["a"] + p.Named["b"] + p.Others; *p.Total > 10+1e-9 || math.Abs(sum-*p.Total) > 1e-9 {
			t.Errorf("second %d has %v of 10, its instances %v", second, *p.Total, sum)
		}
		if p.Mean && second > 21 && math.Abs(*p.Total-10) < 1e-9 {
			means++
		}
	}
	if means < 4 {
		t.Errorf("%d means after second 21, want 6", means)
	}
}
