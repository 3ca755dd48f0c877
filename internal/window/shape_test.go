package window

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	sliding = shape.Shape{Sliding: true, Unaligned: true, Skew: 0}
	accrues = shape.Shape{Bucket: true, Unaligned: true}
)

func shapedGate(shares map[time.Duration]int64, burst int64, kind shape.Shape, decided func(*queue.Waiter, queue.Grant, queue.Verdict)) (*Gate, *fixed) {
	f := newFixed(shares)
	f.burst, f.plan.Shape = burst, kind
	g := gateOf(f, 0, decided)
	g.Changed(at(0))
	return g, f
}

// step is an instant, what is asked for (up to n), and what there is.
type step struct {
	at   time.Duration
	n    int64
	want int64
}

func play(t *testing.T, g *Gate, steps []step) {
	t.Helper()
	for _, s := range steps {
		if got := upTo(g, at(s.at), s.n); got != s.want {
			t.Errorf("at %v: %d of %d issued, want %d", s.at, got, s.n, s.want)
		}
	}
}

const ms = time.Millisecond

// What was issued comes back a window's length later: 502 slots of 2 ms.
func TestSlidingSteps(t *testing.T) {
	g, _ := shapedGate(map[time.Duration]int64{second: 10}, 0, sliding, nil)
	play(t, g, []step{
		{900 * ms, 4, 4},
		{999 * ms, 100, 6},
		{1000 * ms, 1, 0}, // a boundary of fixed windows is nothing
		{1899 * ms, 1, 0},
		{1903 * ms, 1, 0},
		{1904 * ms, 100, 4}, // slot 450 ended at 902
		{2001 * ms, 1, 0},
		{2002 * ms, 100, 6},
		{2907 * ms, 1, 0},
		{2908 * ms, 3, 3},
		{2909 * ms, 100, 1},
		{20 * second, 100, 10},
	})
}

// With a transit of 100 ms permits count for 50 slots more.
func TestSlidingCountsTheTransit(t *testing.T) {
	kind := sliding
	kind.Transit = int64(100 * ms)
	g, _ := shapedGate(map[time.Duration]int64{second: 10}, 0, kind, nil)
	play(t, g, []step{{0, 100, 10}, {1004 * ms, 1, 0}, {1103 * ms, 1, 0}, {1104 * ms, 100, 10}})
}

// A bucket of 4, filled by 10 in a second (and a 500th, for what clocks drift).
func TestBucketSteps(t *testing.T) {
	g, _ := shapedGate(map[time.Duration]int64{second: 10}, 4, accrues, nil)
	play(t, g, []step{
		{0, 100, 4},
		{100 * ms, 1, 0},
		{103 * ms, 100, 1}, // 100.2 ms for one
		{203 * ms, 100, 1},
		{403 * ms, 100, 2},
		{10 * second, 3, 3},
		{10*second + 1*ms, 100, 1},
		{10*second + 99*ms, 1, 0},
		{10*second + 108*ms, 1, 1},
	})
}

// Callers may reach the gate later than they read the clock, and after others have taken permits of the segment by a later
// reading. What those took accrues anew from their reading on, not from the earlier one: else two calls had more than the
// burst at one instant.
func TestABucketAccruesNothingBeforeItIsTaken(t *testing.T) {
	var log told
	g, _ := shapedGate(map[time.Duration]int64{second: 64_000}, 6_400, accrues, log.decided)
	began := 10 * second
	g.Changed(at(began)) // it is full
	if v := g.Segment().Take(int64(began+1500*time.Microsecond), 4_000, queue.Default); !v {
		t.Fatal("the segment has not 4,000 permits")
	}
	enter := func(name string, after time.Duration, n int64, c queue.Class) {
		w := &queue.Waiter{Payload: name}
		if _, v := g.Enter(at(began+after), w, n, int64(began+second), c); v != queue.Queued {
			t.Fatalf("%s: %d", name, v)
		}
	}
	enter("default", 100*time.Microsecond, 3_000, queue.Default)
	enter("critical", 120*time.Microsecond, 2_450, queue.Critical)
	g.Tick(at(began + 1510*time.Microsecond))
	if served := log.take(); len(served) > 0 {
		t.Errorf("%v: more than the burst within 10 µs", served)
	}
	g.Tick(at(began + 3*ms))
	if served := log.take(); len(served) != 1 {
		t.Errorf("%v: 50 permits accrue in less than 1 ms", served)
	}
}

