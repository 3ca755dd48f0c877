package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Callers that want more than any limit can give wait for a blocked key to their deadline. What
// they want together does not overflow: asks go on, a bounded number of them.
func TestHugeCallsForABlockedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 10, 0, quota.OutageHold, "a", "b")
		const key = "key"
		limits := map[string][]quota.Limit{key: {{Permits: 0, Window: time.Second}}}
		for _, s := range m.sinks {
			s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Overrides: map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Keys: limits}}})
		}
		time.Sleep(time.Second)
		m.prove()
		l := all["a"]
		looks := l.core.keys.asks.alarm.fire
		n := 0
		l.core.keys.asks.alarm.fire = func() {
			if n++; n > 1000 {
				panic("it looks at the same key again and again")
			}
			looks()
		}
		l.Key(key).TryAcquire()
		if _, err := l.Key(key).Take(t.Context(), 1<<63-1, 500*time.Millisecond); err == nil {
			t.Error("a blocked key has permits")
		}
	})
}
