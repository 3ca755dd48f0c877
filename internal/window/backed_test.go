package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// backed returns a gate with a share of 3,000 a second, of which MostOut back the front of a key that may have 1,000 and
// whose front is open with 200.
func backed(t *testing.T) (f *fixed, g *Gate, front *Front, a *Account) {
	t.Helper()
	f, g, _ = begun(map[time.Duration]int64{second: 3000})
	f.plan.Keys = &plans.Keys{Windows: *keysAt(0, second)}
	g.Changed(at(0))
	front, a = opened(g.Segment(), 200)
	if g.Back(g.Segment(), front); g.Segment().Left() != 3000-MostOut || !g.Segment().Backs() {
		t.Fatalf("the segment has %d left", g.Segment().Left())
	}
	return f, g, front, a
}

// opened returns a front that is open with n permits of an account that may have 1,000, by the windows of a segment.
func opened(s *Segment, n int64) (*Front, *Account) {
	front, a := &Front{}, &Account{}
	a.Adopt(&s.Keys.Windows, bounds(1000), nil)
	front.Open(a, n)
	return front, a
}

// What backs a front is left: whoever looks at what the gate has, or takes of it, finds it there, less what calls have
// had. Afterwards calls of the front are as those of one that was never backed.
func TestWhatBacksAFrontIsLeft(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(t *testing.T, f *fixed, g *Gate){
		"a call that takes all": func(t *testing.T, _ *fixed, g *Gate) {
			if _, ok := take(g, at(1), 2990); !ok {
				t.Error("refused")
			}
		},
		"a call that takes what there is": func(t *testing.T, _ *fixed, g *Gate) {
			if n := upTo(g, at(1), 5000); n != 2990 {
				t.Errorf("it gets %d", n)
			}
		},
		"the counts": func(t *testing.T, _ *fixed, g *Gate) {
			if n, u := g.Issued(at(1)), g.Usage(at(1)); n != 10 || u.Issued != 10 || u.Limits[0].Left != 2990 {
				t.Errorf("%d are issued, and %d, and %d left", n, u.Issued, u.Limits[0].Left)
			}
		},
		"what a call foresees": func(t *testing.T, _ *fixed, g *Gate) {
			if when, known := g.Estimate(at(1), 2990, queue.Default); !known || when > 1 || g.Late(at(1), 2990, 1, queue.Default) {
				t.Errorf("2,990 come at %d (%v)", when, known)
			}
		},
		"a caller that waits": func(t *testing.T, _ *fixed, g *Gate) {
			if _, v := g.Enter(at(1), &queue.Waiter{}, 2991, int64(second), queue.Default); v != queue.Queued {
				t.Errorf("%v", v)
			}
			if left := g.Segment().Left(); left != 0 {
				t.Errorf("%d are left for newcomers", left)
			}
		},
		"another plan": func(t *testing.T, f *fixed, g *Gate) {
			s := g.Segment()
			f.plan.Keys = &plans.Keys{Windows: *keysAt(0, second)}
			g.Changed(at(1))
			if left := g.Segment().Left(); left != 2990 || s.Backs() {
				t.Errorf("%d are left", left)
			}
		},
		"whoever asks for them": func(t *testing.T, _ *fixed, g *Gate) {
			if s := g.Segment(); !g.Unback(at(1), s) || s.Left() != 2990 || g.Unback(at(1), s) {
				t.Errorf("%d are left", s.Left())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, g, front, _ := backed(t)
			s := g.Segment()
			for range 2 {
				if _, v := front.Take(s, 0, 5, queue.Default, true); v != Taken || s.Left() != 3000-MostOut {
					t.Fatalf("5 permits: %d, and the segment has %d left", v, s.Left())
				}
			}
			look(t, f, g)
			now := g.Segment()
			if now.Backs() || Part(front.state.Load()).backs() != 0 {
				t.Error("some back the front yet")
			}
			left := now.Left()
			_, v := front.Take(now, 0, 5, queue.Default, true)
			if want := now == s && left >= 5; want != (v == Taken) || want != (now.Left() == left-5) {
				t.Errorf("5 more, of %d: %d", left, v)
			}
		})
	}
}

