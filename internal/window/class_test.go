package window

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// A waiting call of a higher class is served first, whenever it came.
func TestWaitersAreServedByClass(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 3})
	take(g, at(1), 3)
	for i, c := range []queue.Class{queue.Sheddable, queue.Default, queue.Critical, queue.Sheddable, queue.Default, queue.Critical} {
		name := fmt.Sprintf("%s%d", []string{"critical", "default", "sheddable"}[c], i)
		if _, v := g.Enter(at(2), &queue.Waiter{Payload: name}, 1, clock.Forever, c); v != queue.Queued {
			t.Fatalf("%s: verdict %d, want queued", name, v)
		}
	}
	if u := g.Usage(at(2)); u.WaitingBy != [queue.Classes]int{2, 2, 2} {
		t.Errorf("%v wait, want 2 of each class", u.WaitingBy)
	}
	g.Tick(at(second))
	g.Tick(at(2 * second))
	want := []string{"critical2@1s", "critical5@1s", "default1@1s", "default4@2s", "sheddable0@2s", "sheddable3@2s"}
	if diff := gocmp.Diff(want, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Permits that are held for a large request of a lower class go to a newcomer of a higher one,
// and to nobody else.
func TestANewcomerOvertakesLowerClassesOnly(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 10})
	take(g, at(1), 4)
	g.Enter(at(2), &queue.Waiter{Payload: "large"}, 8, clock.Forever, queue.Default)
	for _, c := range []queue.Class{queue.Default, queue.Sheddable} {
		if _, v := g.Enter(at(3), nil, 1, 0, c); v != queue.Behind {
			t.Errorf("class %d beside a waiter of class %d: verdict %d, want Behind", c, queue.Default, v)
		}
		if _, _, n := g.TakeUpTo(at(3), 1, c); n != 0 {
			t.Errorf("class %d took %d beside a waiter", c, n)
		}
	}
	grant, v := g.Enter(at(3), nil, 5, 0, queue.Critical)
	if v != queue.Granted || grant.End != int64(second) {
		t.Errorf("a critical call beside a default waiter: verdict %d, %+v", v, grant)
	}
	if when, known := g.Estimate(at(3), 1, queue.Critical); !known || when > 3 {
		t.Errorf("one permit more for a critical call: at %d, want now", when)
	}
	if _, _, n := g.TakeUpTo(at(3), 5, queue.Critical); n != 1 {
		t.Errorf("%d more for critical calls, want 1", n)
	}
	if _, v := g.Enter(at(4), nil, 1, 0, queue.Critical); v != queue.Limited {
		t.Errorf("the eleventh of ten permits: verdict %d", v)
	}
	if u := g.Usage(at(4)); u.Issued != 10 || u.OverIssued != 0 {
		t.Errorf("%d issued, %d over; want 10, 0", u.Issued, u.OverIssued)
	}
	g.Tick(at(second))
	if diff := gocmp.Diff([]string{"large@1s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A waiter that newcomers of a higher class push beyond its deadline is refused where that
// is seen, at the next edge; and what is foreseen counts the classes above only.
func TestPushedWaitersAreRefused(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 2})
	take(g, at(1), 2)
	g.Enter(at(2), &queue.Waiter{Payload: "default"}, 2, int64(2*second+second/2), queue.Default)
	for i := range 3 {
		g.Enter(at(3), &queue.Waiter{Payload: i}, 2, clock.Forever, queue.Critical)
	}
	for c, want := range map[queue.Class]time.Duration{queue.Critical: 4 * second, queue.Default: 5 * second, queue.Sheddable: 5 * second} {
		if when, known := g.Estimate(at(3), 2, c); !known || when != int64(want) {
			t.Errorf("class %d: foreseen at %v, want %v", c, time.Duration(when), want)
		}
	}
	if _, v := g.Enter(at(3), &queue.Waiter{}, 1, int64(3*second+second/2), queue.Critical); v != queue.Limited {
		t.Errorf("a critical call behind three others, with too little time: verdict %d", v)
	}
	g.Tick(at(second))
	if diff := gocmp.Diff([]string{"0@1s", "default!3"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// In a full queue the last waiter of the lowest class makes room for a higher one.
func TestAFullQueueHasRoomForHigherClasses(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 1})
	var told told
	g := gateOf(f, 2, told.decided)
	g.Changed(at(0))
	take(g, at(1), 1)
	enter := func(name string, c queue.Class, want queue.Verdict) {
		t.Helper()
		if _, v := g.Enter(at(2), &queue.Waiter{Payload: name}, 1, clock.Forever, c); v != want {
			t.Errorf("%s: verdict %d, want %d", name, v, want)
		}
	}
	enter("a", queue.Sheddable, queue.Queued)
	enter("b", queue.Sheddable, queue.Queued)
	enter("c", queue.Sheddable, queue.Full)
	enter("d", queue.Default, queue.Queued)
	enter("e", queue.Critical, queue.Queued)
	enter("f", queue.Default, queue.Full)
	enter("g", queue.Critical, queue.Queued)
	enter("h", queue.Critical, queue.Full)
	g.Tick(at(second))
	g.Tick(at(2 * second))
	displaced := func(name string) string { return fmt.Sprintf("%s!%d", name, queue.Displaced) }
	want := []string{displaced("b"), displaced("a"), displaced("d"), "e@1s", "g@2s"}
	if diff := gocmp.Diff(want, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A head that wants more than is left waits; a smaller call of a higher class that comes
// after it is due sooner, and so is the gate's edge.
func TestANewHeadHasItsEdge(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 10})
	f.plan.Pacing = shape.Pacing{Even: true}
	var told told
	g := gateOf(f, 0, told.decided)
	g.Changed(at(0))
	upTo(g, at(1), 10)
	g.Enter(at(2), &queue.Waiter{Payload: "large"}, 8, clock.Forever, queue.Default)
	g.Tick(at(second / 10)) // from here on the edge is that of the large one
	upTo := func(c queue.Class) (n int64) { _, _, n = g.TakeUpTo(at(second/10), 10, c); return n }
	upTo(queue.Critical)
	g.Enter(at(second/10), &queue.Waiter{Payload: "small"}, 1, clock.Forever, queue.Critical)
	if wake := time.Duration(g.Wake()); wake > 3*second/10 {
		t.Errorf("a permit comes each 100 ms, and the gate wakes at %v", wake)
	}
	g.Tick(at(3 * second / 10))
	if diff := gocmp.Diff([]string{"small@0s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// inLine is a waiter of the naive queue.
type inLine struct {
	w        *queue.Waiter
	c        queue.Class
	n        int64
	deadline int64
}

// Against a list that is sorted by class and arrival: nobody overtakes, nobody is forgotten
// and nobody waits beyond its deadline.
func TestClassesKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Int64Range(1, 12).Draw(t, "share")
		f := newFixed(map[time.Duration]int64{second: share})
		f.plan.Known = rapid.Bool().Draw(t, "known")
		if rapid.Bool().Draw(t, "pacing") {
			f.plan.Pacing = shape.Pacing{Even: true}
		}
		now := int64(0)
		var list []inLine
		issued := map[int64]int64{} // by window
		waiting := func(w *queue.Waiter) int { return slices.IndexFunc(list, func(p inLine) bool { return p.w == w }) }
		g := gateOf(f, 0, func(w *queue.Waiter, _ queue.Grant, v queue.Verdict) {
			i := waiting(w)
			switch {
			case i < 0:
				t.Fatalf("told twice, or before it waits")
			case v == queue.Granted && i > 0:
				t.Fatalf("%+v is served before %+v", list[i], list[0])
			case v == queue.Granted && list[i].deadline < now:
				t.Fatalf("%+v is served late, at %v", list[i], time.Duration(now))
			case v == queue.Granted:
				issued[now/int64(second)] += list[i].n
			}
			list = slices.Delete(list, i, i+1)
		})
		in := func() clock.Instant { return clock.Instant{Mono: now, Wall: now} }
		overtakes := func(c queue.Class) bool { return len(list) == 0 || list[0].c > c }
		g.Changed(in())
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := queue.Class(rapid.IntRange(0, queue.Classes-1).Draw(t, "class"))
			n := rapid.Int64Range(1, share).Draw(t, "n")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				p := inLine{&queue.Waiter{}, c, n, now + rapid.Int64Range(1, int64(4*second)).Draw(t, "patience")}
				first := overtakes(c)
				at := slices.IndexFunc(list, func(o inLine) bool { return o.c > c })
				if at < 0 {
					at = len(list)
				}
				list = slices.Insert(list, at, p) // it may be told within Enter
				switch _, v := g.Enter(in(), p.w, n, p.deadline, c); v {
				case queue.Queued:
				case queue.Granted:
					if !first {
						t.Fatalf("class %d overtakes %+v", c, list[0])
					}
					issued[now/int64(second)] += n
					fallthrough
				default:
					list = slices.DeleteFunc(list, func(o inLine) bool { return o.w == p.w })
				}
			case 2:
				if !overtakes(c) {
					if _, _, got := g.TakeUpTo(in(), n, c); got > 0 {
						t.Fatalf("class %d takes %d before %+v", c, got, list[0])
					}
				} else if _, _, got := g.TakeUpTo(in(), n, c); got >= 0 {
					issued[now/int64(second)] += got
				}
			case 3:
				if len(list) > 0 {
					p := rapid.SampledFrom(list).Draw(t, "who")
					list = slices.DeleteFunc(list, func(o inLine) bool { return o.w == p.w })
					if !g.Cancel(in(), p.w) {
						t.Fatalf("%+v waits, and cannot be cancelled", p)
					}
				}
			default:
				end := now + rapid.Int64Range(1, int64(second)).Draw(t, "time")
				for now < end {
					now = min(end, max(now+1, g.Wake()))
					g.Tick(in())
				}
			}
			late := slices.IndexFunc(list, func(p inLine) bool { return p.deadline < now })
			if late >= 0 {
				t.Fatalf("%+v has no answer at %v", list[late], time.Duration(now))
			}
			if u := g.Usage(in()); u.Waiting != len(list) || u.OverIssued != 0 {
				t.Fatalf("%d wait, %d by the list; %d over", u.Waiting, len(list), u.OverIssued)
			}
			if !slices.IsSortedFunc(list, func(a, b inLine) int { return cmp.Compare(a.c, b.c) }) {
				t.Fatal("the list is out of order")
			}
			for w, n := range issued {
				if n > share {
					t.Fatalf("%d of %d permits are issued in window %d", n, share, w)
				}
			}
		}
	})
}

