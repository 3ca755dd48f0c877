package share_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/quota"
)

// When a share begins is foretold to the window, and stays foretold until then.
func TestWhenAShareBeginsIsForetold(t *testing.T) {
	after := func(ms int64) time.Time { return time.Unix(0, instant(ms).Wall).UTC() }
	second, ten := quota.Limit{Permits: 10, Window: time.Second}, quota.Limit{Permits: 50, Window: 10 * time.Second}
	minute := quota.Limit{Permits: 100, Window: time.Minute}
	slid := func(p *quota.Policy) *quota.Policy {
		next := p.Clone()
		next.Shape = quota.ShapeSliding
		return &next
	}
	for _, c := range []struct {
		name   string
		limits []quota.Limit
		from   time.Time // of the policy
		self   time.Time // of the instance
		change func(w *share.Planner, p *quota.Policy)
		want   int64 // milliseconds
		shape  quota.Shape
	}{
		{"the settle time", []quota.Limit{second}, time.Time{}, time.Time{}, nil, 2000, quota.ShapeFixed},
		{"the instance's own beginning", []quota.Limit{second}, time.Time{}, after(2300), nil, 3000, quota.ShapeFixed},
		{"the policy's beginning", []quota.Limit{second}, after(4100), time.Time{}, nil, 5000, quota.ShapeFixed},
		{"the longest window", []quota.Limit{second, minute}, time.Time{}, time.Time{}, nil, 60_000, quota.ShapeFixed},
		{"a policy that was set later", []quota.Limit{second}, time.Time{}, time.Time{}, func(w *share.Planner, p *quota.Policy) {
			w.Apply(instant(3600), protocol.Change{Revision: 2, PolicyDeleted: true})
			w.Apply(instant(5500), protocol.Change{Revision: 3, Policy: p})
		}, 9000, quota.ShapeFixed}, // its settle time is not known before it is set
		{"a policy that was set when a sliding one was long gone", []quota.Limit{second}, time.Time{}, time.Time{}, func(w *share.Planner, p *quota.Policy) {
			w.Apply(instant(600), protocol.Change{Revision: 2, Policy: slid(p)})
			w.Apply(instant(700), protocol.Change{Revision: 3, Policy: p})
			w.Apply(instant(3600), protocol.Change{Revision: 4, PolicyDeleted: true})
			w.Apply(instant(5500), protocol.Change{Revision: 5, Policy: p})
		}, 9000, quota.ShapeFixed},
		// Its views count for their settle time, three windows and twice the clock's error.
		{"a policy that was set soon after a sliding one", []quota.Limit{second}, time.Time{}, time.Time{}, func(w *share.Planner, p *quota.Policy) {
			w.Apply(instant(600), protocol.Change{Revision: 2, Policy: slid(p)})
			w.Apply(clock.Instant{Mono: instant(5449).Mono - 1, Wall: instant(5449).Wall - 1}, protocol.Change{Revision: 3, PolicyDeleted: true})
			w.Apply(instant(5500), protocol.Change{Revision: 4, Policy: p})
		}, 5449 + 600 + 3000 + 100, quota.ShapeFixed},
		// Under other shapes the windows before have to be out of reach: a window, the guard, two 500ths and twice the clock's error.
		{"a sliding limit", []quota.Limit{second}, time.Time{}, time.Time{}, nil, 2000 + 1124, quota.ShapeSliding},
		{"a bucket", []quota.Limit{second}, time.Time{}, after(2300), nil, 3000 + 1124, quota.ShapeBucket},
		{"the longest that slides", []quota.Limit{second, ten}, time.Time{}, time.Time{}, nil, 10_000 + 10_160, quota.ShapeSliding},
		{"starting over", []quota.Limit{second}, time.Time{}, time.Time{}, func(w *share.Planner, p *quota.Policy) {
			w.Reset(instant(7500), "a", protocol.View{Revision: 9, Policy: p, Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}}})
		}, 9000, quota.ShapeFixed},
	} {
		w := share.Planner{Clock: clock.Started(instant(0), nil)}
		p := plannerPolicy(quota.OutageHold)
		p.Limits, p.From, p.Shape = c.limits, c.from, c.shape
		if c.shape != quota.ShapeFixed {
			p.Guard = 20 * time.Millisecond
		}
		begin := int64(500)
		w.Reset(instant(begin), "a", protocol.View{Revision: 1, Policy: p, Instances: []protocol.Instance{{ID: "a", From: c.self}, {ID: "b"}}})
		if c.change != nil {
			c.change(&w, p)
			begin = 7600
		}
		for now := begin; now < c.want+1000; now += 50 {
			w.Prove(instant(now))
			w.Plan(instant(now))
			has := w.State(instant(now)) == quota.StateActive
			if has != (now >= c.want) {
				t.Fatalf("%s: at %d ms its state is %s", c.name, now, w.State(instant(now)))
			}
			if wall, ok := w.Begins(); !has && (!ok || wall != instant(c.want).Wall) {
				t.Fatalf("%s: at %d ms its share is to begin at %d ms (%v), want %d", c.name, now, (wall-planEpoch)/ms, ok, c.want)
			}
		}
	}
}

