package window

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// TestWhatComesBackIsCountedAsAnew: permits that come back into the segment that runs leave as many as a gate has that
// counts anew after each of them, and as much is booked; by short limits, a long one, and one in flight, and where some are
// kept for critical calls.
func TestWhatComesBackIsCountedAsAnew(t *testing.T) {
	t.Parallel()
	inPlace := 0
	rapid.Check(t, func(t *rapid.T) {
		long := rapid.SampledFrom([]quota.Limit{{}, {Permits: 30, Window: time.Hour}, {Permits: 8, Window: 4 * time.Minute, InFlight: true}}).Draw(t, "long")
		share := rapid.Int64Range(0, 12).Draw(t, "share")
		critical := rapid.SampledFrom([]int64{0, 0, 0, 30}).Draw(t, "critical")
		var gates [2]*Gate
		var booked [2][]Use
		for i := range gates {
			f := newFixed(map[time.Duration]int64{second: share, 4 * second: 3 * share})
			f.long, f.whole = long, true
			f.plan.Critical = critical
			gates[i] = gateOf(f, 0, func(*queue.Waiter, queue.Grant, queue.Verdict) {})
			gates[i].Booked = func(all []Use) { booked[i] = all }
			gates[i].Changed(at(0))
		}
		type permit struct {
			grant [2]queue.Grant
			n     int64
		}
		var out []permit
		now := clock.Instant{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now.Mono += rapid.Int64Range(0, int64(400*time.Millisecond)).Draw(t, "later")
			now.Wall = now.Mono
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what < 5 || len(out) == 0:
				p := permit{n: rapid.Int64Range(1, 4).Draw(t, "n")}
				var ok [2]bool
				for i, g := range gates {
					p.grant[i], ok[i] = take(g, now, p.n)
				}
				if ok[0] != ok[1] {
					t.Fatalf("a call for %d: %v, and %v where all is counted anew", p.n, ok[0], ok[1])
				}
				if ok[0] {
					out = append(out, p)
				}
			default:
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				p, actual := out[i], int64(0)
				if out = append(out[:i], out[i+1:]...); what < 8 {
					actual = rapid.Int64Range(0, p.n+1).Draw(t, "actual")
				}
				was, serial := gates[0].Segment(), serials.Add(1)
				var back [2]bool
				for i, g := range gates {
					_, back[i] = g.Correct(now, p.grant[i], serial, p.n, actual)
				}
				if back[0] != back[1] {
					t.Fatalf("%d of %d come back: %v, and %v where all is counted anew", p.n-actual, p.n, back[0], back[1])
				}
				if back[0] && gates[0].Segment() == was {
					inPlace++
				}
				g := gates[1]
				g.mu.Lock()
				g.settleLocked()
				g.rebuildLocked(now)
				g.mu.Unlock()
				if diff := cmp.Diff(booked[0], booked[1]); diff != "" && actual != p.n {
					t.Fatalf("what is told of what is booked, and where all is counted anew: %s", diff)
				}
			}
			one, other := gates[0], gates[1]
			if one.Segment().Left() != other.Segment().Left() {
				t.Fatalf("%d are left, and %d where all is counted anew", one.Segment().Left(), other.Segment().Left())
			}
			if diff := cmp.Diff(one.Usage(now), other.Usage(now)); diff != "" || one.Usage(now).OverIssued > 0 {
				t.Fatalf("the use, and where all is counted anew: %s", diff)
			}
		}
	})
	if inPlace == 0 {
		t.Error("nothing came back into a segment that ran")
	}
	t.Logf("%d came back into a segment that ran", inPlace)
}

