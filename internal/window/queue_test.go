package window

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

func TestWaitersAreServedInOrderBeforeNewcomers(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 3})
	take(g, at(1), 3)
	for i, n := range []int64{1, 3, 1, 1} {
		if _, v := g.Enter(at(2), &queue.Waiter{Payload: i}, n, clock.Forever, queue.Default); v != queue.Queued {
			t.Fatalf("waiter %d: verdict %d, want queued", i, v)
		}
	}
	g.Tick(at(second))
	if diff := cmp.Diff([]string{"0@1s"}, told.take()); diff != "" {
		t.Errorf("first window (-want +got):\n%s", diff)
	}
	if _, ok := take(g, at(second+1), 1); ok {
		t.Error("a newcomer overtook the waiter for 3 permits")
	}
	if wake := g.Wake(); wake != int64(2*second) {
		t.Errorf("wake at %v, want 2s", time.Duration(wake))
	}
	// A newcomer sees the window first, and does the boundary's work.
	if _, ok := take(g, at(2*second), 1); ok {
		t.Error("a newcomer was served before the queue")
	}
	if diff := cmp.Diff([]string{"1@2s"}, told.take()); diff != "" {
		t.Errorf("second window (-want +got):\n%s", diff)
	}
	if _, ok := take(g, at(3*second), 1); !ok {
		t.Error("what the queue left was not there for newcomers")
	}
	if diff := cmp.Diff([]string{"2@3s", "3@3s"}, told.take()); diff != "" {
		t.Errorf("third window (-want +got):\n%s", diff)
	}
	if wake := g.Wake(); wake != clock.Forever {
		t.Errorf("nobody waits, yet wake is at %v", time.Duration(wake))
	}
}

// TestSmallerRequestsFollowARefusedHead: when the first in line gives up for want
// of time, what it was waiting with goes to those behind it at that instant.
func TestSmallerRequestsFollowARefusedHead(t *testing.T) {
	for name, end := range map[string]func(g *Gate){
		"the alarm": func(g *Gate) { g.Tick(at(second / 2)) },
		"news":      func(g *Gate) { g.Changed(at(second / 2)) },
		"late news": func(g *Gate) { g.Changed(at(second * 3 / 4)) },
	} {
		f := newFixed(map[time.Duration]int64{second: 2})
		f.plan.Known = false // nobody is refused before its deadline
		var told told
		g := gateOf(f, 0, told.decided)
		g.Changed(at(0))
		take(g, at(1), 1)
		g.Enter(at(2), &queue.Waiter{Payload: "two"}, 2, int64(second/2), queue.Default)
		g.Enter(at(3), &queue.Waiter{Payload: "one"}, 1, clock.Forever, queue.Default)
		end(g)
		if diff := cmp.Diff([]string{fmt.Sprintf("two!%d", queue.Limited), "one@0s"}, told.take()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A waiter that gave up is not waited for: neither the first in line nor another.
func TestTheForecastForgetsThoseThatGaveUp(t *testing.T) {
	for leaves := range 2 {
		g := gateOf(newFixed(map[time.Duration]int64{second: 1}), 0, func(*queue.Waiter, queue.Grant, queue.Verdict) {})
		g.Changed(at(0))
		take(g, at(0), 1)
		waiters := []*queue.Waiter{{}, {}}
		for _, w := range waiters {
			g.Enter(at(1), w, 1, clock.Forever, queue.Default)
		}
		if when, _ := g.Estimate(at(1), 1, queue.Default); when != int64(3*second) {
			t.Fatalf("behind two waiters: at %v", time.Duration(when))
		}
		g.Cancel(at(2), waiters[leaves])
		if when, _ := g.Estimate(at(2), 1, queue.Default); when != int64(2*second) {
			t.Errorf("waiter %d gave up: foreseen at %v, want 2s", leaves, time.Duration(when))
		}
	}
}

func TestWhoCannotBeServedInTimeIsRefusedAtOnce(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 2})
	var told told
	g := gateOf(f, 3, told.decided)
	g.Changed(at(0))
	take(g, at(1), 2)
	wait := func(n int64, deadline time.Duration) queue.Verdict {
		_, v := g.Enter(at(10), &queue.Waiter{Payload: "w"}, n, int64(deadline), queue.Default)
		return v
	}
	for _, step := range []struct {
		n        int64
		deadline time.Duration
		want     queue.Verdict
	}{
		{1, second - 1, queue.Limited}, // the next window comes too late
		{3, forever, queue.TooLarge},
		{1, second, queue.Queued},
		{2, 2*second - 1, queue.Limited}, // one of two is taken by the first waiter
		{1, second + second/2, queue.Queued},
		{1, 2*second - 1, queue.Limited}, // the window is promised
		{1, 3 * second, queue.Queued},
		{1, forever, queue.Full},
	} {
		if v := wait(step.n, step.deadline); v != step.want {
			t.Fatalf("%d permits until %v: verdict %d, want %d", step.n, step.deadline, v, step.want)
		}
	}
}

const forever = time.Duration(clock.Forever)

func TestAChangedSharePricesTheWaitersAgain(t *testing.T) {
	f, g, told := begun(map[time.Duration]int64{second: 4})
	take(g, at(1), 4)
	for i := range 4 {
		g.Enter(at(2), &queue.Waiter{Payload: i}, 1, int64(second+second/2), queue.Default)
	}
	g.Enter(at(2), &queue.Waiter{Payload: "patient"}, 1, int64(10*second), queue.Default)
	f.set(func() { f.shares[second] = 2 })
	g.Changed(at(3))
	if diff := cmp.Diff([]string{"2!3", "3!3"}, told.take()); diff != "" {
		t.Errorf("who could no longer be served (-want +got):\n%s", diff)
	}
	g.Tick(at(second))
	g.Tick(at(2 * second))
	if diff := cmp.Diff([]string{"0@1s", "1@1s", "patient@2s"}, told.take()); diff != "" {
		t.Errorf("who was served (-want +got):\n%s", diff)
	}
}

func TestACancelledWaiterGivesItsPlaceBack(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 3})
	take(g, at(1), 1) // two are left
	big, small := &queue.Waiter{Payload: "big"}, &queue.Waiter{Payload: "small"}
	g.Enter(at(2), big, 3, clock.Forever, queue.Default)
	g.Enter(at(2), small, 1, clock.Forever, queue.Default)
	if !g.Cancel(at(3), big) {
		t.Fatal("a queued waiter could not be cancelled")
	}
	if g.Cancel(at(3), big) || g.Cancel(at(3), small) {
		t.Error("cancelled twice, or after it was served")
	}
	if diff := cmp.Diff([]string{"small@0s"}, told.take()); diff != "" {
		t.Errorf("what the cancelled waiter held back (-want +got):\n%s", diff)
	}
	if _, ok := take(g, at(4), 1); !ok {
		t.Error("the last permit was lost")
	}
}

