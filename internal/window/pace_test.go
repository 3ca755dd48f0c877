package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// pacedLedger is a ledger with one paced window of a second from 0 on.
func pacedLedger(share int64) (*ledger, *plans.Plan) {
	w := quota.Window{Length: time.Second}
	p := &plans.Plan{Until: int64(time.Second), Windows: plans.Windows{Running: []quota.Window{w}}, Limits: []plans.Limit{{Window: w, Permits: share}}, Pacing: shape.Pacing{Even: true}}
	l := &ledger{}
	l.adopt(p, 0)
	return l, p
}

// TestAShortPauseIsMadeGoodGently: after a pause, what was not taken comes spread
// over the rest of the window, not at once, and none of it is lost.
func TestAShortPauseIsMadeGoodGently(t *testing.T) {
	const bucket = int64(50 * time.Millisecond)
	l, p := pacedLedger(5_000)
	buckets := map[int64]int64{}
	issued, paused := int64(0), false
	for now := int64(0); now < p.Until; {
		l.advance(now)
		l.pace(1)
		n := l.budget()
		l.charge(n, now)
		issued += n
		buckets[now/bucket] += n
		now = max(now+1, l.when(1))
		if !paused && now > p.Until*2/5 {
			now, paused = now+int64(25*time.Millisecond), true
		}
	}
	even := int64(5_000) * bucket / int64(970*time.Millisecond)
	for b, n := range buckets {
		if n > even*115/100 {
			t.Errorf("from %v on %d permits are released in %v, evenly it were %d", time.Duration(b*bucket), n, time.Duration(bucket), even)
		}
	}
	if issued != 5_000 {
		t.Fatalf("%d of 5000 issued", issued)
	}
}

// TestARequestOfManyIsServedUnderPacing: permits accumulate for a request that
// wants more than are released at once, and it has them when they are due.
func TestARequestOfManyIsServedUnderPacing(t *testing.T) {
	for _, c := range []struct{ share, n int64 }{{1000, 17}, {60, 2}, {60, 60}, {10, 3}, {100_000, 1501}} {
		f := newFixed(map[time.Duration]int64{second: c.share})
		f.plan.Pacing = shape.Pacing{Even: true, Phase: 99}
		var now, served int64
		g := gateOf(f, 0, func(w *queue.Waiter, _ queue.Grant, v queue.Verdict) {
			if v != queue.Granted {
				t.Errorf("%+v: verdict %d at %v", c, v, time.Duration(now))
			}
			served += w.N()
		})
		g.Changed(at(0))
		for now < int64(3*second) {
			when, known := g.Estimate(at(time.Duration(now)), c.n, queue.Default)
			w := &queue.Waiter{}
			if _, v := g.Enter(at(time.Duration(now)), w, c.n, clock.Forever, queue.Default); v == queue.Granted {
				served += c.n
				continue
			} else if v != queue.Queued || !known {
				t.Fatalf("%+v: verdict %d at %v, known %v", c, v, time.Duration(now), known)
			}
			for g.mu.queue.Len() > 0 {
				now = g.Wake()
				g.Tick(at(time.Duration(now)))
			}
			if now != when {
				t.Fatalf("%+v: served at %v, foreseen at %v", c, time.Duration(now), time.Duration(when))
			}
		}
		if least := 3 * (c.share / c.n) * c.n; served < least {
			t.Errorf("%+v: %d issued in 3 s, want %d", c, served, least)
		}
	}
}

// TestWhenARefusalIsForgottenIsForeseen: permits are kept together for a
// refused request for two windows, and so they are foreseen. Later no more come
// together than those of a tick: of the 59 left in 470 ms, two in 10 ms at most.
func TestWhenARefusalIsForgottenIsForeseen(t *testing.T) {
	for phase := range uint64(64) {
		for _, c := range []struct {
			shutUntil time.Duration
			refused   int64
			together  int
		}{{2500 * ms, 40, 2}, {500 * ms, 1, 2}, {1500 * ms, 3, 4}} {
			f := newFixed(map[time.Duration]int64{second: 60})
			f.plan.Pacing = shape.Pacing{Even: true, Phase: phase}
			f.shutUntil = int64(c.shutUntil)
			var now int64
			foreseen, together := map[*queue.Waiter]int64{}, map[int64]int{}
			g := gateOf(f, 0, func(w *queue.Waiter, _ queue.Grant, _ queue.Verdict) {
				if now != foreseen[w] {
					t.Errorf("%+v: phase %d: served at %v, foreseen at %v", c, phase, time.Duration(now), time.Duration(foreseen[w]))
				}
				if together[now]++; together[now] > c.together {
					t.Errorf("%+v: phase %d: %d permits at %v: they are kept together still", c, phase, together[now], time.Duration(now))
				}
			})
			g.Changed(at(0))
			if _, ok := take(g, at(0), c.refused); ok {
				t.Fatal("permits while the gate is shut")
			}
			for range 5 {
				w := &queue.Waiter{}
				foreseen[w], _ = g.Estimate(at(0), 1, queue.Default)
				g.Enter(at(0), w, 1, clock.Forever, queue.Default)
			}
			for g.Wake() != clock.Forever {
				now = g.Wake()
				g.Tick(at(time.Duration(now)))
			}
		}
	}
}
