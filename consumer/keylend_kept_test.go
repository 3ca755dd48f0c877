package consumer

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// A key that has asked for a loan is kept until the window ends, also before the loan has come:
// its calls find the permits. Then it is forgotten. Both instances count the loan.
func TestAKeyThatHasAskedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 10, 1, quota.OutageHold, "a", "b")
		l := all["a"]
		var key Key
		for n := 0; ; n++ {
			key = l.Key(fmt.Sprint("key-", n))
			if _, self := key.Owner(); !self {
				break
			}
		}
		sweep := func() {
			s, _ := l.core.segmentNow()
			l.core.keys.swept = nil
			l.core.keys.sweep(s.Keys)
		}
		time.Sleep(100 * time.Millisecond) // calls at the very beginning have no rate yet
		if key.TryAcquire() {
			t.Fatal("a permit of another owner comes from nowhere")
		}
		synctest.Wait() // it has asked, and the loan is under way
		for _, when := range []string{"before the loan has come", "after that"} {
			sweep()
			time.Sleep(100 * time.Millisecond)
			if l.core.keys.known(key.state.key.Name) == nil {
				t.Fatalf("forgotten %s", when)
			}
		}
		guest, host := l.Status(), all["b"].Status() // before the last permit is used, for which others are asked again
		if !key.TryAcquire() {
			t.Error("its calls do not find the loan")
		}
		lent := host.KeysLent
		if lent < 1 || guest.KeyAsks != 1 || guest.KeysBorrowed != lent || guest.KeysLent != 0 || guest.Borrowed+guest.Asks != 0 {
			t.Errorf("asked %d times, borrowed %d, lent %d; want 1, %d and 0, of keys only", guest.KeyAsks, guest.KeysBorrowed, guest.KeysLent, lent)
		}
		if host.KeyAsks != 0 || host.KeysBorrowed != 0 || host.Lent != 0 {
			t.Errorf("the host asked %d times, borrowed %d; want none", host.KeyAsks, host.KeysBorrowed)
		}
		time.Sleep(2 * time.Second)
		m.prove()
		if sweep(); l.core.keys.known(key.state.key.Name) != nil {
			t.Error("it is never forgotten")
		}
	})
}

// Keys that others want do not fill this instance's bound: it lends as many as it may have in use
// itself, and its own callers have all of these beside them. One that both want counts as its own.
func TestKeysOfOthersTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		limits := []quota.Limit{{Permits: 10, Window: time.Second}}
		m, all := keyMarketOf(t, quota.Keys{Limits: limits, Most: most}, quota.OutageHold, "a", "b")
		l := all["a"]
		for window := range 3 { // in the windows after the first, what was lent before makes room
			theirs := func(i int) string { return fmt.Sprintf("theirs-%d-%d", window, i) }
			s, _ := l.core.segmentNow()
			ask := protocol.Note{Windows: s.Keys.Running, Needs: map[string]protocol.Need{}}
			for i := range 3 * most {
				ask.Needs[theirs(i)] = protocol.Need{Permits: 2000}
			}
			before := l.Status().KeysLent
			l.core.Asked("b", ask)
			if n := l.Status().KeysLent - before; n != 2*most {
				t.Errorf("lent %d permits, want 2 of each of %d keys", n, most)
			}
			for i := range most - 1 {
				if err := l.Key(fmt.Sprint("own-", i)).Acquire(t.Context(), 0); err != nil {
					t.Fatalf("own key %d of %d: %v", i, most, err)
				}
			}
			if n := l.Key(theirs(0)).TryTake(10).N(); n != 3 {
				t.Errorf("%d permits of a key that both want, want the share of 5 without the 2 that are lent", n)
			}
			if n := l.Status().KeysInUse; n != most {
				t.Errorf("%d keys in use, want %d", n, most)
			}
			for _, name := range []string{"own-more", theirs(1)} {
				if err := l.Key(name).Acquire(t.Context(), 0); !errors.Is(err, ErrTooManyKeys) {
					t.Errorf("key %s beyond the bound: %v", name, err)
				}
			}
			time.Sleep(time.Second)
			m.prove()
		}
		s, _ := l.core.segmentNow()
		l.core.keys.sweep(s.Keys)
		if own, guests := l.core.keys.inUse.Load(), l.core.keys.guests.Load(); own != 0 || guests != 0 {
			t.Errorf("%d keys in use and %d lent when nothing counts any more", own, guests)
		}
	})
}

// Whoever comes late to a key that was forgotten meanwhile lends nothing of it at the edge that has passed, though a
// large call of another instance stood: the next call of the name has the whole share of the window that runs, and so
// the limit would be exceeded by the loan.
func TestAForgottenKeyLendsNothing(t *testing.T) {
	for _, c := range []struct {
		what      string
		forgotten bool
		cost      int64 // permits of the share that pay for a call that cost more
		come      func(t *testing.T, l *Limiter, y *keyState, p Permit)
	}{
		{"nobody has forgotten it", false, 0, func(_ *testing.T, l *Limiter, y *keyState, _ Permit) {
			l.core.ask(y, l.core.gate.Segment(), l.core.clock.Mono(), keyRequests{})
		}},
		{"a cost", true, 1, func(_ *testing.T, _ *Limiter, _ *keyState, p Permit) { _ = p.Settle(2) }},
		{"permits that the provider did not have", true, 0, func(_ *testing.T, l *Limiter, y *keyState, _ Permit) {
			l.core.uncharge(y, 0, l.core.gate.Segment().Keys, 0)
		}},
		{"a call on its way to the line", true, 0, func(t *testing.T, l *Limiter, y *keyState, _ Permit) {
			if v := l.core.keys.lines.enter(l.core, y, &queue.Waiter{}, 1, clock.Forever, queue.Default); v != queue.Closed {
				t.Errorf("a call on its way to the line is told %v, want that it starts again", v)
			}
		}},
		{"a refusal", true, 0, func(t *testing.T, l *Limiter, y *keyState, _ Permit) {
			if err := l.refuseKey(y, 1, true); err != nil {
				t.Errorf("a call is refused, though the key has permits again: %v", err)
			}
		}},
		{"a look", true, 0, func(_ *testing.T, l *Limiter, y *keyState, _ Permit) {
			l.core.ask(y, l.core.gate.Segment(), l.core.clock.Mono(), keyRequests{})
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, all := keyMarket(t, 10, 0, quota.OutageHold, "a", "b")
				l := all["a"]
				key := l.Key("key")
				p := key.TryTake(1)
				y := l.core.keys.known("key")
				l.core.Asked("b", protocol.Note{
					Windows: l.core.gate.Segment().Keys.Running, Needs: map[string]protocol.Need{"key": {Permits: 3000, Edge: 3000, Large: true}},
				})
				time.Sleep(1100 * time.Millisecond)
				m.prove()
				before := l.Status().KeysLent
				s, _ := l.core.segmentNow()
				if c.forgotten { // by the next window: until then the ask keeps it
					next := *s.Keys
					next.Running = []quota.Window{quota.WindowAt(time.Second, s.Keys.Running[0].End())}
					if l.core.keys.sweep(&next); l.core.keys.known("key") != nil {
						t.Fatal("the key is not forgotten")
					}
				}
				c.come(t, l, y, p)
				lent := l.Status().KeysLent - before
				issued := key.TryTake(10).N()
				if lent+issued+c.cost != 5 || lent > 0 == c.forgotten {
					t.Errorf("%d lent, %d issued, and %d paid for, of a share of 5", lent, issued, c.cost)
				}
			})
		})
	}
}