// The claim of a first waiter that is refused when the line was served already is not that of its Waiter's next call: if
// that waits alone too, newcomers pass it only once its own claim has ended.
func TestAClaimIsOfOneCall(t *testing.T) {
	f := newFixed(map[time.Duration]int64{10 * second: 100})
	f.total, f.instances = 200, 2
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(0))
	upTo(g, at(1), 90)
	w := &queue.Waiter{Payload: "w"}
	enter := func(now, until time.Duration) {
		t.Helper()
		if _, v := g.Enter(at(now), w, 20, int64(until), queue.Default); v != queue.Queued {
			t.Fatalf("at %v: verdict %d, want %d: others may lend what it lacks", now, v, queue.Queued)
		}
	}
	enter(second, 2*second)
	g.Tick(at(2 * second))
	if diff := cmp.Diff([]string{fmt.Sprintf("w!%d", queue.Limited)}, told.take()); diff != "" {
		t.Fatalf("told at its deadline (-want +got):\n%s", diff)
	}
	enter(3*second, 9*second)
	if n := upTo(g, at(3*second+50*time.Millisecond), 5); n != 0 {
		t.Errorf("%d permits for a newcomer while the claim of the second call runs, want 0", n)
	}
	if n := upTo(g, at(3*second+100*time.Millisecond), 5); n != 5 {
		t.Errorf("%d permits for a newcomer once the claim has ended, want 5", n)
	}
}

func TestUnknownFutureRefusesAtTheDeadlineOnly(t *testing.T) {
	f := newFixed(nil)
	f.plan.Known = false
	var told told
	g := gateOf(f, 0, told.decided)
	g.Enter(at(1), &queue.Waiter{Payload: "a"}, 1, int64(5*second), queue.Default)
	g.Enter(at(1), &queue.Waiter{Payload: "b"}, 1, int64(3*second), queue.Default)
	if wake := g.Wake(); wake != int64(3*second) {
		t.Fatalf("wake at %v, want 3s", time.Duration(wake))
	}
	g.Tick(at(3 * second))
	if diff := cmp.Diff([]string{"b!3"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.set(func() { f.shares, f.plan.Known = map[time.Duration]int64{second: 1}, true })
	g.Changed(at(4 * second))
	if diff := cmp.Diff([]string{"a@4s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each segment has a Grant beside the word that each call changes: a larger one cost a plain call half as much again.
func TestAGrantTakes32Bytes(t *testing.T) {
	if size := unsafe.Sizeof(queue.Grant{}); size != 32 {
		t.Errorf("%d bytes", size)
	}
}

// A queue of a million is a million of these; 65 bytes would take 80.
func TestAWaiterTakes64Bytes(t *testing.T) {
	if n := unsafe.Sizeof(queue.Waiter{}); n > 64 {
		t.Errorf("a waiter takes %d bytes", n)
	}
}
