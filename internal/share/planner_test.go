package share_test

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

const planEpoch = 28_333_334 * int64(time.Minute)

// at is a reading of two clocks that run together.
func instant(t int64) clock.Instant {
	return clock.Instant{Mono: t * int64(time.Millisecond), Wall: planEpoch + t*int64(time.Millisecond)}
}

func plannerPolicy(rule quota.Outage) *quota.Policy {
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Outage: rule,
		Timing: quota.Timing{Settle: 600 * time.Millisecond, Freshness: 400 * time.Millisecond}}.WithDefaults()
	return &p
}

// TestProof steps through a proof's life by both clocks and both rules.
func TestProof(t *testing.T) {
	for _, rule := range []quota.Outage{quota.OutageStop, quota.OutageHold} {
		w := share.Planner{Clock: clock.Started(instant(0), nil)}
		if plan := w.Plan(instant(0)); plan.Known || plan.Hopeless || len(plan.Limits) > 0 {
			t.Errorf("%s: before anything is known: %+v", rule, plan)
		}
		w.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: plannerPolicy(rule), Instances: []protocol.Instance{{ID: "a"}}})
		if proof := w.Plan(instant(10)).Proof; !proof.Strict || proof.Until != math.MinInt64 {
			t.Errorf("%s: without a proof permits may be issued until %d", rule, proof.Until)
		}
		if !w.Prove(instant(100)) {
			t.Errorf("%s: the first proof changes nothing", rule)
		}
		if w.Prove(instant(90)) {
			t.Errorf("%s: an older proof changes something", rule)
		}
		proof := w.Plan(instant(200)).Proof
		if rule == quota.OutageStop {
			if proof.Until != 500*ms || proof.WallUntil != planEpoch+500*ms {
				t.Errorf("stop: until %d and %d", proof.Until, proof.WallUntil)
			}
			continue
		}
		if proof.Strict {
			t.Error("hold: strict with a proof")
		}
		if w.Prove(instant(200)) {
			t.Error("hold: a newer proof changes shares while the view is fresh")
		}
		w.Plan(instant(601))
		if !w.Prove(instant(602)) {
			t.Error("hold: the proof that ends an outage changes nothing")
		}
	}
}

// TestHoldNeverGrows: another instance leaves, the proof ends, and the share
// stays what it was, however long that lasts; the next proof lets it grow.
func TestHoldNeverGrows(t *testing.T) {
	w := share.Planner{Clock: clock.Started(instant(0), nil)}
	w.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: plannerPolicy(quota.OutageHold), Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}}})
	w.Prove(instant(2100))
	w.Apply(instant(2050), protocol.Change{Revision: 2, Deleted: []string{"b"}})
	check := func(now, want int64) {
		t.Helper()
		if l := w.Plan(instant(now)).Limits; len(l) != 1 || l[0].Permits != want {
			t.Errorf("after %d ms: %+v, want %d permits", now, l, want)
		}
	}
	for _, now := range []int64{3000, 60_000, 600_000} {
		check(now, 5)
	}
	w.Prove(instant(600_000))
	check(600_000, 10)
}

