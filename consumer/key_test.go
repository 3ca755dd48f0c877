package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// keyedPolicy has 1,000/s for all and 3/s for each key.
func keyedPolicy() quota.Policy {
	return quota.Policy{
		Limits: []quota.Limit{{Permits: 1000, Window: time.Second}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 3, Window: time.Second}}, Most: 100},
	}
}

func taken(try func() bool) (n int) {
	for try() {
		n++
	}
	return n
}

// A call of a key needs a permit of the key and one of the provider: each key has its own
// limit, and no key more than the provider has.
func TestAKeyHasItsOwnLimit(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		for range 3 { // windows
			for _, name := range []string{"a", "b"} {
				if n := taken(l.Key(name).TryAcquire); n != 3 {
					t.Errorf("%s: %d permits, want 3", name, n)
				}
			}
			if used := l.Status().Shortest().Used; used != 6 {
				t.Errorf("the provider has issued %d, want 6", used)
			}
			if p := l.TryTake(2000); p.N() != 994 {
				t.Errorf("without a key %d are left, want 994", p.N())
			}
			if l.Key("c").TryAcquire() {
				t.Error("a key has a permit that the provider has not")
			}
			time.Sleep(time.Second)
		}
	})
}

// Take and TryTake give all or none, and as many as there are. Released permits come back
// to the key and to the provider, once.
func TestPermitsOfAKey(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		p, err := key.Take(t.Context(), 2, 0)
		if err != nil || p.N() != 2 {
			t.Fatalf("%d permits, %v", p.N(), err)
		}
		if q := key.TryTake(5); q.N() != 1 {
			t.Errorf("%d permits, want the one that is left", q.N())
		}
		for _, want := range []bool{true, false} {
			if p.Release() != want {
				t.Error("permits are not released once")
			}
		}
		if q := key.TryTake(5); q.N() != 2 {
			t.Errorf("%d permits after a release of 2", q.N())
		}
		if used := l.Status().Shortest().Used; used != 3 {
			t.Errorf("the provider has issued %d, want 3", used)
		}
	})
}

// A permit whose window is over gives nothing back, though the key's window still runs.
func TestAReleaseAfterTheProvidersWindow(t *testing.T) {
	p := keyedPolicy()
	p.Keys.Limits = []quota.Limit{{Permits: 3, Window: time.Minute}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		first := key.TryTake(2)
		time.Sleep(3 * time.Second)
		for range 2 {
			if first.Release() {
				t.Error("permits of a window that is over were given back")
			}
		}
		if q := key.TryTake(5); q.N() != 1 {
			t.Errorf("%d permits, want the one that is left", q.N())
		}
	})
}

// A debt of a key is paid by its later windows. The other keys go on.
func TestADebtOfAKey(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		if err := key.TryTake(1).Settle(6); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{0, 0, 3} { // 1 and 2 paid; 3 paid; none is owed
			if n := taken(key.TryAcquire); n != want {
				t.Errorf("%d permits, want %d", n, want)
			}
			if n := taken(l.Key("b").TryAcquire); n != 3 {
				t.Errorf("another key has %d permits, want 3", n)
			}
			time.Sleep(time.Second)
		}
		if err := key.TryTake(3).Settle(1); err != nil {
			t.Fatal(err)
		}
		if n := taken(key.TryAcquire); n != 2 {
			t.Errorf("%d permits after 3 cost 1, want 2", n)
		}
	})
}

// A debt is not lost if the key was forgotten before it was known.
func TestADebtOfAForgottenKey(t *testing.T) {
	p := keyedPolicy()
	p.Keys.Most = 1
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		late := l.Key("a").TryTake(1)
		time.Sleep(time.Second)
		if !l.Key("b").TryAcquire() {
			t.Fatal("a key whose window is over was not forgotten")
		}
		if err := late.Settle(7); err != nil { // 3 are paid now, and 3 in the next window
			t.Fatal(err)
		}
		for _, want := range []int{0, 3} {
			time.Sleep(time.Second)
			if n := taken(l.Key("a").TryAcquire); n != want {
				t.Errorf("%d permits, want %d", n, want)
			}
		}
	})
}