// keeping returns a gate that keeps half of 20 permits a second for critical calls.
func keeping() (*fixed, *Gate, *told) {
	f := newFixed(map[time.Duration]int64{second: 20})
	f.plan.Critical = 50
	told := &told{}
	g := gateOf(f, 0, told.decided)
	g.Changed(at(0))
	return f, g, told
}

// Permits kept for critical calls are released along the window, in equal parts and before its
// end, so that none is lost.
func TestWhatIsKeptIsReleased(t *testing.T) {
	_, g, _ := keeping()
	var got []int64
	for i := range 11 {
		now := at(time.Duration(i)*second/11 + time.Millisecond)
		if u := g.Usage(now); u.Limits[0].Kept != int64(10-i) {
			t.Errorf("part %d: %d are kept, want %d", i, u.Limits[0].Kept, 10-i)
		}
		got = append(got, upTo(g, now, 100))
	}
	if diff := gocmp.Diff([]int64{10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, got); diff != "" {
		t.Errorf("permits to default calls (-want +got):\n%s", diff)
	}
	if _, v := g.Enter(at(second-1), nil, 1, 0, queue.Critical); v != queue.Limited {
		t.Error("more than the share was issued")
	}
}

// Critical calls have what is kept, on the fast path too, beside those that wait for it.
func TestWhatIsKeptIsForCriticalCalls(t *testing.T) {
	_, g, told := keeping()
	s := g.Segment()
	if !s.Take(1, 8, queue.Default) || s.Take(1, 3, queue.Sheddable) || s.TakeUpTo(1, 5, queue.Sheddable) != 2 || s.Take(1, 1, queue.Default) {
		t.Error("default and sheddable calls must have 10 of 20")
	}
	if !s.Take(1, 3, queue.Critical) || s.TakeUpTo(1, 2, queue.Critical) != 2 {
		t.Error("a critical call was refused what is kept")
	}
	if when, known := g.Estimate(at(1), 1, queue.Default); !known || when/int64(time.Millisecond) != 545 {
		t.Errorf("a permit for a default call is foreseen at %v, want six elevenths of a second", time.Duration(when))
	}
	for c, late := range map[queue.Class]bool{queue.Default: true, queue.Critical: false} {
		if got := g.Late(at(1), 1, int64(second/2), c); got != late {
			t.Errorf("a call of class %d is known to be late: %v", c, got)
		}
	}
	if _, v := g.Enter(at(2), &queue.Waiter{Payload: "late"}, 1, int64(second/2), queue.Default); v != queue.Kept {
		t.Errorf("a default call that cannot be served in time: verdict %d", v)
	}
	if _, v := g.Enter(at(2), &queue.Waiter{Payload: "w"}, 1, int64(second), queue.Default); v != queue.Queued {
		t.Fatalf("a default call that can: verdict %d", v)
	}
	if u := g.Usage(at(2)); u.HeadAt/int64(time.Millisecond) != 545 {
		t.Errorf("the head is foreseen at %v", time.Duration(u.HeadAt))
	}
	for range 2 {
		if _, v := g.Enter(at(3), nil, 1, 0, queue.Critical); v != queue.Granted {
			t.Errorf("a critical call beside one that waits: verdict %d", v)
		}
	}
	for now := at(2); now.Mono < int64(second); {
		now = at(time.Duration(g.Wake()))
		g.Tick(now)
		if len(told.log) > 0 {
			if now.Mono/int64(time.Millisecond) != 727 { // two permits later
				t.Errorf("served at %v", time.Duration(now.Mono))
			}
			break
		}
	}
	if diff := gocmp.Diff([]string{"w@0s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of each limit a part is kept; the share of a long window is kept along it.
func TestOfEachLimitAPartIsKept(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 20, 10 * second: 40})
	f.plan.Critical = 25
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	var got []int64
	for i := range 10 {
		got = append(got, upTo(g, at(time.Duration(i)*second), 100))
	}
	if diff := gocmp.Diff([]int64{15, 15, 2, 1, 1, 1, 1, 1, 1, 1}, got); diff != "" {
		t.Errorf("permits at each second's start (-want +got):\n%s", diff)
	}
	if _, _, n := g.TakeUpTo(at(9*second+1), 100, queue.Critical); n != 1 {
		t.Errorf("%d are left for critical calls, want 1", n)
	}
}
