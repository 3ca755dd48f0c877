package consumer

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// keyed runs a test in a bubble, at the beginning of a second, with a limiter of one
// instance.
func keyed(t *testing.T, p quota.Policy, f func(t *testing.T, l *Limiter, source *FixedSource)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := Fixed(p)
		l, err := Open(t.Context(), source, "github", Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f(t, l, source)
	})
}

// A call that waits for its key is refused at once if the provider's permits come too late for it, also where some are
// left that are kept for critical calls.
func TestACallOfAKeyIsRefusedForWhatIsKept(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0], p.Critical = quota.Limit{Permits: 100, Window: time.Minute}, 50
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		l.Key("a").TryTake(3)
		l.TryTake(47)
		began := time.Now()
		_, err := l.Key("a").Take(t.Context(), 3, 2*time.Second)
		if waited := time.Since(began); err == nil || waited > 0 {
			t.Errorf("%v after %v, want a refusal at once", err, waited)
		}
		if p, err := l.Class(Critical).Key("a").Take(t.Context(), 3, 2*time.Second); err != nil {
			t.Errorf("%d permits for a critical call: %v", p.N(), err)
		}
	})
}

// A key of a limiter's class has its calls in that class: critical ones get what is kept for
// them, and are counted, also when they come back.
func TestCallsOfAKeyHaveAClass(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0].Permits, p.Keys.Limits[0].Permits, p.Critical = 20, 20, 50
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		if n := l.Key("a").TryTake(20).N(); n != 10 {
			t.Errorf("%d permits without a class, want 10", n)
		}
		critical := l.Class(Critical).Key("b")
		tried := critical.TryTake(4)
		waited, err := critical.Take(t.Context(), 6, time.Millisecond)
		if tried.N() != 4 || err != nil {
			t.Errorf("critical calls got %d permits of 4, and %v", tried.N(), err)
		}
		if by := l.Status().IssuedBy; by[Critical] != 10 || by[Default] != 10 {
			t.Errorf("issued %v, want 10 and 10", by)
		}
		if !tried.Release() || !waited.Release() {
			t.Error("the permits do not come back")
		}
		if by := l.Status().IssuedBy; by[Critical] != 0 || by[Default] != 10 {
			t.Errorf("issued %v after they came back, want none and 10", by)
		}
	})
}

// A call that a key's long window cannot serve in time is refused at once, and told of that
// window's end, though a shorter one ends before. One for more than a share is told so.
func TestTheLastWindowThatLacksDecides(t *testing.T) {
	p := keyedPolicy()
	p.Keys.Limits = []quota.Limit{{Permits: 3, Window: time.Second}, {Permits: 5, Window: time.Minute}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		began := time.Now()
		key := l.Key("a")
		for _, want := range []int64{3, 2} {
			if n := key.TryTake(3).N(); n != want {
				t.Errorf("%d permits, want %d", n, want)
			}
			time.Sleep(time.Second)
		}
		asked := time.Now()
		_, err := key.Take(t.Context(), 1, 5*time.Second)
		var e LimitError
		if !errors.As(err, &e) || e.Window.Length != time.Minute || !e.RetryAt.Equal(began.Add(time.Minute)) || !time.Now().Equal(asked) {
			t.Errorf("%v (%+v) after %v; want a refusal at once, until the minute ends", err, e, time.Since(asked))
		}
		var large TooLargeError
		if _, err := key.Take(t.Context(), 6, 0); !errors.As(err, &large) || large.Largest != 3 {
			t.Errorf("6 of at most 3 in a window: %v", err)
		}
		if err := key.Acquire(t.Context(), time.Minute); err != nil || !time.Now().Equal(began.Add(time.Minute)) {
			t.Errorf("%v after %v, want a permit of the next minute", err, time.Since(began))
		}
	})
}

// A permit of a key that comes back goes to a caller that waits, also to one that just begins
// to: if nobody wakes it, it waits for the minute's end, and fake time moves.
func TestAKeysPermitThatComesBackWakesAWaiter(t *testing.T) {
	p := keyedPolicy()
	p.Keys.Limits = []quota.Limit{{Permits: 1, Window: time.Minute}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		began := time.Now()
		var all sync.WaitGroup
		held, _ := l.Key("a").Take(t.Context(), 1, 0)
		all.Go(func() {
			permit, err := l.Key("a").Take(t.Context(), 1, Forever)
			if err != nil || !permit.Release() {
				t.Errorf("one that waits: %v, or the permit does not come back", err)
			}
		})
		synctest.Wait()
		held.Release()
		for range 8 {
			all.Go(func() {
				for range 300 {
					permit, err := l.Key("a").Take(t.Context(), 1, Forever)
					if err != nil || !permit.Release() {
						t.Errorf("%v, or the permit does not come back", err)
						return
					}
				}
			})
		}
		all.Wait()
		if passed := time.Since(began); passed > 0 {
			t.Errorf("somebody waited for %v", passed)
		}
	})
}

// Names that never got a permit take no room from other keys: a Key alone has none, and after
// a sixteenth of the bound in new names those of before are forgotten.
func TestNamesAloneTakeNoRoom(t *testing.T) {
	p := keyedPolicy() // at most 100 keys
	p.Keys.Limits[0].Window = time.Minute
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		for i := range 300 {
			l.Key(fmt.Sprint("named ", i))
		}
		if n := l.Status().KeysInUse; n != 0 {
			t.Errorf("%d keys are in use, and nobody called", n)
		}
		for i := range 90 {
			if !l.Key(fmt.Sprint("customer ", i)).TryAcquire() {
				t.Errorf("customer %d was refused", i)
			}
		}
		l.TryTake(1000)
		for i := range 300 {
			l.Key(fmt.Sprint("invented ", i)).TryAcquire() // the provider has none
		}
		time.Sleep(time.Second)
		if err := l.Key("one more").Acquire(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if n := taken(l.Key("customer 1").TryAcquire); n != 2 {
			t.Errorf("a customer has %d permits more, want 2", n)
		}
	})
}
