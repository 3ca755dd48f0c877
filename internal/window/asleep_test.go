package window

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// A process that stood still refuses first: nobody is granted a permit after the
// time for which it was ready to wait, however late the gate is asked again, and
// by whom.
func TestAfterAPauseThoseWhoseTimeIsOverAreRefused(t *testing.T) {
	for name, wakes := range map[string]func(g *Gate, at clock.Instant, third *queue.Waiter){
		"the alarm": func(g *Gate, at clock.Instant, _ *queue.Waiter) { g.Tick(at) },
		"a caller":  func(g *Gate, at clock.Instant, _ *queue.Waiter) { take(g, at, 1) },
		"a caller that waits": func(g *Gate, at clock.Instant, _ *queue.Waiter) {
			g.Enter(at, &queue.Waiter{Payload: "new"}, 1, clock.Forever, queue.Default)
		},
		"a cancellation":        func(g *Gate, at clock.Instant, third *queue.Waiter) { g.Cancel(at, third) },
		"news":                  func(g *Gate, at clock.Instant, _ *queue.Waiter) { g.Changed(at) },
		"a look":                func(g *Gate, at clock.Instant, _ *queue.Waiter) { g.Usage(at) },
		"an estimate":           func(g *Gate, at clock.Instant, _ *queue.Waiter) { g.Estimate(at, 1, queue.Default) },
		"another limiter's end": func(g *Gate, at clock.Instant, _ *queue.Waiter) { g.Evict(at, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			var told told
			g := gateOf(newFixed(map[time.Duration]int64{second: 2}), 0, told.decided)
			g.Changed(at(0))
			take(g, at(0), 2)
			waiters := map[string]*queue.Waiter{}
			for _, w := range []struct {
				name  string
				ready time.Duration
			}{{"a", 1500 * time.Millisecond}, {"b", time.Hour}, {"c", time.Hour}, {"d", 59 * time.Second}} {
				waiters[w.name] = &queue.Waiter{Payload: w.name}
				if _, v := g.Enter(at(100*time.Millisecond), waiters[w.name], 1, int64(w.ready), queue.Default); v != queue.Queued {
					t.Fatalf("%s: %v", w.name, v)
				}
			}
			wakes(g, at(59700*time.Millisecond), waiters["c"])
			g.Tick(at(59700 * time.Millisecond))
			log := told.take()
			granted := 0
			for _, entry := range log {
				switch entry {
				case "a@59s", "d@59s":
					t.Errorf("granted, and its time was over: %v", log)
				case "b@59s", "c@59s":
					granted++
				}
			}
			if granted > 2 || granted == 0 {
				t.Errorf("%d are granted: %v", granted, log)
			}
		})
	}
}

// sleeper drives a gate by invented instants. The alarm rings when it is due,
// unless the process stands still.
type sleeper struct {
	*testing.T
	g     *Gate
	f     *fixed
	rng   *rand.Rand
	now   int64
	armed int64
	seed  uint64

	queued  []*queue.Waiter
	granted int64
}