// Callers of one key are served in order, those of a spent key hold up no other, and a
// caller that cannot be served in time is refused immediately.
func TestWaitingForAKey(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		began := time.Now()
		key := l.Key("a")
		taken(key.TryAcquire)
		served := make([]int, 7) // second, by place
		var wg sync.WaitGroup
		for i := range served {
			wg.Go(func() {
				if err := key.Acquire(t.Context(), Forever); err != nil {
					t.Error(err)
				}
				served[i] = int(time.Since(began) / time.Second)
			})
			synctest.Wait()
		}
		if n := l.Status().Waiting; n != len(served) {
			t.Errorf("%d callers wait, want %d", n, len(served))
		}
		if err := l.Key("b").Acquire(t.Context(), Forever); err != nil || time.Since(began) > 0 {
			t.Errorf("another key waited for %v: %v", time.Since(began), err)
		}
		err := key.Acquire(t.Context(), 10*time.Millisecond)
		if limited, ok := errors.AsType[LimitError](err); !ok || time.Since(began) > 0 || limited.Key != "a" || limited.Share != 3 || limited.Total != 3 || limited.Instances != 1 {
			t.Errorf("a caller in vain: after %v %#v", time.Since(began), err)
		} else if text := "no permit for key \"a\": the limit of 3/s is used up; next at "; !strings.Contains(err.Error(), text) {
			t.Errorf("%v: lacks %q", err, text)
		}
		wg.Wait()
		if got := fmt.Sprint(served); got != "[1 1 1 2 2 2 3]" {
			t.Errorf("served in seconds %s", got)
		}
	})
}

// A caller that waits for the provider keeps its permit of the key, and gives it back if
// it gives up.
func TestWaitingForTheProvider(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0] = quota.Limit{Permits: 2, Window: 10 * time.Second}
	p.Keys.Limits = []quota.Limit{{Permits: 1, Window: 30 * time.Second}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		l.TryTake(2)
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan error, 1)
		go func() { told <- l.Key("a").Acquire(ctx, Forever) }()
		synctest.Wait()
		if l.Key("a").TryAcquire() {
			t.Error("the permit of the key is kept for one that waits")
		}
		second := make(chan error, 1)
		go func() { second <- l.Key("a").Acquire(t.Context(), Forever) }()
		synctest.Wait()
		cancel()
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		began := time.Now()
		if err := <-second; err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("the next caller: after %v %v", time.Since(began), err)
		}
		if l.Key("a").TryAcquire() {
			t.Error("the permit of the key was issued twice")
		}
	})
}