// Permits of a full bucket that are held for a waiter count from the segment's edge, as do those that were taken of the
// segment. So a critical call that gets them leaves nothing more for that instant, and none of them count as issued beyond
// the share.
func TestHeldPermitsOfABucketCountFromTheEdge(t *testing.T) {
	for name, c := range map[string]struct {
		length               time.Duration
		share, burst         int64
		taken, late          time.Duration // when permits are taken of the segment, and when those who come next read the clock
		takes, waits, wanted int64         // of the segment; by a default call; by a critical call after it
	}{
		"few permits, by a true clock": {time.Minute, 100, 100, 20 * ms, 40 * ms, 99, 2, 1},
		"many, by an early reading":    {second, 64_000, 6_400, 1500 * time.Microsecond, 120 * time.Microsecond, 3_900, 3_000, 2_500},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := shapedGate(map[time.Duration]int64{c.length: c.share}, c.burst, accrues, nil)
			began := 10 * c.length
			g.Changed(at(began)) // it is full
			if !g.Segment().Take(int64(began+c.taken), c.takes, queue.Default) {
				t.Fatal("the segment has too few permits")
			}
			if _, v := g.Enter(at(began+c.late), &queue.Waiter{}, c.waits, clock.Forever, queue.Default); v != queue.Queued {
				t.Fatalf("the default call: verdict %d", v)
			}
			_, _, critical := g.TakeUpTo(at(began+c.late), c.wanted, queue.Critical)
			edge := at(time.Duration(g.Segment().until))
			_, _, more := g.TakeUpTo(edge, c.burst, queue.Critical)
			if u := g.Usage(edge); u.OverIssued > 0 || u.Issued > c.burst {
				t.Errorf("%d and %d permits after %d, %d of them beyond the share; want at most %d", critical, more, c.takes, u.OverIssued, c.burst)
			}
		})
	}
}

// A leaky bucket keeps one, and those who come late do not catch up.
func TestLeakyBucketSteps(t *testing.T) {
	g, _ := shapedGate(map[time.Duration]int64{second: 10}, 1, accrues, nil)
	play(t, g, []step{{0, 100, 1}, {90 * ms, 1, 0}, {103 * ms, 100, 1}, {900 * ms, 100, 1}, {950 * ms, 1, 0}, {1003 * ms, 100, 1}})
}

// Several sliding windows admit all or nothing: what one lacks is not taken from
// the others.
func TestSeveralSlidingWindows(t *testing.T) {
	g, _ := shapedGate(map[time.Duration]int64{second: 5, 3 * second: 8}, 0, sliding, nil)
	play(t, g, []step{{0, 100, 5}, {second + 10*ms, 100, 3}, {2*second + 20*ms, 1, 0}, {3*second + 20*ms, 100, 5}, {4*second + 40*ms, 100, 3}})
}

// Waiters are served in order as permits come back, to the slot, and who cannot
// be served in time is told at once.
func TestShapedWaiters(t *testing.T) {
	var log told
	g, _ := shapedGate(map[time.Duration]int64{second: 10}, 0, sliding, log.decided)
	play(t, g, []step{{0, 4, 4}, {500 * ms, 6, 6}})
	for i, c := range []struct {
		n        int64
		deadline time.Duration
		want     queue.Verdict
	}{
		{4, 1003 * ms, queue.Limited},
		{4, 1004 * ms, queue.Queued},
		{1, 1499 * ms, queue.Limited}, // the four before it are due first
		{1, 1504 * ms, queue.Queued},
		{6, 2003 * ms, queue.Limited},
		{6, 2100 * ms, queue.Queued},
		{1, 1600 * ms, queue.Limited}, // FIFO: after the six, though one is left at 1.504
	} {
		w := &queue.Waiter{Payload: i}
		if _, v := g.Enter(at(600*ms), w, c.n, int64(c.deadline), queue.Default); v != c.want {
			t.Errorf("waiter %d: verdict %d, want %d", i, v, c.want)
		}
	}
	var served []time.Duration
	for {
		wake := g.Wake()
		if wake == clock.Forever || wake > int64(3*second) {
			break
		}
		g.Tick(clock.Instant{Mono: wake, Wall: wake})
		for range log.take() {
			served = append(served, time.Duration(wake))
		}
	}
	if diff := cmp.Diff([]time.Duration{1004 * ms, 1504 * ms, 2008 * ms}, served); diff != "" {
		t.Errorf("served at (-want +got):\n%s", diff)
	}
}

// A bucket's waiters are served one by one, as permits accrue.
func TestBucketWaiters(t *testing.T) {
	var log told
	g, _ := shapedGate(map[time.Duration]int64{second: 10}, 2, accrues, log.decided)
	play(t, g, []step{{0, 2, 2}})
	for i := range 3 {
		if _, v := g.Enter(at(ms), &queue.Waiter{Payload: i}, 1, int64(305*ms), queue.Default); v != queue.Queued {
			t.Errorf("waiter %d: %d", i, v)
		}
	}
	if _, v := g.Enter(at(ms), &queue.Waiter{}, 1, int64(305*ms), queue.Default); v != queue.Limited {
		t.Errorf("the fourth waiter: %d", v)
	}
	var served []time.Duration
	for wake := g.Wake(); wake < int64(second); wake = g.Wake() {
		g.Tick(clock.Instant{Mono: wake, Wall: wake})
		for range log.take() {
			served = append(served, time.Duration(wake).Round(ms))
		}
	}
	if diff := cmp.Diff([]time.Duration{102 * ms, 202 * ms, 303 * ms}, served); diff != "" {
		t.Errorf("served at (-want +got):\n%s", diff)
	}
}