// TestAGainIsHeldBackForTheReach: under shape sliding a share grows when no span
// touches a window of before: a window's length, two slots, twice the clock error
// and the guard after the first window of the gain began.
func TestAGainIsHeldBackForTheReach(t *testing.T) {
	for _, c := range []struct{ guard, clockErr, want time.Duration }{
		{0, 50 * time.Millisecond, 3104 * time.Millisecond},
		{0, 80 * time.Millisecond, 3164 * time.Millisecond},
		{20 * time.Millisecond, 50 * time.Millisecond, 3124 * time.Millisecond},
	} {
		p := plannerPolicy(quota.OutageHold)
		p.Shape, p.Settle, p.Guard, p.ClockError = quota.ShapeSliding, time.Second, c.guard, c.clockErr
		w := share.Planner{Clock: clock.Started(instant(0), nil)}
		w.Reset(instant(-10_000), "a", protocol.View{Revision: 1, Policy: p, Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}}})
		w.Prove(instant(1 << 40))
		w.Apply(instant(900), protocol.Change{Revision: 2, Deleted: []string{"b"}}) // the window of 2 s is the first to gain
		plan, now := w.Plan(instant(901)), 901*ms
		for plan.Limits[0].Permits == 5 && now < 10_000*ms {
			now = plan.Until
			plan = w.Foresee(now)
		}
		if n := w.Foresee(int64(c.want) - 1).Limits[0].Permits; n != 5 {
			t.Errorf("guard %v, clock error %v: %d permits before %v, want 5", c.guard, c.clockErr, n, c.want)
		}
		if time.Duration(now) != c.want || plan.Limits[0].Permits != 10 {
			t.Errorf("guard %v, clock error %v: %d permits from %v on, want 10 from %v on", c.guard, c.clockErr, plan.Limits[0].Permits, time.Duration(now), c.want)
		}
	}
}

// TestAForecastGoesByThePlansOffset: one reading of the clock's offset serves a plan
// and all that is foreseen from it, though the clock steps meanwhile.
func TestAForecastGoesByThePlansOffset(t *testing.T) {
	w := share.Planner{Clock: clock.Started(instant(0), nil)}
	w.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: plannerPolicy(quota.OutageHold), Instances: []protocol.Instance{{ID: "a"}}})
	w.Prove(instant(1 << 40))
	const now = 9_000 * ms
	before := w.Plan(instant(now / ms))
	w.Clock.Observe(clock.Instant{Mono: now + ms, Wall: planEpoch + now + 300*ms})
	if w.Clock.Offset() == before.Offset {
		t.Fatal("the clock has not stepped")
	}
	after := w.Foresee(now)
	if after.Offset != before.Offset || after.Until != before.Until || after.Limits[0] != before.Limits[0] {
		t.Errorf("foreseen %+v, want %+v", after, before)
	}
}

// A guard takes nothing from limits that have no edges, nor from the seconds beside them that bind nobody, and nothing
// from the limits that replace them; of an hour it takes the first and the last of it.
func TestAGuardTakesEdgesAlone(t *testing.T) {
	const hour, guard = 3600_000 * ms, 10_000 * ms
	day := (planEpoch/hour + 1) * hour
	for _, test := range []struct{ limits, keys string }{{"5000/h sliding", ""}, {"20 inflight hold=10m", ""}, {"5000/h sliding", "500/h sliding"}, {"5000/h", ""}, {"5000/h sliding", "500/h"}} {
		p := quota.Policy{Timing: quota.Timing{Guard: time.Duration(guard)}}
		var err error
		if p.Limits, err = quota.ParseLimits(test.limits); err != nil {
			t.Fatal(err)
		}
		if test.keys != "" {
			if p.Keys.Limits, err = quota.ParseLimits(test.keys); err != nil {
				t.Fatal(err)
			}
		}
		p = p.WithDefaults()
		w := share.Planner{Clock: clock.Started(instant(0), nil)}
		w.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: &p, Instances: []protocol.Instance{{ID: "a"}}})
		w.Prove(instant(1 << 40))
		w.Plan(instant(7))
		for _, at := range []struct {
			offset int64 // to the hour
			edge   bool
		}{{-guard - 1, false}, {-guard, true}, {-500 * ms, true}, {0, true}, {guard - 1, true}, {guard, false}, {guard + 1300*ms, false}, {guard + 1999*ms, false}} {
			plan := w.Foresee(day + at.offset - planEpoch)
			if shut := at.edge && test.limits == "5000/h"; plan.Shut != shut {
				t.Errorf("%v: shut %v at %v from the hour", test, plan.Shut, time.Duration(at.offset))
			}
			if shut := at.edge && test.keys == "500/h"; plan.Keys != nil && plan.Keys.Shut != shut {
				t.Errorf("%v: keys are shut %v at %v from the hour", test, plan.Keys.Shut, time.Duration(at.offset))
			}
		}
		w.Apply(instant(20_000), protocol.Change{Revision: 2, Policy: plannerPolicy(quota.OutageHold)})
		for now := 20_000 * ms; now < 26_000*ms; now += 100 * ms {
			if plan := w.Foresee(now); plan.Shut {
				t.Errorf("%v: shut at %v, after a change", test, time.Duration(now))
			}
		}
	}
}

