package consumer

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer/internal/tally"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
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
		var plain int64
		for more := int64(1); issued.Load() < bound || refused.Load() < 1000; more++ {
			if err := source.Set(policy(more)); err != nil {
				t.Error(err)
				break
			}
			runtime.Gosched()
			if y := l.core.keys.known("a"); y != nil { // as if calls crowded, also on one processor
				y.crowded(l.core, l.core.gate.Segment())
				y.hold(&l.core.keys)
				y.front.Refuse(&y.use, l.core.keys.quiet.CompareAndSwap(nil, y))
				y.mu.Unlock()
			}
			if l.TryAcquire() {
				plain++
			}
			if more%7 == 0 {
				l.Status()
			}
		}
		over.Store(true)
		wg.Wait()
		st, used := l.Status(), key.Limits()[0].Used
		if n := issued.Load(); st.Issued != n+plain || used != n || n > bound+1 {
			t.Errorf("calls got %d permits; the provider counts %d, the key %d of %d", n, st.Issued, used, bound)
		}
		if n := refused.Load(); st.KeysRefused != n {
			t.Errorf("%d calls were refused; %d count", n, st.KeysRefused)
		}
	})
}

// A call for all that the provider has left for its class gets that, of which some may back the front of a key on which
// calls crowd.
func TestWhatBacksAFrontIsForEveryCall(t *testing.T) {
	for name, all := range map[string]func(t *testing.T, l *Limiter, n int64) int64{
		"TryTake":          func(_ *testing.T, l *Limiter, n int64) int64 { return l.TryTake(n).N() },
		"TryTake of a key": func(_ *testing.T, l *Limiter, n int64) int64 { return l.Key("b").TryTake(n).N() },
		"Take": func(t *testing.T, l *Limiter, n int64) int64 {
			p, err := l.Take(t.Context(), n, 0)
			if err != nil {
				t.Error(err)
			}
			return p.N()
		},
		"Take of a key": func(t *testing.T, l *Limiter, n int64) int64 {
			p, err := l.Key("b").Take(t.Context(), n, 0)
			if err != nil {
				t.Error(err)
			}
			return p.N()
		},
		"one by one": func(_ *testing.T, l *Limiter, _ int64) (n int64) {
			for l.TryAcquire() {
				n++
			}
			return n
		},
		"one by one of a key": func(_ *testing.T, l *Limiter, _ int64) (n int64) {
			for l.Key("b").TryAcquire() {
				n++
			}
			return n
		},
	} {
		for _, critical := range []int64{0, 10} {
			t.Run(fmt.Sprintf("%s, %d%% critical", name, critical), func(t *testing.T) {
				p := quota.Policy{
					Limits:  []quota.Limit{{Permits: 10_000, Window: time.Second}},
					Keys:    quota.Keys{Limits: []quota.Limit{{Permits: 10_000, Window: time.Second}}, Most: 100},
					Release: quota.Release{Critical: critical},
				}
				keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
					key, left := l.Key("a"), 10_000-100*critical
					key.TryAcquire()
					l.core.keys.known("a").crowded(l.core, l.core.gate.Segment())
					if key.TryAcquire(); !l.core.gate.Segment().Backs() {
						t.Fatal("nothing backs the front")
					}
					if n := all(t, l, left-2); n != left-2 {
						t.Errorf("%d permits of %d", n, left-2)
					}
					if st := l.Status(); st.Issued != left {
						t.Errorf("%d are issued, want %d", st.Issued, left)
					}
				})
			})
		}
	}
}

