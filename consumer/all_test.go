package consumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// opened returns a limiter of a provider of its own, with its source.
func opened(t *testing.T, provider, limits string) *Limiter {
	t.Helper()
	l, err := Open(t.Context(), Fixed(policyOf(t, limits)), provider, Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestTakeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := opened(t, "a", "2/s"), opened(t, "b", "10/s"), opened(t, "c", "10/s")
		issued := func(want ...int64) {
			t.Helper()
			for i, l := range []*Limiter{a, b, c} {
				if n := l.Status().Issued; n != want[i] {
					t.Errorf("%s has issued %d, want %d", l.core.provider, n, want[i])
				}
			}
		}
		permits, err := TakeAll(t.Context(), 0, map[Taker]int64{a: 1, b: 4, c: 8})
		if err != nil || len(permits) != 3 || permits[b].N() != 4 || !permits[c].Valid(0) {
			t.Fatalf("%v, %v", permits, err)
		}
		issued(1, 4, 8)
		// c refuses, and what a and b gave is there again in its window.
		var limited LimitError
		_, err = TakeAll(t.Context(), 0, map[Taker]int64{a: 1, b: 6, c: 3})
		if !errors.As(err, &limited) || limited.Provider != "c" || limited.Asked != 3 {
			t.Errorf("refused with %v", err)
		}
		issued(1, 4, 8)
		if !a.TryAcquire() || take(t.Context(), b, 6, 0) != nil {
			t.Error("what was taken is lost")
		}
		if err := errors.Join(permits[b].Settle(1), permits[c].Settle(9)); err != nil || take(t.Context(), b, 3, 0) != nil || take(t.Context(), c, 2, 0) == nil {
			t.Errorf("each is settled by itself: %v", err)
		}
		// All wait for the next window, with one maxWait.
		start := time.Now()
		if _, err := TakeAll(t.Context(), 2*time.Second, map[Taker]int64{a: 2, c: 10}); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := TakeAll(t.Context(), 500*time.Millisecond, map[Taker]int64{b: 1, c: 1}); !errors.As(err, &limited) || limited.Provider != "c" {
			t.Errorf("refused with %v", err)
		}
		if u := b.Status().Shortest(); u.Used != 0 {
			t.Errorf("%d of b are used", u.Used)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := TakeAll(ctx, Forever, map[Taker]int64{b: 1, c: 1}); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrLimited) {
			t.Errorf("cancelled: %v", err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := TakeAll(cancelled, Forever, map[Taker]int64{b: 1, c: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		time.AfterFunc(100*time.Millisecond, func() { _ = c.Close() })
		for range 2 { // while it waits, and before
			if _, err := TakeAll(t.Context(), Forever, map[Taker]int64{b: 1, c: 1}); !errors.Is(err, ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
		if u := b.Status().Shortest(); u.Used != 0 {
			t.Errorf("%d of b are used", u.Used)
		}
	})
}

func TestTakeAllRefusesBadInput(t *testing.T) {
	bubble(t, "10/s", Options{}, func(t *testing.T, ctx context.Context, source *FixedSource, l *Limiter) {
		for name, wants := range map[string]map[Taker]int64{
			"nothing": nil, "a nil limiter": {nil: 1, l: 1}, "no permits": {l: 0}, "fewer": {l: -1},
			"one provider twice": {l: 1, open(t, source, Options{}): 1},
		} {
			if permits, err := TakeAll(ctx, 0, wants); !errors.Is(err, ErrInvalid) || permits != nil || l.Status().Issued != 0 {
				t.Errorf("%s: %v, %v", name, permits, err)
			}
		}
	})
}

// A permit whose window ends while a later limiter is waited for is acquired again: none
// that is returned is over.
func TestTakeAllReturnsPermitsOfRunningWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := opened(t, "a", "3/200ms"), opened(t, "b", "1/s")
		b.TryAcquire()
		start := time.Now()
		permits, err := TakeAll(t.Context(), Forever, map[Taker]int64{a: 2, b: 1})
		if err != nil || time.Since(start) != time.Second || !permits[a].Valid(199*time.Millisecond) || !permits[b].Valid(0) {
			t.Errorf("%v after %v: %v, %v", err, time.Since(start), permits[a].Until(), permits[b].Until())
		}
	})
}

// If a permit cannot be acquired again while the later ones last, these go back in their
// window, for others.
func TestTakeAllHoldsNothingInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := opened(t, "a", "3/200ms"), opened(t, "b", "1/s")
		b.TryAcquire()
		var done sync.WaitGroup
		done.Go(func() {
			start := time.Now()
			permits, err := TakeAll(t.Context(), Forever, map[Taker]int64{a: 2, b: 1})
			if err != nil || time.Since(start) != 2800*time.Millisecond || !permits[a].Valid(0) || !permits[b].Valid(0) {
				t.Errorf("%v after %v: %v, %v", err, time.Since(start), permits[a].Until(), permits[b].Until())
			}
		})
		time.Sleep(500 * time.Millisecond)
		for range 12 { // one in each of a's windows
			done.Go(func() { _ = take(t.Context(), a, 2, Forever) })
		}
		time.Sleep(600 * time.Millisecond) // b's next window has begun
		synctest.Wait()
		if !b.TryAcquire() {
			t.Error("b's permit is held, though a has no room in its window")
		}
		done.Wait()
	})
}

// Callers neither block nor starve each other, though a map has no order: with one permit
// of each a window, one is served in every window, and each in its turn.
func TestTakeAllServesEachInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := opened(t, "a", "1/s"), opened(t, "b", "1/s")
		const callers, rounds = 4, 5
		_, _ = a.TryAcquire(), b.TryAcquire() // or the first is served before others ask
		start, served := time.Now(), [callers]int{}
		var mu sync.Mutex
		var done sync.WaitGroup
		for i := range callers {
			done.Go(func() {
				for range rounds {
					if _, err := TakeAll(t.Context(), Forever, map[Taker]int64{b: 1, a: 1}); err != nil {
						t.Error(err)
					}
					mu.Lock()
					served[i]++
					most, least := served[0], served[0]
					for _, n := range served {
						most, least = max(most, n), min(least, n)
					}
					if most-least > 1 {
						t.Errorf("after %v served %v", time.Since(start), served)
					}
					mu.Unlock()
				}
			})
		}
		done.Wait()
		if took := time.Since(start); took != callers*rounds*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := a.Status().Issued + b.Status().Issued; n != 2*(callers*rounds+1) {
			t.Errorf("%d permits for %d calls", n, callers*rounds)
		}
	})
}

// The limiter that is waited for is asked first, whatever its name: the others spend no
// permits on calls that wait.
func TestTakeAllWastesNoPermits(t *testing.T) {
	for _, limits := range [][2]string{{"10/s", "5/s"}, {"5/s", "10/s"}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := opened(t, "a", limits[0]), opened(t, "b", limits[1])
			calls := int64(0)
			var mu sync.Mutex
			var callers sync.WaitGroup
			for range 20 {
				callers.Go(func() {
					for {
						if _, err := TakeAll(ctx, Forever, map[Taker]int64{a: 1, b: 1}); err != nil {
							return
						}
						mu.Lock()
						calls++
						mu.Unlock()
						time.Sleep(time.Millisecond)
					}
				})
			}
			time.Sleep(20 * time.Second)
			cancel()
			callers.Wait()
			if n := max(a.Status().Issued, b.Status().Issued); calls < 100 || n > calls+10 {
				t.Errorf("a %s, b %s: %d permits for %d calls", limits[0], limits[1], n, calls)
			}
		})
	}
}
