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

// Whatever parts of the limit instances issue in each window, whenever they join, leave and
// report, and whether anybody asked for reports before: no point is above the limit, and where
// each instance has told the window, the point is exact.
func TestNoPointIsAboveTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const limit = 1000
		window := rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second}).Draw(t, "window")
		perSecond := max(1, int(time.Second/window))
		instances := rapid.IntRange(2, 5).Draw(t, "instances")
		type player struct {
			issued      []int64 // until each window
			joins, ends int     // seconds
			drift       time.Duration
			next        time.Time
			report      *protocol.Report
		}
		var all []*player
		const seconds, opened = 60, 25 // somebody looks from then on
		windows := int(seconds * time.Second / window)
		for range instances {
			p := &player{issued: make([]int64, windows+1), joins: rapid.IntRange(0, 40).Draw(t, "joins")}
			p.ends = p.joins + rapid.IntRange(5, 60).Draw(t, "stays")
			p.drift = time.Duration(rapid.IntRange(0, 400).Draw(t, "drift")) * time.Millisecond
			p.next = start.Add(time.Duration(p.joins) * time.Second)
			all = append(all, p)
		}
		truth := make([]int64, windows)
		weights := rapid.SliceOfN(rapid.IntRange(0, 9), 7*instances, 7*instances).Draw(t, "weights")
		for w := range windows {
			second := int(time.Duration(w) * window / time.Second)
			sum := 0
			part := func(i int) int {
				if p := all[i]; second < p.joins || second >= p.ends {
					return 0
				}
				return weights[(w/max(1, perSecond/2)*instances+i)%len(weights)]
			}
			for i := range all {
				sum += part(i)
			}
			for i, p := range all {
				n := int64(limit * part(i) / max(1, sum))
				p.issued[w+1] = p.issued[w] + n
				truth[w] += n
			}
		}
		c := newMeter()
		policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: window}}}.WithDefaults()
		var drawn, exact float64
		for look := range seconds {
			now := start.Add(time.Duration(look)*time.Second + 700*time.Millisecond)
			f := &protocol.Fleet{Policy: protocol.Stored{Policy: policy, Revision: 7}}
			for i, p := range all {
				if look < p.joins || look >= p.ends {
					continue
				}
				for ; !p.next.After(now); p.next = p.next.Add(map[bool]time.Duration{true: time.Second + p.drift, false: 30 * time.Second}[look >= opened]) {
					w := int(p.next.Sub(start) / window)
					p.report = &protocol.Report{Time: p.next, Used: p.issued[w], UsedBefore: p.issued[w], WindowStart: start.Add(time.Duration(w) * window), PolicyRevision: 7}
				}
				if look >= opened && p.next.After(now.Add(2*time.Second)) {
					p.next = now.Add(time.Duration(i) * 130 * time.Millisecond)
				}
				f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: fmt.Sprint(i), Name: fmt.Sprint(i)}, Report: p.report})
			}
			c.observed(look >= opened)
			for _, p := range c.see(now, f) {
				if p.Total == nil {
					continue
				}
				if *p.Total > *p.Limit+1e-6 {
					t.Fatalf("second %d: %v of %v", (p.At-start.UnixMilli())/1000, *p.Total, *p.Limit)
				}
				sum := p.Others
				for _, n := range p.Named {
					sum += n
				}
				if math.Abs(sum-*p.Total) > 1e-6 {
					t.Fatalf("second %d: its instances sum to %v of %v", (p.At-start.UnixMilli())/1000, sum, *p.Total)
				}
				from := int(time.Duration(p.At-start.UnixMilli()) * time.Millisecond / window)
				for w := from; w < from+int(c.length/window); w++ {
					exact += float64(truth[w])
				}
				drawn += *p.Total * c.length.Seconds()
			}
		}
		if drawn > exact+4*limit*float64(perSecond) {
			t.Fatalf("%v are drawn of %v", drawn, exact)
		}
	})
}

// What is over the limit by the reports is drawn so.
func TestWhatIsAboveTheLimitIsDrawn(t *testing.T) {
	t.Parallel()
	points, _ := run(time.Second, 20, 20, []*worker{
		{name: "a", share: 15, to: 1000}, {name: "b", share: 15, phase: 300 * time.Millisecond, to: 1000},
	})
	if last := points[len(points)-1]; *last.Total != 30 || *last.Limit != 20 {
		t.Errorf("%v of %v, want 30 of 20", *last.Total, *last.Limit)
	}
}

// One that nobody asked for a report has told nothing for seconds in which it was alone. Its
// permits are those of these seconds, and not of the last one, in which another has its part.
func TestAFirstSpanLeavesRoom(t *testing.T) {
	t.Parallel()
	c := newMeter()
	c.observed(true)
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}.WithDefaults()
	reports := func(second int64) (a, b *protocol.Report) {
		at := start.Add(time.Duration(second) * time.Second)
		report := func(used int64) *protocol.Report {
			return &protocol.Report{Time: at.Add(200 * time.Millisecond), WindowStart: at, Used: used, UsedBefore: used, PolicyRevision: 7}
		}
		a = report(100*min(second, 13) + 50*max(0, second-13))
		if second > 10 && second < 14 {
			a = nil // the one of second 10 stands
		}
		if second >= 13 {
			b = report(50 * (second - 13))
		}
		return a, b
	}
	var stands *protocol.Report
	for second := int64(10); second < 20; second++ {
		a, b := reports(second)
		if a == nil {
			a = stands
		}
		stands = a
		f := &protocol.Fleet{Policy: protocol.Stored{Policy: policy, Revision: 7}, Instances: []protocol.InstanceStatus{{Instance: protocol.Instance{ID: "a"}, Report: a}}}
		if b != nil {
			f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: "b"}, Report: b})
		}
		for _, p := range c.see(start.Add(time.Duration(second)*time.Second+300*time.Millisecond), f) {
			if p.Total != nil && *p.Total > 100 {
				t.Errorf("second %d: %v of 100, by %v", (p.At-start.UnixMilli())/1000, *p.Total, p.Named)
			}
			if s := (p.At - start.UnixMilli()) / 1000; s >= 14 && *p.Total != 100 {
				t.Errorf("second %d: %v, want 100", s, *p.Total)
			}
		}
	}
}