// Of one key at a time a front refuses without telling at once, and whoever asks how many were refused hears of all.
func TestWhatAQuietFrontRefusesCounts(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		m, total := &l.core.keys, int64(0)
		refuse := func(name string, n int64) {
			t.Helper()
			for range n {
				if l.Key(name).TryAcquire() {
					t.Fatal("issued")
				}
			}
			total += n
		}
		quiet := func(name string) {
			t.Helper()
			l.Key(name).TryTake(1000)
			total += 1000 - keyedPolicy().Keys.Limits[0].Permits
			y := m.known(name)
			y.hold(m)
			y.front.Refuse(&y.use, m.quiet.CompareAndSwap(nil, y))
			y.mu.Unlock()
		}
		quiet("a")
		quiet("b")
		told := m.refused.Load()
		refuse("a", 300)
		if n := m.refused.Load() - told; n != 0 || m.quiet.Load() != m.known("a") {
			t.Errorf("%d were told at once", n)
		}
		refuse("b", 3)
		if n := m.refused.Load() - told; n != 3 {
			t.Errorf("of another key %d were told at once, want 3", n)
		}
		for range 2 {
			if n := l.Status().KeysRefused; n != total || m.quiet.Load() != nil {
				t.Errorf("%d are refused, want %d", n, total)
			}
			refuse("a", 4)
		}
		quiet("c")
		refuse("c", 5)
		time.Sleep(time.Second)
		l.Key("c").TryAcquire() // it is looked at
		if n := m.refused.Load(); n != total || m.quiet.Load() != nil {
			t.Errorf("%d are refused once the key was looked at, want %d", n, total)
		}
	})
}

// A call that has permits of a key, and then finds the provider's segment sealed, gives them back: they
// count nowhere, and whoever waits for them gets them at once.
func TestAKeyGetsBackWhatTheProviderDidNotIssue(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		l.Status()
		for range 2 * noteBatch { // the busiest keys hear of them
			key.TryAcquire()
		}
		time.Sleep(time.Second)
		began := time.Now()
		key.TryAcquire()
		s, y := l.core.gate.Segment(), l.core.keys.known("a")
		part, v := y.front.Take(s, math.MaxInt64, 2, queue.Default, true)
		if v != window.Torn {
			t.Fatalf("taken after the segment's end: %d", v)
		}
		waits := make(chan error, 1)
		go func() { waits <- key.Acquire(t.Context(), Forever) }()
		synctest.Wait()
		l.core.uncharge(y, part, s.Keys, 2)
		if err := <-waits; err != nil || time.Since(began) > 0 {
			t.Errorf("who waits for them: %v, after %v", err, time.Since(began))
		}
		if used := key.Limits()[0].Used; used != 2 {
			t.Errorf("%d of the key are used, want 2", used)
		}
		time.Sleep(2 * time.Second)
		key.Limits() // the last ones are counted
		time.Sleep(tally.Period)
		if got := l.Status().BusiestKeys; len(got) != 1 || math.Round(got[0].Issued*13) != 3+2 {
			t.Errorf("busiest keys: %v, want 5 permits in 13 s", got)
		}
	})
}

// Where a caller waits for more than a key has left, none of its class or a lower one overtakes it, also
// after one of a higher class has.
func TestNobodyOvertakesBehindACriticalCall(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		key.TryAcquire()
		waits := make(chan error, 1)
		go func() {
			_, err := key.Take(t.Context(), 3, Forever)
			waits <- err
		}()
		synctest.Wait()
		if !l.Class(Critical).Key("a").TryAcquire() {
			t.Error("a critical call does not overtake")
		}
		if key.TryAcquire() {
			t.Error("another call overtakes behind it")
		}
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// In shadow mode no call for a key is refused, also if that mode begins in a window in which calls were.
func TestShadowModeBeginsForASpentKey(t *testing.T) {
	p := keyedPolicy()
	keyed(t, p, func(t *testing.T, l *Limiter, source *FixedSource) {
		key := l.Key("a")
		if n := taken(key.TryAcquire); n != 3 || key.TryAcquire() {
			t.Errorf("%d permits, want 3", n)
		}
		p.Mode = quota.ModeShadow
		if err := source.Set(p); err != nil {
			t.Fatal(err)
		}
		if !key.TryAcquire() || l.Status().KeysRefused != 2 {
			t.Errorf("a call was refused in shadow mode; %d refused, want 2", l.Status().KeysRefused)
		}
	})
}

// A call for a key that the provider has no permit for is refused by the provider.
func TestTheProviderRefusesACallForAKey(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0].Permits = 1
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		for range 4 {
			l.Key("a").TryAcquire()
		}
		if st := l.Status(); st.Issued != 1 || st.Refused != 3 || st.KeysRefused != 0 {
			t.Errorf("%d issued, %d refused, %d of keys; want 1, 3 and none", st.Issued, st.Refused, st.KeysRefused)
		}
		if used := l.Key("a").Limits()[0].Used; used != 1 {
			t.Errorf("%d of the key are used, want 1", used)
		}
	})
}
