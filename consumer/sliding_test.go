package consumer

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// calls are when a provider was called.
type calls struct {
	mu sync.Mutex
	at []time.Time
}

func (c *calls) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
}

// most returns the most calls within a window, wherever it begins.
func (c *calls) most(window time.Duration) (most int) {
	slices.SortFunc(c.at, time.Time.Compare)
	for i, j := 0, 0; j < len(c.at); j++ {
		for c.at[j].Sub(c.at[i]) > window {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

// counts returns how many calls a provider counts beyond its limit if it counts anew with the first call after
// a window, and the first that it counts is at or after an instant. use is what was had of the limit between the
// starts of its first and its last window.
func (c *calls) counts(limit int, window time.Duration, from time.Time) (over int, use float64) {
	var first, last time.Time
	n, all := 0, 0
	for _, at := range c.at {
		if at.Before(from) {
			continue
		}
		if first.IsZero() {
			first, last = at, at
		}
		if at.Sub(last) >= window {
			all, n, last = all+n, 0, at
		}
		if n++; n > limit {
			over++
		}
	}
	return over, float64(all) / float64(limit) / (float64(last.Sub(first)) / float64(window))
}

// A sliding limit of an hour holds at each phase of the provider's hour, which begins with its first call,
// and nearly all of it is used: by three instances, of the provider and of a key. Nothing is stated.
func TestASlidingLimitHoldsAtEveryPhase(t *testing.T) {
	t.Parallel()
	const limit, hours = 5000, 3
	kinds := []bool{true, false} // by key
	if testing.Short() {
		kinds = kinds[:1]
	}
	for _, byKey := range kinds {
		synctest.Test(t, func(t *testing.T) {
			policy := policyOf(t, "80/s,5000/h sliding")
			if byKey {
				policy.Keys.Limits = policy.Limits
				policy.Limits = policyOf(t, "1000/s").Limits
			}
			bank, sinks, all := longFleet(t, withDefaults(policy), "a", "b", "c")
			var made calls
			var callers sync.WaitGroup
			for i, l := range all {
				take := l.Take
				if byKey {
					take = l.Key("x").Take
				}
				for range 1 + i {
					callers.Go(func() {
						for {
							if _, err := take(t.Context(), 1, Forever); err != nil {
								return // closed
							}
							made.add()
						}
					})
				}
			}
			for range hours * 3600 {
				for _, s := range sinks {
					s.prove()
				}
				bank.serve(sinks...)
				time.Sleep(time.Second)
			}
			for _, l := range all {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			callers.Wait()
			if most := made.most(time.Hour); most > limit {
				t.Errorf("by key %v: %d calls within an hour", byKey, most)
			}
			for phase := range 1000 {
				if over, _ := made.counts(limit, time.Hour, made.at[0].Add(time.Duration(phase)*3600*time.Millisecond)); over > 0 {
					t.Errorf("by key %v, phase %d: %d calls over the provider's limit", byKey, phase, over)
				}
			}
			_, use := made.counts(limit, time.Hour, made.at[0])
			if t.Logf("by key %v: %d calls, %.4f used, %d writes", byKey, len(made.at), use, bank.writes); use < 0.97 {
				t.Error("too little is used")
			}
		})
	}
}

// Who is refused is told when enough permits count no more, and has them then: of one limiter that has all of
// the limit, of an instance of a fleet, and of a key.
func TestASlidingLimitSaysWhenThereIsMore(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bank, sinks, all := longKeys(t, "1000/s,10/h sliding", "a", "b")
			take := all[0].Key("x").Take
			if alone {
				take = open(t, Fixed(policyOf(t, "1000/s,10/h sliding")), Options{}).Take
			}
			serve := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
					for _, s := range sinks {
						s.prove()
					}
					bank.serve(sinks...)
				}
			}
			takes := func(n int64) error {
				if _, err := take(t.Context(), n, 0); err == nil {
					return nil
				}
				serve(time.Second) // it is fetched
				_, err := take(t.Context(), n, 0)
				return err
			}
			serve(time.Minute)
			for _, n := range []int64{4, 6} {
				if err := takes(n); err != nil {
					t.Fatal(err)
				}
				serve(10 * time.Minute)
			}
			err := takes(3)
			var limited LimitError
			if !errors.As(err, &limited) || !strings.Contains(err.Error(), "the limit of 10/h sliding is used up") {
				t.Fatal(err)
			}
			if late := time.Until(limited.RetryAt) - 40*time.Minute; late.Abs() > 2*time.Minute {
				t.Errorf("told to try again in %v", time.Until(limited.RetryAt))
			}
			serve(time.Until(limited.RetryAt) - 2*time.Second)
			if err := takes(3); err == nil {
				t.Errorf("there are 3 before %v", limited.RetryAt)
			}
			serve(3 * time.Second)
			if err := takes(3); err != nil {
				t.Errorf("at %v: %v", time.Now(), err)
			}
			if err := takes(2); err == nil {
				t.Error("4 were taken first, and 5 have come back")
			}
		})
	}
}

// A limit that slides stands beside shorter ones of each shape.
func TestASlidingLimitBesideShapes(t *testing.T) {
	t.Parallel()
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		synctest.Test(t, func(t *testing.T) {
			policy := policyOf(t, "20/s,600/h sliding")
			policy.Shape = shape
			l := open(t, Fixed(policy), Options{})
			var made calls
			for began := time.Now(); time.Since(began) < 130*time.Minute; {
				if _, err := l.Take(t.Context(), 1, Forever); err != nil {
					t.Fatal(err)
				}
				made.add()
			}
			_, use := made.counts(600, time.Hour, made.at[0])
			if most := made.most(time.Hour); most > 600 || use < 0.97 || made.most(time.Second) > 41 {
				t.Errorf("%s: at most %d within an hour, %.3f used, at most %d within a second", shape, most, use, made.most(time.Second))
			}
		})
	}
}

// What was issued counts in full where the limit is lowered below that, and then counts in other windows.
func TestALowerSlidingLimitForgetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := Fixed(policyOf(t, "1000/s,100/h sliding"))
		l := open(t, source, Options{})
		issued := l.TryTake(80).N()
		time.Sleep(time.Minute)
		for _, limits := range []string{"1000/s,10/h sliding", "1000/s,100/h"} {
			if err := source.Set(policyOf(t, limits)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			issued += l.TryTake(100).N()
		}
		if issued != 100 {
			t.Errorf("%d issued within an hour", issued)
		}
	})
}
