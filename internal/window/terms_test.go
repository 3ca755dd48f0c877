package window

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

func TestNothingIsIssuedWithinTheGuard(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 5})
	f.plan.Guard = int64(100 * time.Millisecond)
	var told told
	g := gateOf(f, 0, told.decided)
	g.Changed(at(0))
	for _, step := range []struct {
		at   time.Duration
		want bool
	}{{0, false}, {99 * time.Millisecond, false}, {100 * time.Millisecond, true}, {899 * time.Millisecond, true},
		{900 * time.Millisecond, false}, {second, false}, {1100 * time.Millisecond, true}} {
		if _, got := take(g, at(step.at), 1); got != step.want {
			t.Errorf("at %v: granted %v, want %v", step.at, got, step.want)
		}
	}
	if _, v := g.Enter(at(1950*time.Millisecond), &queue.Waiter{Payload: "early"}, 1, int64(2099*time.Millisecond), queue.Default); v != queue.Limited {
		t.Errorf("who cannot wait until the guard ends: verdict %d, want Limited", v)
	}
	if _, v := g.Enter(at(1950*time.Millisecond), &queue.Waiter{Payload: "w"}, 1, int64(2100*time.Millisecond), queue.Default); v != queue.Queued {
		t.Errorf("verdict %d, want Queued", v)
	}
	g.Tick(clock.Instant{Mono: g.Wake()})
	g.Tick(clock.Instant{Mono: g.Wake()})
	if diff := cmp.Diff([]string{"w@2s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStrictStopsAtTheEndOfTheProofByEitherClock(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	f.plan.Proof.Strict, f.plan.Proof.Until, f.plan.Proof.WallUntil = true, int64(300*time.Millisecond), int64(300*time.Millisecond)
	f.plan.Proof.Lead = clock.Forever
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	take := func(mono, wall time.Duration) bool {
		_, ok := take(g, clock.Instant{Mono: int64(mono), Wall: int64(wall)}, 1)
		return ok
	}
	const ms = time.Millisecond
	if !take(299*ms, 299*ms) {
		t.Error("refused although the proof was young enough")
	}
	if take(299*ms, 300*ms) {
		t.Error("the monotonic clock stood still, as in a suspended machine, and the old proof was used")
	}
	if take(310*ms, 200*ms) {
		t.Error("the wall clock was set back, and the old proof was used")
	}
	f.set(func() { f.plan.Proof.Until, f.plan.Proof.WallUntil = int64(600*ms), int64(600*ms) })
	g.Proved(at(320 * ms))
	if !take(330*ms, 330*ms) {
		t.Error("a new proof did not end the stop")
	}
	f.set(func() { f.plan.Proof.Until, f.plan.Proof.WallUntil = int64(900*ms), int64(900*ms) })
	g.Proved(at(400 * ms))
	if !take(700*ms, 700*ms) {
		t.Error("a newer proof did not reach the running segment")
	}
	if take(950*ms, 950*ms) {
		t.Error("issued after the last proof")
	}
}

func TestStrictStopsWhileCorrectedTimeCannotBeReliedOn(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	f.plan.Proof.Strict, f.plan.Proof.Lead = true, int64(25*time.Millisecond)
	f.plan.Proof.Until, f.plan.Proof.WallUntil = clock.Forever, clock.Forever
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	const ms = time.Millisecond
	for _, step := range []struct {
		mono, wall time.Duration
		want       bool
	}{{1 * ms, 1 * ms, true}, {2 * ms, 27 * ms, true}, {3 * ms, 29 * ms, false}, {4 * ms, 3600 * second, false}} {
		i := clock.Instant{Mono: int64(step.mono), Wall: int64(step.wall)}
		if got := g.Segment().WallValid(i) && g.Segment().Take(i.Mono, 1, queue.Default); got != step.want {
			t.Errorf("without the lock, %v by one clock and %v by the other: granted %v, want %v", step.mono, step.wall, got, step.want)
		}
		if _, got := take(g, i, 1); got != step.want {
			t.Errorf("%v by one clock and %v by the other: granted %v, want %v", step.mono, step.wall, got, step.want)
		}
	}
	f.set(func() { f.plan.Proof.Lead = int64(3601 * second) }) // corrected time was looked after
	i := clock.Instant{Mono: int64(5 * ms), Wall: int64(3600 * second)}
	g.Proved(i)
	if _, ok := take(g, i, 1); !ok {
		t.Error("nothing is issued although time can be relied on again")
	}
}

// Callers who are refused come again at once: each rebuild would take the gate's lock, and seal the segment that others
// look at.
func TestAStopIsNotBegunAnewForEachCallAfterTheClockWasSet(t *testing.T) {
	f := newFixed(map[time.Duration]int64{60 * second: 100})
	f.plan.Proof.Strict, f.plan.Proof.Lead = true, int64(25*time.Millisecond)
	f.plan.Proof.Until, f.plan.Proof.WallUntil = int64(second), int64(second)
	g := gateOf(f, 0, nil)
	g.Changed(at(second)) // the proof is over
	stopped := g.Segment()
	for i := range 3 {
		if _, ok := take(g, clock.Instant{Mono: int64(2*second) + int64(i), Wall: int64(3 * second)}, 1); ok {
			t.Fatal("issued without a proof")
		}
		if g.Segment() != stopped {
			t.Fatalf("call %d after the clock was set ahead by a second had the gate begin another segment", i)
		}
	}
}

func TestShutUntil(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 1})
	f.shutUntil = int64(1500 * time.Millisecond)
	var told told
	g := gateOf(f, 0, told.decided)
	g.Changed(at(0))
	if _, v := g.Enter(at(1), &queue.Waiter{Payload: "short"}, 1, int64(1400*time.Millisecond), queue.Default); v != queue.Limited {
		t.Errorf("verdict %d, want Limited", v)
	}
	g.Enter(at(1), &queue.Waiter{Payload: "w"}, 1, int64(1500*time.Millisecond), queue.Default)
	for g.Wake() != clock.Forever {
		g.Tick(clock.Instant{Mono: g.Wake()})
	}
	if diff := cmp.Diff([]string{"w@1s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
