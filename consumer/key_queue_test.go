package consumer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What a call reserved of its key comes back if OnWait panics: when the call has waited for its
// key, and when it has waited for the provider.
func TestAKeySurvivesAPanic(t *testing.T) {
	for name, spend := range map[string]func(l *Limiter){
		"key":      func(l *Limiter) { l.Key("a").TryTake(3) },
		"provider": func(l *Limiter) { l.TryTake(1000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, err := Open(t.Context(), Fixed(keyedPolicy()), "github", Options{Logger: quiet, OnWait: func(context.Context, time.Duration, error) {
					panic("a metric is missing")
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				for range 3 {
					spend(l)
					func() {
						defer func() {
							if recover() == nil {
								t.Error("OnWait was not called")
							}
						}()
						_ = l.Key("a").Acquire(t.Context(), Forever)
					}()
					time.Sleep(time.Second)
				}
				if n := taken(l.Key("a").TryAcquire); n != 3 {
					t.Errorf("%d permits, want 3", n)
				}
			})
		})
	}
}

// A call that learns of the provider's permits after their window takes others: the key is not
// charged for permits that nobody can use.
func TestAKeyIsNotChargedForAWindowBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := 0
		l, err := Open(t.Context(), Fixed(keyedPolicy()), "github", Options{Logger: quiet, OnWait: func(context.Context, time.Duration, error) {
			waits++
			time.Sleep(20 * time.Millisecond)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		others := l.TryTake(1000)
		time.AfterFunc(990*time.Millisecond, func() { others.Release() })
		p, err := l.Key("a").Take(t.Context(), 3, 5*time.Second)
		if err != nil || !p.Valid(0) || waits != 1 || !p.Release() {
			t.Errorf("%v after %d waits, or a permit that was over when it came, until %v", err, waits, p.Until())
		}
		if n := taken(l.Key("a").TryAcquire); n != 3 {
			t.Errorf("%d permits after the release, want 3", n)
		}
	})
}

// A permit that comes back has no caller that waits for another key look again.
func TestAKeysPermitConcernsNoOtherKey(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		l.Key("a").TryTake(3)
		waits := make(chan error, 1)
		go func() { waits <- l.Key("a").Acquire(t.Context(), Forever) }()
		synctest.Wait()
		a := l.core.keys.known("a")
		a.mu.Lock() // or a look at it waits for ever
		if !l.Key("b").TryTake(2).Release() {
			t.Error("a permit did not come back")
		}
		a.mu.Unlock()
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// A caller that waits is refused as soon as those before it have taken the last permits that
// could come in time.
func TestACallerBehindOthersOfItsKeyIsRefused(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		began := time.Now()
		key := l.Key("a")
		taken(key.TryAcquire)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				err := key.Acquire(t.Context(), 1900*time.Millisecond)
				if served := err == nil; served != (i < 3) || time.Since(began) != time.Second {
					t.Errorf("caller %d after %v: %v", i, time.Since(began), err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}
