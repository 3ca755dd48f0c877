package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// keyMarket returns limiters of instances that share limits by key of so many permits a
// second, which owners have, and lend to each other.
func keyMarket(t *testing.T, permits, owners int64, outage quota.Outage, ids ...string) (*market, map[string]*Limiter) {
	t.Helper()
	return keyMarketOf(t, quota.Keys{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Owners: owners}, outage, ids...)
}

func keyMarketOf(t *testing.T, keys quota.Keys, outage quota.Outage, ids ...string) (*market, map[string]*Limiter) {
	t.Helper()
	return keyMarketBeside(t, keys, nil, outage, ids...)
}

// keyMarketBeside is keyMarketOf, with overrides of keys.
func keyMarketBeside(t *testing.T, keys quota.Keys, overrides map[string]*protocol.Override, outage quota.Outage, ids ...string) (*market, map[string]*Limiter) {
	t.Helper()
	p := policyOf(t, "1000000/s")
	p.Keys, p.Outage = keys, outage
	v := protocol.View{Revision: 1, Policy: withDefaults(p), PolicyRevision: 1, Overrides: map[int]*protocol.Overrides{}}
	for name, o := range overrides { // each in a document of its own
		v.Overrides[protocol.OverrideBucket(name)] = &protocol.Overrides{Keys: map[string]*protocol.Override{name: o}}
	}
	for _, id := range ids {
		v.Instances = append(v.Instances, protocol.Instance{ID: id, Name: id})
	}
	m := &market{sinks: map[string]*stub{}, delay: 3 * time.Millisecond, deaf: map[string]bool{}}
	all := map[string]*Limiter{}
	for _, id := range ids {
		s := &stub{clock: clock.New()}
		all[id] = open(t, s.source(), Options{})
		s.sink.Reset(s.clock.Now(), id, v)
		m.sinks[id] = s
		s.sink.Carry(m)
	}
	time.Sleep(3500 * time.Millisecond)
	m.prove()
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	return m, all
}

func (m *market) prove() {
	for _, s := range m.sinks {
		s.prove()
	}
}

// asksBy returns the asks by second, as the windows have it.
func (m *market) asksBy() map[int64]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[int64]int{}
	for _, a := range m.keyAsks {
		all[a.Windows[0].Index]++
	}
	return all
}

// A call for a key that is refused behind one for more than the share says so, also when nothing is left.
func TestARefusalOfAKeyNamesALargeCallAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := keyMarket(t, 10, 0, quota.OutageHold, "a", "b")
		y := all["a"].Key("key")
		y.TryTake(5)
		all["b"].Key("key").TryTake(5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = y.Take(ctx, 8, Forever) }()
		synctest.Wait()
		_, err := y.Take(ctx, 1, 0)
		const want = `consumer: p: no permit for key "key": 1 caller is ahead, and the first wants 8, more than this instance's share of 5`
		if e, _ := errors.AsType[LimitError](err); err == nil || e.Reason != ReasonQueue || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v (%s), want %q", err, e.Reason, want)
		}
	})
}

// An instance that asks in vain asks a bounded number of times in a window, and then rests
// for some windows. Callers that wait are refused meanwhile.
func TestAsksForAKeyAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 10, 1, quota.OutageHold, "a", "b")
		l := all["a"]
		key := "key"
		for n := 0; ; n++ {
			if key = fmt.Sprint("key-", n); func() bool { _, self := l.Key(key).Owner(); return !self }() {
				break
			}
		}
		m.deaf["b"] = true
		refused := false
		began := time.Now()
		for time.Since(began) < 20*time.Second {
			if l.Key(key).TryAcquire() {
				t.Fatal("a permit comes from nowhere")
			}
			time.Sleep(5 * time.Millisecond)
			if m.prove(); !refused && time.Since(began) > 5*time.Second {
				var limited LimitError
				if err := l.Key(key).Acquire(t.Context(), 8*time.Second); !errors.As(err, &limited) || limited.Owner != "b" {
					t.Fatalf("a caller that waits for what nobody lends: %v", err)
				}
				if refused = true; time.Since(began) > 10*time.Second {
					t.Errorf("it waited for %v in vain", time.Since(began)-5*time.Second)
				}
			}
		}
		by, sum := m.asksBy(), 0
		for window, n := range by {
			if sum += n; n > 10 {
				t.Errorf("%d asks in window %d", n, window)
			}
		}
		if len(by) < 3 || len(by) > 9 {
			t.Errorf("asked in %d windows of 20: it should rest for most of them: %v", len(by), by)
		}
		if m.deaf = map[string]bool{}; sum == 0 {
			t.Error("nothing was asked")
		}
	})
}