// A call by a segment that is over has nothing of a front that the next one backs, nor has one at the end of its segment.
func TestAFrontIsBackedByOneSegment(t *testing.T) {
	t.Parallel()
	_, g, front, _ := backed(t)
	s := g.Segment()
	if _, v := front.Take(s, s.until, 1, queue.Default, true); v != Torn {
		t.Errorf("at the segment's end: %d", v)
	}
	g.Changed(at(1)) // by the same windows
	if g.Back(g.Segment(), front); !g.Segment().Backs() {
		t.Fatal("the next segment does not back the front")
	}
	if _, v := front.Take(s, 0, 1, queue.Default, true); v != Ask {
		t.Errorf("by the segment before: %d", v)
	}
	if g.Back(s, front); g.Segment().Left() != 3000-MostOut {
		t.Errorf("by the segment before more back the front: %d are left", g.Segment().Left())
	}
}

// What comes back to the segment while a front is backed is booked as ever, and the front stays backed.
func TestPermitsComeBackBesideABackedFront(t *testing.T) {
	t.Parallel()
	_, g, front, a := backed(t)
	s := g.Segment()
	front.Take(s, 0, 7, queue.Default, true)
	if !refund(g, at(1), s.Grant, 3) || !front.Return(s, 3, a.Epoch()) {
		t.Fatal("3 of 7 do not come back")
	}
	if n := g.mu.ledger.issued; n != 4 {
		t.Errorf("%d are booked, want 4", n)
	}
	if left := s.Left(); g.Segment() != s || !s.Backs() || left != 3000-MostOut+3 {
		t.Errorf("%d are left, and some back the front: %v", left, s.Backs())
	}
	if taken, _ := front.Shut(a); taken != 4 || g.Issued(at(1)) != 4 {
		t.Errorf("the key has issued %d and the provider %d, want 4", taken, g.Issued(at(1)))
	}
}

// A key's account that is looked at shuts the front. What backs it does so again when the front is opened.
func TestABackedFrontIsShut(t *testing.T) {
	t.Parallel()
	_, g, front, a := backed(t)
	s := g.Segment()
	front.Take(s, 0, 50, queue.Default, true)
	if taken, _ := front.Shut(a); taken != 50 || !s.Backs() {
		t.Errorf("%d were taken, and some back the front: %v", taken, s.Backs())
	}
	if _, v := front.Take(s, 0, 1, queue.Default, true); v != Ask {
		t.Errorf("of one that is shut: %d", v)
	}
	front.Open(a, few-1)
	if _, v := front.Take(s, 0, 60, queue.Default, true); v != Crowded || s.Left() != 3000-MostOut {
		t.Errorf("60 of few: %d, and %d are left", v, s.Left())
	}
	if front.Shut(a); a.Left() != 1000-110 {
		t.Errorf("the key has %d left", a.Left())
	}
}

// A front is not backed if that would take much of what is left, or pass others by.
func TestWhenAFrontIsNotBacked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(g *Gate, s *Segment){
		"few are left":              func(_ *Gate, s *Segment) { s.Take(0, 3000-leastLeft+1, queue.Default) },
		"few are left for all":      func(_ *Gate, s *Segment) { s.floor = 3000 - leastLeft + 1 },
		"another segment runs":      func(g *Gate, _ *Segment) { g.Changed(at(1)) },
		"another looks at the gate": func(g *Gate, _ *Segment) { g.mu.Lock() },
		"a caller waits":            func(g *Gate, _ *Segment) { g.mu.queue.Push(&queue.Waiter{}, 1, clock.Forever, queue.Default, false) },
		"the gate is closed":        func(g *Gate, _ *Segment) { g.Close() },
		"another front is backed": func(g *Gate, s *Segment) {
			other, _ := opened(s, 9)
			g.Back(s, other)
		},
		"nothing": nil,
	} {
		f, g, _ := begun(map[time.Duration]int64{second: 3000})
		f.plan.Keys = &plans.Keys{Windows: *keysAt(0, second)}
		g.Changed(at(0))
		s := g.Segment()
		front, _ := opened(s, 200)
		if change != nil {
			change(g, s)
		}
		g.Back(s, front)
		if n, want := Part(front.state.Load()).backs(), change == nil; (n > 0) != want {
			t.Errorf("%s: %d back the front", name, n)
		}
	}
}

