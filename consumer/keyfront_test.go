package consumer

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Calls for a key get permits of the key and of the provider, or none, while plans follow each other: what
// they got, and were refused, is what everybody counts.
func TestCallsOfAKeyCountOnceWhilePlansChange(t *testing.T) {
	const bound = 100_000
	policy := func(more int64) quota.Policy {
		return quota.Policy{
			Limits: []quota.Limit{{Permits: bound*2 + more, Window: time.Minute}},
			Keys:   quota.Keys{Limits: []quota.Limit{{Permits: bound + more%2, Window: time.Minute}}, Most: 100},
		}
	}
	keyed(t, policy(0), func(t *testing.T, l *Limiter, source *FixedSource) {
		key := l.Key("a")
		var issued, refused atomic.Int64
		var over atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for !over.Load() {
					if key.TryAcquire() {
						issued.Add(1)
					} else {
						refused.Add(1)
					}
				}
			})
		}
		for more := int64(1); issued.Load() < bound || refused.Load() < 1000; more++ {
			if err := source.Set(policy(more)); err != nil {
				t.Error(err)
				break
			}
			runtime.Gosched()
		}
		over.Store(true)
		wg.Wait()
		st, used := l.Status(), key.Limits()[0].Used
		if n := issued.Load(); st.Issued != n || used != n || n > bound+1 {
			t.Errorf("calls got %d permits; the provider counts %d, the key %d of %d", n, st.Issued, used, bound)
		}
		if n := refused.Load(); st.KeysRefused != n {
			t.Errorf("%d calls were refused; %d count", n, st.KeysRefused)
		}
	})
}
