package consumer

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// watched returns limiters a and b that share a key of so many permits a second, by an override. looked is called after each
// look of a at the keys that lack permits, which are 1,000 at most.
func watched(t *testing.T, permits int64, looked func()) (m *market, a, b Key) {
	m, all := keyMarket(t, 10, 0, quota.OutageHold, "a", "b")
	const name = "key"
	limits := map[string]*protocol.Override{name: {Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}}
	for _, s := range m.sinks {
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Overrides: map[int]*protocol.Overrides{protocol.OverrideBucket(name): {Keys: limits}}})
	}
	for range 5 { // the settle time
		time.Sleep(time.Second)
		m.prove()
	}
	l := all["a"]
	asks := &l.core.keys.asks
	var n atomic.Int32
	asks.alarm.Begin(func() {
		if n.Add(1) > 1000 {
			panic("it looks at the same key again and again")
		}
		asks.lookAll(l.core)
		looked()
	})
	return m, l.Key(name), all["b"].Key(name)
}

// keysAsked returns how many asks for keys there were.
func (m *market) keysAsked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.keyAsks)
}

// Callers that want more than any limit can give are refused at once by a blocked key. The sum of their wants does not
// overflow. Nobody is asked for it, since nobody may issue any.
func TestHugeCallsForABlockedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, key, _ := watched(t, 0, func() {})
		key.TryAcquire()
		for range 2 {
			if _, err := key.Take(t.Context(), 1<<63-1, 500*time.Millisecond); err == nil {
				t.Error("a blocked key has permits")
			}
			time.Sleep(500 * time.Millisecond)
		}
		if n := m.keysAsked(); n > 0 {
			t.Errorf("others are asked %d times", n)
		}
	})
}

// A look that finds nothing to ask for, while a caller waits, is not repeated at the same
// instant, even if the counts are wrong. So it is in windows after some in which others were asked in vain.
func TestALookAtAKeyIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		m, a, b := watched(t, 2, func() { looks.Add(1) })
		quiet := 0
		for range 8 {
			a.TryTake(2)
			b.TryTake(2)
			asked, looked := m.keysAsked(), looks.Load()
			if _, err := a.Take(t.Context(), 1, 500*time.Millisecond); err == nil {
				t.Error("there are more permits than the limit")
			}
			if m.keysAsked() == asked {
				quiet++
				if n := looks.Load() - looked; n < 3 || n > 60 {
					t.Errorf("%d looks in 500 ms, want one in 20 ms or less", n)
				}
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			m.prove()
		}
		if quiet == 0 {
			t.Error("others were asked in each window")
		}
	})
}