// A key that cannot be used is refused with an error that says why and what to do.
func TestErrorsOfKeys(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, source *FixedSource) {
		for name, want := range map[string]string{
			"":                       "is empty",
			strings.Repeat("x", 257): "has 257 bytes, more than the most, 256",
			"a\x00":                  "has a control character",
			"\xff":                   "is not valid UTF-8",
		} {
			err := l.Key(name).Acquire(t.Context(), 0)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || l.Key(name).TryAcquire() || l.Key(name).TryTake(1).N() != 0 {
				t.Errorf("%q: %v", name, err)
			}
		}
		if err := l.Key("a").Acquire(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if _, err := l.Key("a").Take(t.Context(), 4, Forever); !errors.Is(err, ErrTooLarge) {
			t.Errorf("more than the limit: %v", err)
		}
		if _, err := l.Key("a").Take(t.Context(), 0, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("no permit: %v", err)
		}
		waits := make(chan error, 1)
		taken(l.Key("a").TryAcquire)
		go func() { waits <- l.Key("a").Acquire(t.Context(), Forever) }()
		synctest.Wait()
		p := keyedPolicy()
		p.Keys = quota.Keys{}
		if err := source.Set(p); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{<-waits, l.Key("a").Acquire(t.Context(), time.Second)} {
			if !errors.Is(err, ErrNoPolicy) || !strings.Contains(err.Error(), "quota-admin set github "+quota.FormatLimits(p.Limits)+" --keys LIMITS") {
				t.Errorf("without limits by key: %v", err)
			}
		}
		if !l.TryAcquire() {
			t.Error("without a key nothing is issued")
		}
		if err := source.Set(keyedPolicy()); err != nil {
			t.Fatal(err)
		}
		if l.Key("b").TryAcquire() {
			t.Error("limits by key are new: other instances may not know them yet")
		}
		time.Sleep(5 * time.Second)
		taken(l.Key("a").TryAcquire)
		go func() { waits <- l.Key("a").Acquire(t.Context(), Forever) }()
		synctest.Wait()
		_ = l.Close()
		for _, err := range []error{<-waits, l.Key("b").Acquire(t.Context(), time.Second)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// Beyond the bound a new name is refused, a known one is not. When the window is over, the
// names of before make room.
func TestTooManyKeys(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		for window := range 3 {
			for i := range 100 {
				if !l.Key(fmt.Sprint(window, i)).TryAcquire() {
					t.Fatalf("window %d: key %d was refused", window, i)
				}
			}
			err := l.Key("one more").Acquire(t.Context(), Forever)
			if text := "key \"one more\" would be one more than 100"; !errors.Is(err, ErrTooManyKeys) || !strings.Contains(err.Error(), text) || l.Key("one more").TryAcquire() {
				t.Errorf("one more: %v", err)
			}
			if st := l.Status(); st.KeysInUse != 100 || st.KeysRefused != int64(2+3*window) {
				t.Errorf("%d keys in use, %d permits of keys refused", st.KeysInUse, st.KeysRefused)
			}
			if n := taken(l.Key(fmt.Sprint(window, 7)).TryAcquire); n != 2 {
				t.Errorf("a known key has %d more, want 2", n)
			}
			time.Sleep(time.Second)
		}
	})
}

// A caller that gives up, or whose limiter closes, holds up nobody behind it.
func TestACallerThatLeavesTheQueueOfAKey(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, source *FixedSource) {
		other, err := Open(t.Context(), source, "github", Options{})
		if err != nil {
			t.Fatal(err)
		}
		l.Key("a").TryTake(2)
		began := time.Now()
		wait := func(ctx context.Context, l *Limiter, n int64) chan error {
			told := make(chan error, 1)
			go func() {
				_, err := l.Key("a").Take(ctx, n, Forever)
				told <- err
			}()
			synctest.Wait()
			return told
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third := wait(ctx, l, 3), wait(t.Context(), other, 2), wait(t.Context(), l, 1)
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		_ = other.Close()
		if err := <-second; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := <-third; err != nil || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// Callers for keys count among those that may wait.
func TestTooManyWaitForAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(t.Context(), Fixed(keyedPolicy()), "github", Options{Logger: quiet, MaxWaiters: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		taken(l.Key("a").TryAcquire)
		told := make(chan error, 1)
		go func() { told <- l.Key("a").Acquire(t.Context(), Forever) }()
		synctest.Wait()
		if err := l.Key("a").Acquire(t.Context(), Forever); !errors.Is(err, ErrQueueFull) {
			t.Error(err)
		}
		if err := <-told; err != nil {
			t.Error(err)
		}
	})
}

// In shadow mode every call passes, and those beyond the key's limit are counted.
func TestKeysInShadowMode(t *testing.T) {
	p := keyedPolicy()
	p.Mode, p.Keys.Most = quota.ModeShadow, 2
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		for range 5 {
			if !l.Key("a").TryAcquire() {
				t.Error("a call was refused")
			}
		}
		q, err := l.Key("a").Take(t.Context(), 2, 0)
		if err != nil || q.N() != 2 || q.Release() {
			t.Errorf("%d permits, %v", q.N(), err)
		}
		if q := l.Key("b").TryTake(5); q.N() != 5 {
			t.Errorf("%d permits, want 5", q.N())
		}
		if !l.Key("one more").TryAcquire() || l.Key("one more").Acquire(t.Context(), 0) != nil {
			t.Error("a call for one key too many was refused")
		}
		if st := l.Status(); st.Issued != 6 || st.Shadowed != 8 {
			t.Errorf("issued %d, shadowed %d; want 6 and 8", st.Issued, st.Shadowed)
		}
	})
}

// Whatever is forgotten, no key has more than its limits in any of its windows: its use is
// counted here by its name, and the names are far more than may be in use.
func TestForgettingLosesNoUse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := keyedPolicy()
			p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 3, Window: 500 * time.Millisecond}, {Permits: 7, Window: 3 * time.Second}}, Most: 5}
			keyed(t, p, func(t *testing.T, l *Limiter, source *FixedSource) {
				r := rand.New(rand.NewPCG(seed, 1))
				counted, refused, issued := map[string]int64{}, 0, 0
				for range 3000 {
					name := fmt.Sprint(r.IntN(12))
					now, got := time.Now(), int64(0)
					switch _, err := l.Key(name).Take(t.Context(), 1, 0); {
					case err == nil:
						got = 1
					case errors.Is(err, ErrTooManyKeys):
						refused++
					case r.IntN(3) == 0:
						got = l.Key(name).TryTake(4).N()
					}
					issued += int(got)
					for _, limit := range p.Keys.Limits {
						at := fmt.Sprint(name, limit, now.UnixNano()/int64(limit.Window))
						if counted[at] += got; counted[at] > limit.Permits {
							t.Fatalf("key %s has %d permits in a window of %v", name, counted[at], limit)
						}
					}
					switch r.IntN(40) {
					case 0:
						time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
					case 1, 2, 3, 4:
						time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
					case 5: // other bounds, but the same windows
						p.Limits[0].Permits = 1000 + r.Int64N(9)
						if err := source.Set(p); err != nil {
							t.Fatal(err)
						}
					}
				}
				if refused < 50 || issued < 500 {
					t.Errorf("%d names were refused, %d permits issued: this tests too little", refused, issued)
				}
			})
		})
	}
}