// A front gets more when few back it, and another once none does.
func TestAFrontIsBackedAgain(t *testing.T) {
	t.Parallel()
	_, g, front, a := backed(t)
	s := g.Segment()
	after := func(n, backs, left int64) {
		t.Helper()
		front.Take(s, 0, n, queue.Default, true)
		g.Back(s, front)
		if got := Part(front.state.Load()).backs(); got != backs || s.Left() != left {
			t.Errorf("%d back the front and %d are left, want %d and %d", got, s.Left(), backs, left)
		}
	}
	after(MostOut-few-60, few+60, 3000-MostOut)
	after(60, few, 3000-MostOut)
	after(1, MostOut, 3000-MostOut-(MostOut-few+1))
	front.Shut(a)
	front.Open(a, MostOut)
	other, _ := opened(s, 9)
	if g.Back(s, other); Part(other.state.Load()).backs() != 0 {
		t.Error("two fronts are backed")
	}
	front.Take(s, 0, MostOut, queue.Default, true)
	left := s.Left()
	if g.Back(s, other); Part(other.state.Load()).backs() != MostOut || s.Left() != left-MostOut {
		t.Error("the other is not backed")
	}
}

// More books what calls have had of an open front, and lays in as many as Open would, with room for those that come back.
func TestMoreIsLaidIntoAFront(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(300, 1000, 0, second)
	more := func(taken, count int64) {
		t.Helper()
		if got, p := f.More(a), Part(f.state.Load()); got != taken || p.count() != count {
			t.Errorf("%d were taken and %d lie in the front, want %d and %d", got, p.count(), taken, count)
		}
	}
	more(0, 0) // it is shut
	f.Open(a, 10)
	f.Take(s, 0, 4, queue.Default, true)
	more(4, enough)
	more(0, enough)
	f.Take(s, 0, 150, queue.Default, true)
	more(150, 146) // 154 of 300 are gone
	f.Take(s, 0, 50, queue.Default, true)
	more(50, 96)
	f.Return(s, 6, a.Epoch())
	more(-6, 102)
	a.begun().low = 90
	f.Take(s, 0, 5, queue.Default, true)
	more(5, 97) // the last 90 are for a call that has others asked for more: but those that lie there stay
	if taken, _ := f.Shut(a); taken != 0 || a.Left() != 97 {
		t.Errorf("%d more were taken, and %d are left, want 0 and 97", taken, a.Left())
	}
	f.Open(a, MostOut)
	f.Take(s, 0, 3, queue.Default, true)
	more(3, 4)
	f.Shut(a)
	a.Charge(94)
	f.Refuse(a, false)
	more(0, 0)
}

// A front counts more permits as refused before it asks if those that count all refusals need not hear of each.
func TestAQuietFront(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(0, 100, 0, second)
	f.Refuse(a, true)
	for range mostQuiet {
		if p, v := f.Take(s, 0, 1, queue.Default, true); v != Refused || !p.Quiet() {
			t.Fatalf("%d, quiet is %v", v, p.Quiet())
		}
	}
	if _, v := f.Take(s, 0, 1, queue.Default, true); v != Ask {
		t.Errorf("one more: %d", v)
	}
	if _, refused := f.Shut(a); refused != mostQuiet {
		t.Errorf("%d were refused", refused)
	}
	if f.Refuse(a, false); Part(f.state.Load()).Quiet() {
		t.Error("it is quiet")
	}
}

// Of what is kept for critical calls a call of another class has none, also not what backs its front. A call that may not
// have it asks its account.
func TestWhatBacksAFrontIsKeptForCriticalCalls(t *testing.T) {
	t.Parallel()
	_, g, front, _ := backed(t)
	s := g.Segment()
	s.floor = MostOut - 5
	if !s.Take(0, s.Left(), queue.Critical) { // what backs the front is left: 5 more than are kept
		t.Fatal("a critical call does not get what is left")
	}
	for _, c := range []struct {
		class queue.Class
		n     int64
		want  Fronted
	}{{queue.Default, 6, Ask}, {queue.Default, 5, Taken}, {queue.Default, 1, Ask}, {queue.Critical, 1, Taken}} {
		if _, v := front.Take(s, 0, c.n, c.class, true); v != c.want {
			t.Errorf("%d permits for class %d: %d, want %d", c.n, c.class, v, c.want)
		}
	}
}