// TestGateSleepsAndWakes: random callers, and pauses of the process in which no
// alarm rings. However it wakes: nobody is granted after its deadline or refused
// before it without a reason; after every call an alarm is set for what is due
// next, later than now; the head of the queue does not fit into what is left; and
// no window holds more than its share.
func TestGateSleepsAndWakes(t *testing.T) {
	for seed := uint64(1); seed <= 300; seed++ {
		s := &sleeper{T: t, rng: rand.New(rand.NewPCG(seed, 13)), seed: seed, armed: clock.Forever}
		s.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (s *sleeper) at() clock.Instant { return clock.Instant{Mono: s.now, Wall: s.now} }

func (s *sleeper) run() {
	r := s.rng
	shares := map[time.Duration]int64{}
	for range 1 + r.IntN(2) {
		shares[[]time.Duration{100 * time.Millisecond, second, 3 * second}[r.IntN(3)]] = 1 + r.Int64N(20)
	}
	s.f = newFixed(shares)
	switch r.IntN(4) {
	case 0:
		s.f.plan.Shape = shape.Shape{Sliding: true, Unaligned: true}
	case 1:
		s.f.plan.Shape = shape.Shape{Bucket: true, Unaligned: true}
		s.f.burst = 1 + r.Int64N(10)
	case 2:
		s.f.plan.Pacing = shape.Pacing{Even: true, Phase: r.Uint64()}
	}
	s.f.plan.Known = r.IntN(3) > 0 // or nobody is refused before its deadline
	s.g = NewGate(s.f, s.decided, func(wake int64) { s.armed = min(s.armed, wake) })
	s.g.Changed(s.at())
	for range 150 {
		s.step()
		s.check()
		s.pass()
		if s.Failed() {
			return
		}
	}
}

func (s *sleeper) decided(w *queue.Waiter, _ queue.Grant, v queue.Verdict) {
	for i, q := range s.queued {
		if q == w {
			s.queued = append(s.queued[:i], s.queued[i+1:]...)
			break
		}
	}
	switch {
	case v == queue.Granted && s.now > w.Deadline():
		s.Errorf("%v: granted %v after its deadline", time.Duration(s.now), time.Duration(s.now-w.Deadline()))
	case v == queue.Limited && s.now < w.Deadline() && w.Deadline()-s.now > int64(10*time.Second):
		s.Errorf("%v: refused %v before its deadline", time.Duration(s.now), time.Duration(w.Deadline()-s.now))
	case v == queue.Granted:
		s.granted += w.N()
	}
}

// step does one thing at random.
func (s *sleeper) step() {
	r, n := s.rng, 1+s.rng.Int64N(3)
	switch r.IntN(8) {
	case 0, 1, 2:
		w := &queue.Waiter{}
		deadline := clock.Forever
		if r.IntN(2) == 0 {
			deadline = s.now + r.Int64N(int64(6*second))
		}
		s.queued = append(s.queued, w)
		if _, v := s.g.Enter(s.at(), w, n, deadline, queue.Default); v != queue.Queued {
			s.queued = s.queued[:len(s.queued)-1]
		}
	case 3:
		take(s.g, s.at(), n)
	case 4:
		upTo(s.g, s.at(), n)
	case 5:
		s.g.Segment().Take(s.now, n, queue.Default) // as the hot path does
	case 6:
		if len(s.queued) > 0 {
			i := r.IntN(len(s.queued))
			w := s.queued[i]
			s.queued = append(s.queued[:i], s.queued[i+1:]...)
			if !s.g.Cancel(s.at(), w) {
				s.Errorf("a waiter that was not told cannot be cancelled")
			}
		}
	case 7:
		if grant, ok := take(s.g, s.at(), n); ok {
			refund(s.g, s.at(), grant, n)
		}
	}
}

// check looks at what must hold after every call.
func (s *sleeper) check() {
	u := s.g.Usage(s.at())
	if u.OverIssued > 0 {
		s.Errorf("%v: %d over", time.Duration(s.now), u.OverIssued)
	}
	if u.Waiting != len(s.queued) {
		s.Errorf("%v: %d wait, %d by count", time.Duration(s.now), u.Waiting, len(s.queued))
	}
	if u.Waiting == 0 {
		return
	}
	if wake := s.g.Wake(); s.armed > wake || wake <= s.now {
		s.Errorf("%v: the alarm is set for %v, and something is due at %v", time.Duration(s.now), time.Duration(s.armed), time.Duration(wake))
	}
	left := shape.Unbounded
	for _, l := range u.Limits {
		left = min(left, l.Left)
	}
	if s.queued[0].N() <= left {
		s.Errorf("%v: the first wants %d, and %d are left", time.Duration(s.now), s.queued[0].N(), left)
	}
	for _, w := range s.queued {
		if w.Deadline() <= s.now {
			s.Errorf("%v: waits %v after its deadline", time.Duration(s.now), time.Duration(s.now-w.Deadline()))
		}
	}
}

// pass lets time pass, with the alarms that ring in it or with none.
func (s *sleeper) pass() {
	r := s.rng
	to := s.now + r.Int64N([]int64{1, int64(20 * time.Millisecond), int64(second), int64(5 * second)}[r.IntN(4)])
	if r.IntN(5) == 0 { // the process stands still; the alarm that was due rings sometime after
		s.now = to + r.Int64N(int64(20*second))
		if r.IntN(2) == 0 {
			s.ring()
		}
		return
	}
	for rings := 0; s.armed <= to; rings++ {
		if rings > 10_000 {
			s.Errorf("%v: the alarm rings for ever", time.Duration(s.now))
			return
		}
		s.now = max(s.now, s.armed)
		s.ring()
		s.check()
		if s.Failed() {
			return
		}
	}
	s.now = max(s.now, to)
}

func (s *sleeper) ring() {
	s.armed = clock.Forever
	s.g.Tick(s.at())
}