// TestWhatComesBackMayHaveToBeCountedAnew: what comes back goes into the segment that runs only if that says all of it.
func TestWhatComesBackMayHaveToBeCountedAnew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		inPlace bool
		plan    func(f *fixed)
		before  func(g *Gate)
	}{
		{"nothing else changes", true, func(*fixed) {}, func(*Gate) {}},
		{"a call waits", false, func(*fixed) {}, func(g *Gate) { g.Enter(at(2), &queue.Waiter{}, 100, int64(2*second), queue.Default) }},
		{"a debt is owed", false, func(*fixed) {}, func(g *Gate) { owe(g, at(2), 130) }},
		{"permits come along the window", false, func(f *fixed) { f.plan.Pacing.Even = true }, func(*Gate) {}},
		{"permits of other windows count", false, func(f *fixed) { f.plan.Shape.Sliding = true }, func(*Gate) {}},
		{"some are kept for critical calls", false, func(f *fixed) { f.plan.Critical = 20 }, func(*Gate) {}},
	} {
		f := newFixed(map[time.Duration]int64{second: 100})
		c.plan(f)
		g := gateOf(f, 0, func(*queue.Waiter, queue.Grant, queue.Verdict) {})
		g.Changed(at(0))
		now := at(second / 2)
		grant, ok := take(g, now, 1)
		c.before(g)
		was := g.Segment()
		if _, back := g.Correct(now, grant, serials.Add(1), 1, 0); !ok || !back || (g.Segment() == was) != c.inPlace {
			t.Errorf("%s: issued %v, back %v, in the segment that ran %v, want %v", c.what, ok, back, g.Segment() == was, c.inPlace)
		}
	}
}

// What a large call gives back is not taken off the small calls that come, nor off what the instance has used of its share.
func TestALargeCallThatCostsLess(t *testing.T) {
	t.Parallel()
	for kind, line := range lines(100, map[time.Duration]int64{second: 20}) {
		line.tick(0)
		var back func()
		switch l := line.(type) {
		case *gateLine:
			l.gate.decided = func(_ *queue.Waiter, grant queue.Grant, _ queue.Verdict) {
				back = func() { l.gate.Correct(at(30*ms), grant, serials.Add(1), 35, 10) }
			}
			line.enter(10*ms, 35)
			l.gate.Borrow(at(20*ms), "host", protocol.Note{Windows: l.gate.mu.ledger.windows.Running, Permits: map[string]int64{"": 40}})
		case *keyLine:
			line.enter(10*ms, 35)
			l.use.Borrow("host", l.use.windows.Running, 40, func(quota.Window) int64 { return 100 })
			line.tick(20 * ms)
			l.use.Called(35, queue.Default, true)
			back = func() { l.use.Refund(25, l.use.Epoch(), true) }
		}
		if back == nil || trade(line).claim.issued != 35 {
			t.Fatalf("%s: it is not served", kind)
		}
		trade(line).claim.stood = 0
		line.ask(25 * ms)
		before := trade(line).small().Seen()
		back()
		for now := 100 * ms; now < 200*ms; now += 10 * ms {
			if line.upTo(now, 1) != 1 {
				t.Fatalf("%s: a small call waits", kind)
			}
		}
		line.ask(200 * ms)
		a := &Account{}
		switch l := line.(type) {
		case *gateLine:
			a = &l.gate.mu.ledger.Account
		case *keyLine:
			a = &l.use
		}
		s, taken := a.scene(plans.Fleet{Total: 100, Instances: 10, Owners: 10}, 0, int64(200*ms)), int64(0)
		if l, ok := line.(*gateLine); ok {
			taken = l.gate.takenLocked()
		}
		if seen, own := trade(line).small().Seen()-before, trade(line).ownIssued(&s, taken); seen != 10 || own != 10 {
			t.Errorf("%s: %v small calls are seen, and %d permits of the share are issued, want 10 and 10", kind, seen, own)
		}
	}
}

// A large call under a limit in flight that has ended was made: what was issued for it counts in the window as before.
func TestALargeCallInFlightThatHasEnded(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 20})
	f.total, f.instances, f.whole = 100, 10, true
	f.long = quota.Limit{Permits: 80, Window: 4 * time.Minute, InFlight: true}
	g, _ := lender(f)
	var grant queue.Grant
	g.decided = func(_ *queue.Waiter, of queue.Grant, _ queue.Verdict) { grant = of }
	g.Changed(at(0))
	g.Enter(at(10*ms), new(queue.Waiter), 35, clock.Forever, queue.Default)
	g.Borrow(at(20*ms), "host", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 40}})
	if !grant.Large() || !grant.InFlight() {
		t.Fatalf("%+v", grant)
	}
	if _, back := g.Correct(at(30*ms), grant, serials.Add(1), 35, 0); !back {
		t.Error("it has not ended")
	}
	if c := &g.mu.borrower.claim; c.larges != 35 || c.issued != 35 {
		t.Errorf("%d permits of large calls are counted, and %d in the window", c.larges, c.issued)
	}
}