// A permit that is given back can be had again, while it counts; what a bucket
// has made up for meanwhile is not given twice.
func TestShapedReturn(t *testing.T) {
	g, _ := shapedGate(map[time.Duration]int64{second: 10}, 0, sliding, nil)
	grant, _ := take(g, at(900*ms), 10)
	if !refund(g, at(1100*ms), grant, 4) || upTo(g, at(1100*ms), 100) != 4 {
		t.Error("four permits given back in the next window cannot be had")
	}
	if refund(g, at(1950*ms), grant, 6) {
		t.Error("a permit that counts no more was given back")
	}

	g, _ = shapedGate(map[time.Duration]int64{second: 10}, 10, accrues, nil)
	grant, _ = take(g, at(0), 10)
	if !refund(g, at(400*ms), grant, 10) {
		t.Error("permits cannot be given back")
	}
	if n := upTo(g, at(400*ms), 100); n > 10 || n < 9 {
		t.Errorf("%d permits after ten were given back: more than the bucket holds, or much less", n)
	}
}

// A permit that was issued before a limit was there does not count for it when it
// is given back: the limit would let one more pass than it may.
func TestAReturnIsNoneToALaterLimit(t *testing.T) {
	for name, kind := range map[string]shape.Shape{"sliding": sliding, "bucket": accrues} {
		g, f := shapedGate(map[time.Duration]int64{second: 100}, 100, kind, nil)
		before, ok := take(g, at(500*ms), 4)
		if !ok {
			t.Fatalf("%s: nothing was issued", name)
		}
		f.set(func() { f.shares[2*second] = 5 })
		g.Changed(at(501 * ms))
		play(t, g, []step{{502 * ms, 100, 5}})
		if !refund(g, at(503*ms), before, 4) {
			t.Errorf("%s: the permits cannot be given back", name)
		}
		if n := upTo(g, at(504*ms), 100); n != 0 {
			t.Errorf("%s: %d permits more than the five of the later limit", name, n)
		}
	}
}

// While fixed windows turn into sliding ones, both bind.
func TestShapesBindTogether(t *testing.T) {
	g, f := shapedGate(map[time.Duration]int64{second: 10}, 0, shape.Shape{}, nil)
	play(t, g, []step{{900 * ms, 6, 6}})
	f.set(func() { f.plan.Shape = shape.Shape{Sliding: true} })
	g.Changed(at(950 * ms))
	play(t, g, []step{{960 * ms, 100, 4}, {1000 * ms, 100, 6}, {1500 * ms, 1, 0}, {1970 * ms, 100, 4}, {2010 * ms, 100, 6}})
	f.set(func() { f.plan.Shape = sliding })
	g.Changed(at(2500 * ms))
	play(t, g, []step{{2600 * ms, 1, 0}, {2980 * ms, 100, 4}})
}

// A limit that is gone for a moment finds again what its spans hold.
func TestASlidingLimitThatComesBackCounts(t *testing.T) {
	g, f := shapedGate(map[time.Duration]int64{second: 10, 2 * second: 20}, 0, sliding, nil)
	play(t, g, []step{{999 * ms, 10, 10}})
	f.set(func() { delete(f.shares, second) })
	g.Changed(at(1001 * ms)) // its aligned window is over, the spans that hold them are not
	f.set(func() { f.shares[second] = 10 })
	g.Changed(at(1002 * ms))
	play(t, g, []step{{1003 * ms, 10, 0}})
}

// A permit of the last window of a budget is none to the next, though its sliding window
// takes it back.
func TestAReturnIsNoneToTheNextBudget(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 10})
	f.long, f.plan.Shape = quota.Limit{Permits: 50, Window: longWindow}, sliding
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	fund := func(d time.Duration) {
		funds(g, d, protocol.BudgetAt(f.long, time.UTC, int64(d)), 5, -1)
	}
	fund(longWindow - 2*ms)
	grant, ok := take(g, at(longWindow-1*ms), 5)
	fund(longWindow + 1*ms)
	if !ok || !refund(g, at(longWindow+2*ms), grant, 5) {
		t.Fatal("the permits cannot be issued and given back")
	}
	if n := upTo(g, at(longWindow+3*ms), 10); n != 5 {
		t.Errorf("%d permits of 5 that were taken of the budget", n)
	}
}

// A permit that still counts is not given back twice, whenever the first time was.
func TestAReturnIsRememberedWhileItCounts(t *testing.T) {
	for first := range time.Duration(19) {
		g, _ := shapedGate(map[time.Duration]int64{second: 10}, 0, sliding, nil)
		for before := range time.Duration(10) { // others come and go
			grant, _ := take(g, at(before*100*ms), 1)
			refund(g, at(before*100*ms), grant, 1)
		}
		issued := 950 * ms
		grant, _ := take(g, at(issued), 4)
		at1 := issued + first*50*ms
		serial := serials.Add(1)
		if _, back := g.Correct(at(at1), grant, serial, 4, 0); !back {
			t.Fatalf("at %v the permits cannot be given back", at1)
		}
		for again := at1; again < issued+second; again += 10 * ms {
			if once, _ := g.Correct(at(again), grant, serial, 4, 0); once {
				t.Fatalf("given back at %v, and again at %v", at1, again)
			}
		}
	}
}
