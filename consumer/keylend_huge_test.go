package consumer

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// blocked returns a limiter beside another one, and a key that an override blocks. looked is
// called after each look at the keys that lack permits, which are 1,000 at most.
func blocked(t *testing.T, looked func(y *keyState)) (m *market, key Key) {
	m, all := keyMarket(t, 10, 0, quota.OutageHold, "a", "b")
	const name = "key"
	limits := map[string]*protocol.Override{name: {Limits: []quota.Limit{{Permits: 0, Window: time.Second}}}}
	for _, s := range m.sinks {
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Overrides: map[int]*protocol.Overrides{protocol.OverrideBucket(name): {Keys: limits}}})
	}
	time.Sleep(time.Second)
	m.prove()
	l := all["a"]
	asks := &l.core.keys.asks
	var n atomic.Int32
	asks.alarm.Begin(func() {
		if n.Add(1) > 1000 {
			panic("it looks at the same key again and again")
		}
		asks.lookAll(l.core)
		y := l.core.keys.known(name)
		y.mu.Lock()
		defer y.mu.Unlock()
		looked(y)
	})
	return m, l.Key(name)
}

// Callers that want more than any limit can give wait for a blocked key to their deadline. The
// sum of their wants does not overflow. Nobody is asked for it, since nobody may issue any.
func TestHugeCallsForABlockedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, key := blocked(t, func(*keyState) {})
		key.TryAcquire()
		if _, err := key.Take(t.Context(), 1<<63-1, 500*time.Millisecond); err == nil {
			t.Error("a blocked key has permits")
		}
		if m.mu.Lock(); len(m.keyAsks) > 0 {
			t.Errorf("others are asked: %+v", m.keyAsks)
		}
		m.mu.Unlock()
	})
}

// A look that finds nothing to ask for, while a caller waits, is not repeated at the same
// instant, even if the counts are wrong.
func TestALookAtAKeyIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		_, key := blocked(t, func(*keyState) { looks.Add(1) })
		if _, err := key.Take(t.Context(), 1, 500*time.Millisecond); err == nil {
			t.Error("a blocked key has permits")
		}
		if n := looks.Load(); n < 3 || n > 60 {
			t.Errorf("%d looks in 500 ms, want one in 20 ms or less", n)
		}
	})
}
