package window

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// paced returns a gate that lends and borrows, of one of some instances with equal shares of a window that are paced.
func paced(window time.Duration, share int64, instances int) (*fixed, *Gate, *told) {
	f := newFixed(map[time.Duration]int64{window: share})
	f.total, f.instances = share*int64(instances), instances
	f.plan.Pacing.Even = true
	g, _ := lender(f)
	told := &told{}
	g.decided = told.decided
	g.Changed(at(0))
	return f, g, told
}

// Under pacing a large call is served as soon as the window has its permits, but not without a proof, nor before a
// debt is paid. What it leaves of the window then comes evenly.
func TestALargeCallUnderPacing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fixed, g *Gate)
		want   []string
	}{
		"it has them":             {func(*fixed, *Gate) {}, []string{"large@0s"}},
		"they are too few":        {func(f *fixed, _ *Gate) { f.shares[second] = 20 }, nil},
		"there is no proof":       {func(f *fixed, _ *Gate) { f.plan.Proof = plans.Proof{Strict: true, Until: 1, WallUntil: 1} }, nil},
		"it owes":                 {func(_ *fixed, g *Gate) { owe(g, at(150*ms), 5) }, nil},
		"the provider is to rest": {func(f *fixed, _ *Gate) { f.shutUntil = int64(300 * ms) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, g, told := paced(second, 30, 2)
			if _, v := g.Enter(at(100*ms), &queue.Waiter{Payload: "large"}, 50, clock.Forever, queue.Default); v != queue.Queued {
				t.Fatalf("verdict %d", v)
			}
			c.change(f, g)
			g.Changed(at(160 * ms))
			g.Borrow(at(200*ms), "h", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 25}})
			if diff := cmp.Diff(c.want, told.take()); diff != "" {
				t.Fatalf("told (-want +got):\n%s", diff)
			}
			if c.want == nil {
				return
			}
			var came []int64
			for now := 200 * ms; now < second; now += 200 * ms {
				came = append(came, upTo(g, at(now), 99))
			}
			if diff := cmp.Diff([]int64{0, 1, 1, 1}, came); diff != "" {
				t.Errorf("of the 5 that it leaves, in each 200 ms (-want +got):\n%s", diff)
			}
			if u := g.Usage(at(990 * ms)); u.OverIssued != 0 || u.Limits[0].Left != 0 && upTo(g, at(990*ms), 99) != u.Limits[0].Left {
				t.Errorf("%+v", u)
			}
		})
	}
}

// Small calls have left a large one some of their permits. Under pacing too it takes no more of these than small ones
// lose, by all the permits of the window: that pacing has not released them yet loses small ones nothing.
func TestALargeCallUnderPacingTakesWhatSmallOnesLose(t *testing.T) {
	for _, c := range []struct {
		more, took int64 // it wants so many more than small calls leave over
		fits       bool
	}{{-9, 0, true}, {0, 0, true}, {3, 3, true}, {4, 4, true}, {5, 0, false}} {
		_, g, _ := paced(second, 70, 2)
		if _, v := g.Enter(at(ms), &queue.Waiter{}, 120, clock.Forever, queue.Default); v != queue.Queued {
			t.Fatalf("verdict %d", v)
		}
		for now := 10 * ms; now <= 200*ms; now += 10 * ms {
			g.Changed(at(now))
		}
		claim := &g.mu.borrower.claim
		claim.stood, claim.left, claim.small = -9, 4, &lending.Flow{}
		for now := range 21 { // small calls come, one each 50 ms
			claim.small.Look(float64(now*10), float64(now)/5)
		}
		l := g.lineLocked()
		l.Begin()
		n := l.unpaced - l.smallWant() + c.more
		if fits := l.Fits(n, 0, queue.Default, true); l.smallWant() < 8 || l.room >= l.unpaced/2 || fits != c.fits {
			t.Fatalf("%+v: small calls want %d of %d, of which %d are released; %d fit: %v", c, l.smallWant(), l.unpaced, l.room, n, fits)
		}
		if c.fits {
			l.Served(g.mu.queue.Head(), n, true)
		}
		if took := 4 - claim.left; took != c.took {
			t.Errorf("%+v: %d of what small calls have left are taken", c, took)
		}
	}
}

// Under pacing nobody passes a small call that waits behind a large one: what is released adds up until it has enough.
func TestNobodyPassesASmallCallUnderPacing(t *testing.T) {
	_, g, told := paced(second, 100, 2)
	enter := func(now time.Duration, name string, n int64) {
		t.Helper()
		if _, v := g.Enter(at(now), &queue.Waiter{Payload: name}, n, clock.Forever, queue.Default); v != queue.Queued {
			t.Fatalf("%s at %v: verdict %d", name, now, v)
		}
	}
	enter(10*ms, "large", 150)
	upTo(g, at(150*ms), 99) // its claim is over
	enter(151*ms, "small", 20)
	var served []string
	for now := 155 * ms; now < 500*ms && len(served) == 0; now += 5 * ms {
		enter(now, "one", 1)
		served = told.take()
		if len(served) > 0 && (now < 340*ms || now > 380*ms) {
			t.Errorf("served at %v, want about 0.2 s after the first", now)
		}
	}
	if diff := cmp.Diff([]string{"small@0s"}, served); diff != "" {
		t.Errorf("who is served first (-want +got):\n%s", diff)
	}
}

// What lies in the segment for those that pass a large call is not held for a call of a higher class besides.
func TestAHigherClassBesideALargeCallUnderPacing(t *testing.T) {
	_, g, _ := paced(second, 10, 10)
	if _, v := g.Enter(at(100*ms), &queue.Waiter{}, 50, clock.Forever, queue.Sheddable); v != queue.Queued {
		t.Fatalf("verdict %d", v)
	}
	g.Changed(at(800 * ms)) // its claim is over
	if n := g.Segment().left.Load(); n < 6 {
		t.Fatalf("%d permits lie in the segment, want what is due", n)
	}
	for _, c := range []struct {
		n    int64
		want queue.Verdict
	}{{10, queue.Paced}, {6, queue.Granted}, {6, queue.Limited}} {
		if _, v := g.Enter(at(810*ms), nil, c.n, 0, queue.Critical); v != c.want {
			t.Errorf("a critical call for %d: verdict %d, want %d", c.n, v, c.want)
		}
	}
	if u := g.Usage(at(820 * ms)); u.OverIssued != 0 || u.Issued != 6 {
		t.Errorf("%d issued, %d over", u.Issued, u.OverIssued)
	}
}

// A large call that finds nobody waiting is served at once of what pacing has not released yet, also if all that it has
// released is gone.
func TestALargeCallIsServedAtOnceOfWhatPacingHolds(t *testing.T) {
	_, g, told := paced(10*second, 300, 2)
	if n := g.Borrow(at(15*ms), "host", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 100}}); n != 100 {
		t.Fatalf("%d are borrowed", n)
	}
	upTo(g, at(30*ms), 400)
	if left := g.Segment().Left(); left != 0 {
		t.Fatalf("%d left", left)
	}
	g.Enter(at(30*ms), &queue.Waiter{Payload: "large"}, 305, int64(second), queue.Critical)
	if diff := cmp.Diff([]string{"large@0s"}, told.take()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
