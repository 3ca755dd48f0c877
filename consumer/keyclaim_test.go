package consumer

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
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