// TestAPlanEnds: while a policy is known no plan is for ever, also where the
// policy is not in force yet, and none ends before it begins.
func TestAPlanEnds(t *testing.T) {
	ahead := plannerPolicy(quota.OutageHold)
	ahead.From = time.Unix(0, planEpoch+6_300*ms)
	guarded := plannerPolicy(quota.OutageStop)
	guarded.Guard = 20 * time.Millisecond
	sliding := plannerPolicy(quota.OutageHold)
	sliding.Shape, sliding.Settle = quota.ShapeSliding, time.Second
	for _, p := range []*quota.Policy{ahead, guarded, sliding} {
		w := share.Planner{Clock: clock.Started(instant(0), nil)}
		w.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: p, Instances: []protocol.Instance{{ID: "a"}}})
		w.Prove(instant(1 << 40))
		w.PauseUntil(3_500*ms, false)
		plan, now := w.Plan(instant(7)), 7*ms
		for ; now < 12_000*ms; plan = w.Foresee(now) {
			if plan.Until <= now || plan.Until > now+int64(time.Second) {
				t.Fatalf("%+v: the plan of %d ends at %d", p, now, plan.Until)
			}
			if (now < 3_500*ms) != plan.Shut && plan.Guard == 0 {
				t.Errorf("at %d: shut %v during a pause until 3.5 s", now, plan.Shut)
			}
			now = plan.Until
		}
		if last := w.Foresee(now - 1); len(last.Limits) != 1 || last.Limits[0].Permits != 10 {
			t.Errorf("after the policy's beginning: %+v", last)
		}
	}
}

// Whatever stands in etcd, at most all of a share is kept for critical calls.
func TestWhatIsKeptIsAPart(t *testing.T) {
	for kept, want := range map[int64]int64{10: 10, -1: 0, 1 << 62: 100} {
		p := plannerPolicy(quota.OutageHold)
		p.Critical = kept
		w := share.Planner{Clock: clock.Started(instant(0), nil)}
		w.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: p, Instances: []protocol.Instance{{ID: "a"}}})
		if got := w.Plan(instant(7)).Critical; got != want {
			t.Errorf("%d percent: %d in the plan, want %d", kept, got, want)
		}
	}
}

// A planner forgets no view that a window may look back to, with the longest settle time
// and the longest window.
func TestNothingIsForgottenThatCounts(t *testing.T) {
	length, settle := int64(quota.MaxWindow/time.Millisecond), int64(quota.MaxSettle/time.Millisecond)
	p := *plannerPolicy(quota.OutageStop)
	p.Limits, p.Settle, p.Freshness = []quota.Limit{{Permits: 10, Window: quota.MaxWindow}}, quota.MaxSettle, time.Second
	w := share.Planner{Clock: clock.Started(instant(0), nil)}
	w.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: &p, Instances: []protocol.Instance{{ID: "a"}}})
	start := 2*settle + 2*length
	start -= start % length
	seen := start - settle + length/4 // within the window's lookback
	w.Apply(instant(seen), protocol.Change{Revision: 2, Put: []protocol.Instance{{ID: "b"}}})
	now := start + length/2
	w.Apply(instant(now), protocol.Change{Revision: 3, Deleted: []string{"b"}})
	w.Prove(instant(now))
	if l := w.Plan(instant(now)).Limits; len(l) != 1 || l[0].Permits != 5 {
		t.Errorf("%+v, want 5 permits of the view with two", l)
	}
}
