package consumer

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TryTake returns what it takes of the provider, also where the key has fewer permits than
// were wanted and the gate publishes another segment meanwhile. Each call that is interrupted
// between the two shows it.
func TestTryTakeLosesNoPermits(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0].Permits = 1e8
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		var taking, publishing sync.WaitGroup
		var done atomic.Bool
		for _, name := range []string{"a", "b", "c"} {
			publishing.Go(func() {
				for !done.Load() {
					l.core.gate.Changed(l.core.clock.Now())
				}
			})
			taking.Go(func() {
				for range 150_000 {
					l.Key(name).TryTake(5).Release()
				}
			})
		}
		taking.Wait()
		done.Store(true)
		publishing.Wait()
		if used := l.Status().Shortest().Used; used != 0 {
			t.Errorf("all was given back, and %d permits of the provider are lost", used)
		}
	})
}
