package window

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// TestStress lets 64 goroutines take, wait, cancel and return with instants that
// run backwards, while the share changes: no window may hold more than the
// largest share it ever had, and none more than its smallest bound allows from
// then on.
func TestStress(t *testing.T) {
	const length = 100 * time.Millisecond
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := newFixed(map[time.Duration]int64{length: 0, 3 * length: 0})
	f.bound = func(w quota.Window) int64 { return shareOf(w) }
	issued := [2]sync.Map{} // by window start: *atomic.Int64, for both lengths
	count := func(g queue.Grant, n int64) {
		for i, l := range []time.Duration{length, 3 * length} {
			c, _ := issued[i].LoadOrStore(quota.WindowAt(l, g.Start).Index, new(atomic.Int64))
			c.(*atomic.Int64).Add(n)
		}
	}
	g := gateOf(f, 1000, func(w *queue.Waiter, gr queue.Grant, v queue.Verdict) {
		if v == queue.Granted {
			count(gr, w.N())
		}
	})
	g.Changed(at(0))
	var now atomic.Int64
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
			for range 3000 {
				i := clock.Instant{Mono: now.Add(rnd.Int64N(int64(200*time.Microsecond))) - rnd.Int64N(int64(20*time.Millisecond))}
				n := 1 + rnd.Int64N(3)
				switch rnd.IntN(12) {
				case 0:
					w := &queue.Waiter{}
					gr, v := g.Enter(i, w, n, i.Mono+rnd.Int64N(int64(3*length)), queue.Default)
					if v == queue.Granted {
						count(gr, n)
					} else if v == queue.Queued && rnd.IntN(3) == 0 {
						g.Cancel(i, w)
					}
				case 1:
					g.Changed(i)
				case 2:
					if gr, ok := take(g, i, n); ok {
						if !refund(g, i, gr, n) {
							count(gr, n)
						}
					}
				default:
					s := g.Segment()
					if s.Take(i.Mono, n, queue.Default) {
						count(s.Grant, n)
					} else if gr, ok := take(g, i, n); ok {
						count(gr, n)
					}
				}
			}
		})
	}
	wg.Wait()
	windows := 0
	for i, l := range []time.Duration{length, 3 * length} {
		issued[i].Range(func(k, v any) bool {
			windows++
			w := quota.Window{Length: l, Index: k.(int64)}
			if n := v.(*atomic.Int64).Load(); n > shareOf(w) {
				t.Errorf("window %v: %d permits, share %d", w, n, shareOf(w))
			}
			return true
		})
	}
	if windows < 100 {
		t.Errorf("only %d windows were seen", windows)
	}
}

func shareOf(w quota.Window) int64 {
	if w.Length == 100*time.Millisecond {
		return w.Index % 97
	}
	return 100 + w.Index%50
}
