package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// provedKeys opens a limiter of 100 permits a minute and 3 a second for each key, under the outage rule stop. An
// instance that does not prove its view for 2 s is stale.
func provedKeys(t *testing.T) (*stub, *Limiter) {
	p := policyOf(t, "100/m")
	p.Keys.Limits, p.Outage = []quota.Limit{{Permits: 3, Window: time.Second}}, quota.OutageStop
	s := &stub{clock: clock.New()}
	l := open(t, s.source(), Options{})
	s.tell(1, withDefaults(p), 1)
	time.Sleep(time.Minute + 100*time.Millisecond)
	s.prove()
	return s, l
}

// A payment of a debt is a use: while the proof is over a key pays none with its share, which another instance may
// have by then. With the next proof it pays at once, and whoever waits for the key is served with what is left.
func TestAKeyPaysNoDebtByAnOldProof(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, l := provedKeys(t)
			key := l.Key("a")
			late := key.TryTake(1)
			if late.N() != 1 {
				t.Fatal("no permit by a fresh proof")
			}
			time.Sleep(2500 * time.Millisecond)
			if err := late.Settle(3); err != nil { // 2 more
				t.Fatal(err)
			}
			if err := key.Acquire(t.Context(), 0); !errors.Is(err, ErrStale) {
				t.Errorf("a call while the proof is over: %v", err)
			}
			if key.TryAcquire() { // nor are later calls of this window refused for it
				t.Error("a permit beside a debt, by an old proof")
			}
			if owed := l.core.keys.known("a").use.Debt(); owed != 2 {
				t.Errorf("%d permits are owed, want 2: some were paid by an old proof", owed)
			}
			served := make(chan error, 1)
			if waits {
				go func() { served <- key.Acquire(t.Context(), time.Second) }()
				synctest.Wait()
			}
			s.prove()
			synctest.Wait()
			if waits {
				proved := time.Now()
				if err := <-served; err != nil || time.Since(proved) > 0 {
					t.Errorf("a call that waits is served %v after the next proof: %v", time.Since(proved), err)
				}
			} else if n := taken(key.TryAcquire); n != 1 {
				t.Errorf("%d permits, want 1 of 3: 2 pay the debt", n)
			}
		})
	}
}

// A call that waits for the provider may hear of its permits late, as where the process did not run. Then the key
// gives it none if the proof is over.
func TestAKeyConfirmsNoPermitsByAnOldProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := provedKeys(t)
		key := l.Key("a")
		key.TryTake(1)
		y := l.core.keys.known("a")
		confirmed := func(pause time.Duration) bool {
			y.use.Reserve(1)
			g, err := l.acquire(context.Background(), 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
			_, ok := l.confirm(y, nil, g, 1)
			return ok
		}
		if !confirmed(time.Second) {
			t.Error("a permit of a window that runs is not confirmed")
		}
		s.prove()
		if confirmed(2500 * time.Millisecond) {
			t.Error("a permit is issued by an old proof")
		}
	})
}

// A call that comes to a key while the gate goes on to the next segment is not refused because the one that is over pays no
// debt any more: it tries again by the next one, which pays, and leaves some.
func TestADebtThatTheNextSegmentPaysRefusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := provedKeys(t)
		key := l.Key("a")
		late := key.TryTake(3)
		if err := late.Settle(4); err != nil { // 1 more than the window has
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		k, y := l.core, l.core.keys.known("a")
		s, now := k.segmentNow()
		tried := false
		k.gate.Booked = func([]window.Use) {
			if tried || s.Open(now) {
				return
			}
			tried = true
			y.hold(&k.keys)
			defer y.mu.Unlock()
			if f, got := l.tryAccount(y, s, now, 1, all); f != moved || got != 0 {
				t.Errorf("a call between two segments has %d permits, found %v; want that it tries again", got, f)
			}
			if owed := y.use.Debt(); owed != 1 {
				t.Errorf("%d permits are owed; want 1: no segment runs that can pay", owed)
			}
		}
		k.gate.Changed(k.clock.Now())
		if n := taken(key.TryAcquire); !tried || n != 2 {
			t.Errorf("tried %v; then %d permits, want 2 of 3: one pays the debt", tried, n)
		}
	})
}
