package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

func TestTakeStopsAtTheShareAndStartsAgainWithTheWindow(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 3})
	g := gateOf(f, 0, nil)
	g.Changed(at(100 * time.Millisecond))
	for _, step := range []struct {
		at   time.Duration
		n    int64
		want bool
	}{
		{200 * time.Millisecond, 2, true},
		{300 * time.Millisecond, 2, false}, // all or nothing
		{400 * time.Millisecond, 1, true},
		{999 * time.Millisecond, 1, false},
		{1000 * time.Millisecond, 3, true},
		{1500 * time.Millisecond, 1, false},
		{7 * second, 1, true},
		{6 * second, 2, true}, // an older reading is charged to the window that runs
		{5 * second, 1, false},
		{8 * second, 4, false},
		{8 * second, 3, true},
	} {
		_, got := take(g, at(step.at), step.n)
		if got != step.want {
			t.Fatalf("at %v, %d permits: granted %v, want %v", step.at, step.n, got, step.want)
		}
	}
	if u := g.Usage(at(8 * second)); u.Issued != 12 || u.Limits[0].Used != 3 || u.Limits[0].Share != 3 {
		t.Errorf("usage is %+v, want 12 issued, 3 of 3 used", u)
	}
}

func TestShareShrinksAndGrowsAtOnceWithinAWindow(t *testing.T) {
	f, g, told := begun(map[time.Duration]int64{second: 10})
	take(g, at(1), 4)
	f.set(func() { f.shares[second] = 5 })
	g.Changed(at(2))
	if _, ok := take(g, at(3), 2); ok {
		t.Error("6 permits issued under a share of 5")
	}
	if _, ok := take(g, at(3), 1); !ok {
		t.Error("the fifth permit of 5 was refused")
	}
	g.Enter(at(4), &queue.Waiter{Payload: "w"}, 3, clock.Forever, queue.Default)
	f.set(func() { f.shares[second] = 20 })
	g.Changed(at(5))
	if diff := cmp.Diff([]string{"w@0s"}, told.take()); diff != "" {
		t.Errorf("the waiter did not get what the share gained (-want +got):\n%s", diff)
	}
	if n := upTo(g, at(6), 50); n != 12 {
		t.Errorf("%d permits under a share of 20, of which 8 are used: want 12", n)
	}
}

func TestSeveralLimitsAdmitAllOrNothing(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 5, 3 * second: 8})
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	var got []int64
	for i := range 6 {
		got = append(got, upTo(g, at(time.Duration(i)*second), 100))
	}
	if diff := cmp.Diff([]int64{5, 3, 0, 5, 3, 0}, got); diff != "" {
		t.Errorf("permits by second (-want +got):\n%s", diff)
	}
}

func TestALimitThatIsRemovedAndComesBackKeepsItsAccount(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100, 60 * second: 10})
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	upTo(g, at(1), 7)
	f.set(func() { delete(f.shares, 60*second) })
	g.Changed(at(2))
	if n := upTo(g, at(3), 50); n != 50 {
		t.Errorf("without the limit %d permits, want 50", n)
	}
	f.set(func() { f.shares[60*second] = 60 })
	g.Changed(at(4))
	if n := upTo(g, at(second), 50); n != 3 {
		t.Errorf("the limit of 60 that came back after 57 permits admitted %d more, want 3", n)
	}
}

func TestReturnedPermitsAreIssuedAgainInTheirWindowOnly(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 2})
	grant, _ := take(g, at(1), 2)
	g.Enter(at(2), &queue.Waiter{Payload: "w"}, 1, clock.Forever, queue.Default)
	if !refund(g, at(3), grant, 1) {
		t.Error("a permit of the running window was not taken back")
	}
	if diff := cmp.Diff([]string{"w@0s"}, told.take()); diff != "" {
		t.Errorf("the waiter did not get it (-want +got):\n%s", diff)
	}
	if refund(g, at(second), grant, 1) {
		t.Error("a permit of the last window was taken back")
	}
	if n := upTo(g, at(second), 9); n != 2 {
		t.Errorf("%d permits in the next window, want 2", n)
	}
}

// What was taken of the last segment is booked when the gate is closed.
func TestCloseBooksWhatWasTaken(t *testing.T) {
	_, g, _ := begun(map[time.Duration]int64{second: 5})
	if got := upTo(g, at(1), 3); got != 3 {
		t.Fatalf("%d permits, want 3", got)
	}
	var booked []Use
	g.Booked = func(all []Use) { booked = all }
	g.Close()
	if n := g.Usage(at(2)).Issued; n != 3 {
		t.Errorf("%d permits are issued, want 3", n)
	}
	if len(booked) != 1 || booked[0].Used != 3 {
		t.Errorf("booked %+v, want 3 permits", booked)
	}
}

func TestCloseRefusesEverybody(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 1})
	grant, _ := take(g, at(1), 1)
	g.Enter(at(1), &queue.Waiter{Payload: "a", Owner: 1}, 1, clock.Forever, queue.Default)
	g.Enter(at(1), &queue.Waiter{Payload: "b", Owner: 2}, 1, clock.Forever, queue.Default)
	g.Evict(at(2), 1)
	g.Close()
	if diff := cmp.Diff([]string{fmt.Sprintf("a!%d", queue.Closed), fmt.Sprintf("b!%d", queue.Closed)}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	g.Changed(at(3))
	if _, ok := take(g, at(5*second), 1); ok {
		t.Error("a closed gate issued a permit")
	}
	if _, v := g.Enter(at(5*second), &queue.Waiter{}, 1, clock.Forever, queue.Default); v != queue.Closed {
		t.Errorf("verdict %d, want Closed", v)
	}
	if refund(g, at(4), grant, 1) {
		t.Error("a closed gate took a permit back")
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 1 << 40})
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	if n := testing.AllocsPerRun(100, func() { g.Segment().Take(1, 1, queue.Default) }); n != 0 {
		t.Errorf("a granted permit allocates %v times", n)
	}
}
