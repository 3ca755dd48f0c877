package consumer

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// TestAKeptKeyFindsItsStateOnce: a Key that was made before the first use of its name puts its own state
// into use. One that was kept while its name was forgotten looks that up once and not at each call.
func TestAKeptKeyFindsItsStateOnce(t *testing.T) {
	p := keyedPolicy()
	p.Keys.Limits = []quota.Limit{{Permits: 3, Window: time.Second}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		early := l.Key("a")
		if n := l.Status().KeysInUse; n != 0 {
			t.Errorf("%d keys are in use before a call", n)
		}
		for round := range 3 {
			if !early.TryAcquire() || !l.Key("a").TryAcquire() || !early.TryAcquire() || early.TryAcquire() || l.Key("a").TryAcquire() {
				t.Fatalf("round %d: not the three permits of the key", round)
			}
			state := early.state.latest()
			if state != l.core.keys.known("a") {
				t.Errorf("round %d: the Key does not know its state", round)
			}
			if (state == early.state) != (round == 0) { // a state that was forgotten is not used again
				t.Errorf("round %d: the Key's own state is in use: %v", round, state == early.state)
			}
			time.Sleep(1500 * time.Millisecond)
			s, _ := l.core.segmentNow()
			l.core.keys.swept = nil
			if l.core.keys.sweep(s.Keys); l.core.keys.known("a") != nil {
				t.Fatalf("round %d: the key is not forgotten", round)
			}
		}
	})
}

// TestKeptKeysFindTheirStateInEachOrder: whatever came before, a call of a kept Key ends, is counted for the name, and
// has the Key know the name's state. The steps that may come before are calls of two Keys that were made before the
// first use of the name, a call of a new Key, an instance that asks to borrow, and that the name is forgotten.
func TestKeptKeysFindTheirStateInEachOrder(t *testing.T) {
	var kept atomic.Pointer[Key] // the one that is called
	var stuck atomic.Bool
	defer time.AfterFunc(time.Minute, func() { // real time: this is made outside of the bubble
		y := kept.Load()
		stuck.Store(true)
		y.state.next.Store(nil) // it ends now, if it follows next
	}).Stop()
	orders := []string{""}
	for range 5 {
		var longer []string
		for _, o := range orders {
			for _, step := range []string{"early ", "second ", "new ", "guest ", "forget "} {
				longer = append(longer, o+step)
			}
		}
		orders = longer
	}
	orders = slices.DeleteFunc(orders, func(o string) bool { return !strings.HasSuffix(o, "early ") })
	p := keyedPolicy()
	p.Keys.Limits[0].Permits, p.Limits[0].Permits = 100, 1000
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Fixed(p), Options{})
		k := l.core
		for _, order := range orders {
			early, second := l.Key(order), l.Key(order)
			kept.Store(&early)
			calls := 0
			for step := range strings.FieldsSeq(order) {
				s, _ := k.segmentNow()
				switch step {
				case "guest":
					k.keys.find(order, nil, s.Keys, true)
				case "forget":
					time.Sleep(1500 * time.Millisecond)
					s, _ = k.segmentNow()
					k.keys.swept = nil
					if k.keys.sweep(s.Keys); k.keys.known(order) != nil {
						t.Fatalf("%s: the key is not forgotten", order)
					}
					calls = 0
				default:
					y := map[string]Key{"early": early, "second": second, "new": l.Key(order)}[step]
					kept.Store(&y)
					if calls++; !y.TryAcquire() || y.state.latest() != k.keys.known(order) || stuck.Load() {
						t.Fatalf("%s: %s gets no permit, does not know its state, or spun until the test ended that: %v", order, step, stuck.Load())
					}
				}
			}
			state := k.keys.known(order)
			state.hold(&k.keys)
			if left := state.use.Left(); left != 100-int64(calls) || state.guest {
				t.Errorf("%s: %d permits left after %d calls; for guests only: %v", order, left, calls, state.guest)
			}
			state.mu.Unlock()
			time.Sleep(1500 * time.Millisecond)
			s, _ := k.segmentNow()
			k.keys.swept = nil
			k.keys.sweep(s.Keys)
		}
	})
}
