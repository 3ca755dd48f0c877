package consumer

import (
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// Nobody gets what is left of a key past the first in line, for the time in which others may lend what it lacks. After
// that those behind it do, and newcomers.
func TestOthersPassAKeysFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 20, 0, quota.OutageHold, "a", "b")
		m.deaf["b"] = true
		y, start := all["a"].Key("key"), time.Now()
		y.TryTake(6)
		waits := func(n int64, served func(time.Duration)) {
			t.Helper()
			y.TakeFunc(n, Forever, func(_ Permit, err error) {
				if err != nil {
					t.Error(err)
				}
				served(time.Since(start))
			})
			synctest.Wait()
		}
		var first, behind time.Duration
		waits(8, func(at time.Duration) { first = at })
		waits(3, func(at time.Duration) { behind = at })
		if y.TryAcquire() {
			t.Error("a newcomer passes within the claim")
		}
		time.Sleep(150 * time.Millisecond)
		if synctest.Wait(); first != 0 || behind != 100*time.Millisecond {
			t.Errorf("the first caller is served after %v, the one behind it after %v: want it to pass after 100 ms", first, behind)
		}
		if !y.TryAcquire() || y.TryAcquire() {
			t.Error("a newcomer does not have the one permit that is left beside the first caller")
		}
		time.Sleep(time.Second)
		if synctest.Wait(); first < time.Second || first > 1010*time.Millisecond {
			t.Errorf("the first caller is served after %v, want at the next edge", first)
		}
	})
}

// An instance lends at an edge what a large call that stands wants, before it asks others for what it then lacks: that ask
// would come to the guest before the loan.
func TestAKeyIsLentAtAnEdgeBeforeOthersAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 20, 0, quota.OutageHold, "a", "b")
		l := all["a"]
		y, k := l.Key("key"), l.core
		y.TryTake(10)
		k.keys.lines.alarm.Stop() // so that the look at the key comes first
		y.TakeFunc(1, Forever, func(Permit, error) {})
		synctest.Wait()
		s, _ := k.segmentNow()
		need := protocol.Need{Permits: 4000, Edge: 4000, Large: true}
		if _, told := k.lendKey("b", "key", s.Keys.Running, need, 0); told > 0 {
			t.Fatalf("%d are lent of none", told)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		s, now := k.segmentNow()
		loans := func() int { m.mu.Lock(); defer m.mu.Unlock(); return len(m.keyLoans) }
		before := loans()
		k.ask(y.state.latest(), s, now, keyRequests{})
		if loans() == before {
			t.Error("a look at the key lends nothing at the edge")
		}
	})
}

// To a caller elsewhere the owner of a key lends up to an equal part of the limit as to small calls: only a call for more
// is asked for as a large one.
func TestACallElsewhereIsLargeAboveAnEqualPart(t *testing.T) {
	for n, want := range map[int64]bool{5: false, 10: false, 11: true} {
		synctest.Test(t, func(t *testing.T) {
			m, all := keyMarket(t, 20, 1, quota.OutageHold, "a", "b")
			l := all["a"]
			y := l.Key("0")
			for i := 1; ; i++ {
				if _, here := y.Owner(); !here {
					break
				}
				y = l.Key(strconv.Itoa(i))
			}
			m.deaf["b"] = true
			y.TakeFunc(n, Forever, func(Permit, error) {})
			synctest.Wait()
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.keyAsks) == 0 {
				t.Fatal("nobody is asked")
			}
			if need := m.keyAsks[len(m.keyAsks)-1].Needs[y.state.key.Name]; need.Large != want {
				t.Errorf("for %d of 20 among 2 it asks for %+v", n, need)
			}
		})
	}
}

// Permits of a key that have come are offered to those that wait before a newcomer gets any, also if it is the first to
// look: at the edge of a window, and in the middle, and as it joins them. The newcomer has the rest.
func TestThoseThatWaitForAKeyComeBeforeANewcomer(t *testing.T) {
	inTheMiddle := func(y *keyState, k *core) {
		y.hold(&k.keys)
		y.use.Charge(-7)
		y.came = true
		y.mu.Unlock() // whoever brings permits serves the line next
	}
	for name, c := range map[string]struct {
		come  func(y *keyState, k *core)
		joins bool // the newcomer's first attempt was before
		rest  int64
	}{
		"at an edge":    {func(*keyState, *core) { time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) }, false, 2},
		"in the middle": {inTheMiddle, false, 1},
		"as it joins":   {inTheMiddle, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, all := keyMarket(t, 20, 0, quota.OutageHold, "a", "b")
				m.deaf["b"] = true
				y, k := all["a"].Key("key"), all["a"].core
				y.TryTake(8)
				served := false
				y.TakeFunc(8, Forever, func(_ Permit, err error) { served = err == nil })
				time.Sleep(200 * time.Millisecond) // its claim has ended
				k.keys.lines.alarm.Stop()
				k.keys.asks.alarm.Stop() // so that the newcomer comes first
				c.come(y.state.latest(), k)
				got := int64(0)
				if !c.joins {
					got = y.TryTake(5).N()
				} else if w := (&queue.Waiter{Payload: make(chan struct{}, 1)}); k.keys.lines.enter(k, y.state.latest(), w, 5, clock.Forever, queue.Default) == queue.Granted {
					got = 5
				}
				if synctest.Wait(); got != c.rest || !served {
					t.Errorf("a newcomer gets %d, want %d; the first one is served: %v", got, c.rest, served)
				}
			})
		})
	}
}

// A key that never lacked permits takes no memory to trade them while a caller waits for another key.
func TestAKeyThatLacksNothingHasNoTrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 20, 0, quota.OutageHold, "a", "b")
		m.deaf["b"] = true
		l := all["a"]
		l.Key("lacks").TryTake(8)
		l.Key("lacks").TakeFunc(8, Forever, func(Permit, error) {})
		y := l.Key("has")
		if !y.TryTake(2).Release() {
			t.Error("a permit does not come back")
		}
		trades := func(y Key) bool {
			return !reflect.ValueOf(&y.state.latest().use).Elem().FieldByName("trade").IsNil()
		}
		if !trades(l.Key("lacks")) || trades(y) {
			t.Errorf("the key that lacks permits has a trade: %v; the other one: %v", trades(l.Key("lacks")), trades(y))
		}
	})
}
