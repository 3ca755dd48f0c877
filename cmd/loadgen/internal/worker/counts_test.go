package worker

import (
	"context"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// Three limiters that each believe they are alone keep their shape, and the fleet
// does not: the spans tell.
func TestAFleetThatDoesNotShareAShapeIsCaught(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeSliding, quota.ShapeBucket} {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: 50, Window: quota.MinWindow}}, Release: quota.Release{Shape: shape}}
		s := sharedOf(t, "--limit 50/100ms --instances 3 --max-wait 20ms --shape "+string(shape))
		g := s.generator()
		for i := range 3 {
			l, err := consumer.Open(context.Background(), consumer.Fixed(policy), "p", consumer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			g.add(&member{limiter: fleetLimiter{l, nil}, calls: load.NewProcess(load.Steady, 1, i, 3), slot: i})
		}
		start := quota.WindowAt(quota.MinWindow, time.Now().UnixNano()).End()
		end := start + 8*int64(quota.MinWindow)
		s.stop.Store(end)
		g.run()
		answered(t, g)
		judged := load.Run{
			Counts: g.tally.Counts(), Fleet: 3, Active: start, Start: start, End: end,
			Shape:    s.c.Spans(0),
			Timeline: load.Timeline{Settle: quota.DefaultSettle, Changes: []load.Change{{Limits: policy.Limits}}},
		}
		_, summary, verdict := load.Judge(judged)
		if verdict != load.NotHeld || summary.Spans.Over == 0 || summary.Spans.MaxOverRatio <= 1 {
			t.Errorf("%s: %q, %+v, %+v", shape, verdict, summary.Spans, summary.Spans.Worst)
		}
	}
}

// Three limiters that each believe they are alone issue three times the limit.
// Their own counters see nothing wrong; the generator's counts must.
func TestAFleetThatDoesNotShareIsCaught(t *testing.T) {
	limits := []quota.Limit{{Permits: 50, Window: quota.MinWindow}}
	s := sharedOf(t, "--limit 50/100ms --instances 3 --max-wait 20ms")
	g := s.generator()
	for i := range 3 {
		l, err := consumer.Open(context.Background(), consumer.Fixed(quota.Policy{Limits: limits}), "p", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		g.add(&member{limiter: fleetLimiter{l, nil}, calls: load.NewProcess(load.Steady, 1, i, 3), slot: i})
	}
	start := quota.WindowAt(quota.MinWindow, time.Now().UnixNano()).End()
	end := start + 5*int64(quota.MinWindow)
	s.stop.Store(end)
	g.run()
	answered(t, g)
	windows, summary, verdict := load.Judge(load.Run{
		Counts: g.tally.Counts(), Fleet: 3, Active: start, Start: start, End: end,
		Timeline: load.Timeline{Settle: quota.DefaultSettle, Changes: []load.Change{{Limits: limits}}},
	})
	if verdict != load.NotHeld || summary.OverLimitWindows == 0 || summary.MaxOverRatio <= 1 {
		t.Errorf("%q, %+v\n%+v", verdict, summary, windows)
	}
}

// What the generator counts is what the limiters issued.
func TestCountsAreComplete(t *testing.T) {
	limits := []quota.Limit{{Permits: 1000, Window: quota.MinWindow}}
	s := sharedOf(t, "--limit 1000/100ms --instances 1 --demand 2")
	s.stop.Store(time.Now().Add(500 * time.Millisecond).UnixNano())
	g := s.generator()
	l, err := consumer.Open(context.Background(), consumer.Fixed(quota.Policy{Limits: limits}), "p", consumer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g.add(&member{limiter: fleetLimiter{l, nil}, calls: load.NewProcess(load.Poisson, 1, 0, 1)})
	g.run()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	answered(t, g)
	var issued, offered int64
	for _, c := range g.tally.Counts() {
		issued += c.Issued
		offered += c.Offered
	}
	if want := l.Status().Issued; issued != want || issued != g.issued.Load() {
		t.Errorf("counted %d and %d, the limiter issued %d", issued, g.issued.Load(), want)
	}
	if offered < issued {
		t.Errorf("%d calls for %d permits", offered, issued)
	}
}

// answered returns when no call of the generator waits any more.
func answered(t *testing.T, g *generator) {
	t.Helper()
	await.Until(t, "no call waits", func() bool { return g.waiting.Load() == 0 })
}