// Keys that have no room in an ask are asked for in the next rounds.
func TestKeysWithoutRoomAreAskedForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 10, 0, quota.OutageHold, "a", "b")
		const keys = 1000
		for k := range keys {
			for range 6 { // one more than the share
				all["a"].Key(fmt.Sprint("installation-", k)).TryAcquire()
			}
		}
		time.Sleep(200 * time.Millisecond)
		m.mu.Lock()
		asked := map[string]bool{}
		for _, a := range m.keyAsks {
			text, err := json.Marshal(a.Note)
			if len(text) > protocol.MostAsked+256 || err != nil {
				t.Errorf("an ask of %d bytes, %v", len(text), err)
			}
			for key := range a.Needs {
				asked[key] = true
			}
		}
		m.mu.Unlock()
		if len(asked) != keys {
			t.Errorf("%d of %d keys were asked for", len(asked), keys)
		}
		for k := range keys {
			if !all["a"].Key(fmt.Sprint("installation-", k)).TryAcquire() {
				t.Fatalf("installation-%d has no borrowed permit", k)
			}
		}
	})
}

// An instance whose proof is too old lends nothing, as it issues nothing. Nor does one whose
// own callers wait for the key.
func TestWhoLendsNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 10, 0, quota.OutageStop, "a", "b")
		lends := func() bool {
			m.mu.Lock()
			m.keyLoans = nil // of b
			m.mu.Unlock()
			m.sinks["a"].sink.Asked("b", protocol.Note{Windows: []quota.Window{quota.WindowAt(time.Second, time.Now().UnixNano())}, Needs: map[string]protocol.Need{"key": {Permits: 1000}}})
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.keyLoans) > 0
		}
		m.prove()
		if !lends() {
			t.Fatal("it does not lend")
		}
		ctx, cancel := context.WithCancel(t.Context())
		all["a"].Key("key").TryTake(2)
		go func() { _, _ = all["a"].Key("key").Take(ctx, 5, 900*time.Millisecond) }() // its share; large ones yield
		synctest.Wait()
		if lends() {
			t.Error("it lends what its own callers wait for")
		}
		cancel()
		time.Sleep(4 * time.Second)
		if lends() {
			t.Error("it lends without a fresh proof")
		}
	})
}

// What a host does not lend at once stands: it lends more late in the window, when it keeps less for its own
// callers, though nobody asks again.
func TestAnAskForAKeyStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 100, 0, quota.OutageHold, "a", "b")
		key := all["b"].Key("key")
		for key.TryAcquire() { // from the first refusal on it counts its calls
		}
		calls := func(d time.Duration) { // 40 a second
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(25 * time.Millisecond) {
				key.TryAcquire()
				m.prove()
			}
		}
		calls(3 * time.Second)
		m.keyLoans = nil
		note := protocol.Note{Windows: []quota.Window{quota.WindowAt(time.Second, time.Now().UnixNano())}, Needs: map[string]protocol.Need{"key": {Permits: 50_000}}}
		m.sinks["b"].sink.Asked("a", note)
		calls(800 * time.Millisecond)
		m.mu.Lock()
		early := slices.Clone(m.keyLoans)
		m.mu.Unlock()
		calls(199 * time.Millisecond)
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(early) > 1 || len(m.keyLoans) != len(early)+1 || slices.ContainsFunc(m.keyLoans, func(n protocol.Note) bool { return n.Windows[0] != note.Windows[0] }) {
			t.Errorf("%v are lent by 800 ms, and %v by the window's end", early, m.keyLoans)
		}
	})
}

// An override of one key, with a window of another length, changes nothing for another key: it is lent all that the others
// do not want, in the windows of its own limit.
func TestAKeyBesideAnOverrideOfAShorterWindow(t *testing.T) {
	for _, c := range []struct {
		what        string
		owners      int64
		override    quota.Limit // of the key vip
		key         string      // the calls are for it
		calls, each int64
	}{
		{"a large call", 0, quota.Limit{Permits: 20, Window: time.Second}, "plain", 1, 60},
		{"small calls beyond the share", 0, quota.Limit{Permits: 20, Window: time.Second}, "plain", 40, 1},
		{"small calls, of keys with an owner", 1, quota.Limit{Permits: 20, Window: time.Second}, "plain", 40, 1},
		{"a large call for the key of a longer window", 0, quota.Limit{Permits: 100, Window: 30 * time.Second}, "vip", 1, 60},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, all := keyMarketBeside(t, quota.Keys{Limits: []quota.Limit{{Permits: 100, Window: 10 * time.Second}}, Owners: c.owners},
					map[string]*protocol.Override{"vip": {Limits: []quota.Limit{c.override}}}, quota.OutageHold, "a", "b", "c", "d")
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 2500*time.Millisecond)))
				m.prove()
				for id, l := range all {
					if _, self := l.Key(c.key).Owner(); c.owners > 0 && self {
						continue
					}
					began := time.Now()
					for range c.calls {
						if _, err := l.Key(c.key).Take(t.Context(), c.each, 3*time.Second); err != nil {
							t.Fatalf("%s, after %v: %v", id, time.Since(began), err)
						}
					}
					return
				}
			})
		})
	}
}