// A key may be forgotten between the instant at which a call finds it and the one at which the call has its lock. The call
// then finds a state that has permits.
func TestAKeyForgottenOnTheWayToIt(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		m, y := &l.core.keys, l.Key("a")
		s, _ := l.core.segmentNow()
		found, none := m.find("a", y.state, s.Keys, false)
		if found == nil || found.gone {
			t.Fatalf("no state for the key: %v", none)
		}
		part := m.part("a")
		part.Lock()
		m.forget(part, s.Keys)
		part.Unlock()
		if !found.gone {
			t.Fatal("the key is not forgotten")
		}
		if got := y.TryTake(1).N(); got != 1 {
			t.Errorf("%d permits of a key that nobody has called for, want 1", got)
		}
	})
}

// A key in use takes at most 400 bytes, and ten times as many names that were touched take no
// more than those that may be in use.
func TestMemoryOfKeys(t *testing.T) {
	p := keyedPolicy()
	const most, names = 20_000, 200_000
	p.Limits[0].Permits = quota.MaxPermits
	p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 80, Window: 250 * time.Millisecond}, {Permits: 5000, Window: time.Second}}, Most: most}
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(t.Context(), Fixed(p), "github", Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		before := heapInUse()
		for i := range names {
			if i%most == 0 && i > 0 {
				time.Sleep(time.Second)
			}
			if name := fmt.Sprintf("installation-%d", i); !l.Key(name).TryAcquire() {
				t.Fatalf("name %d was refused", i)
			}
			if i+1 == most || i+1 == names {
				each := (heapInUse() - before) / most
				if t.Logf("%d bytes for each key in use, after %d names", each, i+1); each > 400 {
					t.Errorf("%d bytes for each key in use, after %d names", each, i+1)
				}
			}
		}
	})
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Permits that come back are for those that wait for the key, not for a newcomer that asks
// for fewer.
func TestNobodyOvertakesAtAKey(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		began, key := time.Now(), l.Key("a")
		one, two := key.TryTake(1), key.TryTake(2)
		told := make(chan error, 1)
		go func() {
			_, err := key.Take(t.Context(), 2, Forever)
			told <- err
		}()
		synctest.Wait()
		if !one.Release() || key.TryAcquire() {
			t.Error("a newcomer overtakes one that waits")
		}
		two.Release()
		if err := <-told; err != nil || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if n := taken(key.TryAcquire); n != 1 {
			t.Errorf("%d permits are left, want 1", n)
		}
	})
}

// Many goroutines take, wait for, release and settle permits of a few keys at once. No key
// has more than its limit in any window.
func TestKeysUnderStress(t *testing.T) {
	t.Parallel()
	const limit, length = 40, 250 * time.Millisecond
	p := quota.Policy{
		Limits: []quota.Limit{{Permits: 150, Window: length}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: limit, Window: length}}, Most: 4},
	}
	l, err := Open(t.Context(), Fixed(p), "github", Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var mu sync.Mutex
	issued := map[string]int64{}
	var wg sync.WaitGroup
	for seed := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 3000 {
				name := fmt.Sprint("key-", r.IntN(6))
				var q Permit
				switch key := l.Key(name); r.IntN(4) {
				case 0:
					q, _ = key.Take(t.Context(), 1+r.Int64N(3), time.Duration(r.IntN(40))*time.Millisecond)
				case 1:
					q, _ = key.Take(t.Context(), 1, 0)
				default:
					q = key.TryTake(1 + r.Int64N(4))
				}
				if q.N() == 0 {
					continue
				}
				net := q.N()
				switch r.IntN(5) {
				case 0:
					if q.Release() {
						net = 0
					}
				case 1:
					if q.N() > 1 && q.Settle(q.N()+1) != nil {
						t.Error("a permit cannot be settled")
					}
				}
				at := fmt.Sprint(name, quota.WindowAt(length, q.Start().UnixNano()).Index)
				mu.Lock()
				issued[at] += net
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for at, n := range issued {
		if n > limit {
			t.Errorf("%s: %d permits, at most %d", at, n, limit)
		}
	}
	if n := l.Status(); n.OverIssued > 0 || n.Waiting > 0 {
		t.Errorf("%+v", n)
	}
	t.Logf("%d windows of keys", len(issued))
}