// What is foreseen before an instance has a share grows as it will: by the warm-up from when the share
// is to begin.
func TestAWarmUpIsForeseenBeforeItBegins(t *testing.T) {
	w := share.Planner{Clock: clock.Started(instant(0), nil)}
	p := plannerPolicy(quota.OutageHold)
	p.Limits, p.WarmUp = []quota.Limit{{Permits: 60, Window: time.Second}}, 4*time.Second
	w.Reset(instant(500), "a", protocol.View{Revision: 1, Policy: p, Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}}})
	w.Prove(instant(500))
	plan := w.Plan(instant(500))
	permits := func(p plans.Plan) int64 { return p.Limits[0].Permits }
	foreseen := map[int64]int64{}
	for at := int64(2000); at < 8000; at += 1000 {
		foreseen[at] = permits(w.Foresee(instant(at).Mono))
	}
	if permits(plan) != 0 || foreseen[2000] != 10 || foreseen[7000] != 30 {
		t.Errorf("a share of %d, and foreseen are %v", permits(plan), foreseen)
	}
	for at := int64(1000); at < 8000; at += 1000 {
		w.Prove(instant(at))
		if got := permits(w.Plan(instant(at))); got != foreseen[at] {
			t.Errorf("at %d ms a share of %d, foreseen was %d", at, got, foreseen[at])
		}
	}
}

// Once a shape has gone, shares grow as under fixed windows: in the window that runs, at the instant at which it goes, and
// whatever window comes later.
func TestAShapeThatHasGone(t *testing.T) {
	second, minute := quota.Limit{Permits: 10, Window: time.Second}, quota.Limit{Permits: 60, Window: time.Minute}
	planner := func(l quota.Limit) (w *share.Planner, p *quota.Policy, plan func(ms int64) plans.Plan) {
		w = &share.Planner{Clock: clock.Started(instant(0), nil)}
		p = plannerPolicy(quota.OutageHold)
		p.Limits = []quota.Limit{l}
		w.Reset(instant(500), "a", protocol.View{Revision: 1, Policy: p, Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}}})
		slid := p.Clone()
		slid.Shape = quota.ShapeSliding
		w.Apply(instant(600), protocol.Change{Revision: 2, Policy: &slid})
		w.Apply(instant(700), protocol.Change{Revision: 3, Policy: p})
		return w, p, func(ms int64) plans.Plan {
			w.Prove(instant(ms))
			return w.Plan(instant(ms))
		}
	}
	set := func(w *share.Planner, p *quota.Policy, ms int64, limits ...quota.Limit) {
		next := p.Clone()
		next.Limits = limits
		w.Apply(instant(ms), protocol.Change{Revision: 4, Policy: &next})
	}

	w, p, plan := planner(minute)
	gone := int64(700 + 600 + 3*60_000 + 100) // the settle time, three windows, and twice the clock's error
	if until := plan(gone - 500).Until; until > instant(gone).Mono+1 {
		t.Errorf("the plan of before holds until %d ms, and the shape goes at %d ms", until/ms, gone)
	}
	plan(gone + 500)
	set(w, p, gone+1000, quota.Limit{Permits: 120, Window: time.Minute})
	if l := plan(gone + 1100).Limits[0]; l.Permits != 60 {
		t.Errorf("a share of %d in the window in which the shape has gone, want 60", l.Permits)
	}

	w, p, plan = planner(second)
	if s := plan(4000).Shape; !s.Sliding {
		t.Error("the shape has gone before its time")
	}
	plan(5000)
	set(w, p, 6000, second, minute)
	if s := plan(6100).Shape; s.Any() {
		t.Errorf("a longer window brings the shape back: %+v", s)
	}
}
