package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
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
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		others := l.TryTake(1000)
		l.TakeFunc(1, Forever, func(Permit, error) { time.Sleep(20 * time.Millisecond) }) // it holds up the next
		permits := make(chan Permit, 1)
		l.Key("a").TakeFunc(3, Forever, func(p Permit, _ error) { permits <- p })
		time.Sleep(990 * time.Millisecond)
		others.Release() // both have permits of this window
		if p := <-permits; !p.Valid(0) || !p.Release() {
			t.Errorf("a permit that was over when it came, until %v", p.Until())
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

// received returns what a channel has.
func received[T any](from chan T) (all []T) {
	for len(from) > 0 {
		all = append(all, <-from)
	}
	return all
}

// Callers of a key are served by class, and of one class in the order in which they came.
func TestCallersOfAKeyAreServedByClass(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		taken(l.Key("a").TryAcquire)
		order := make(chan string, 6)
		for _, who := range []struct {
			name  string
			class Class
		}{{"shed 1", Sheddable}, {"one", Default}, {"shed 2", Sheddable}, {"critical", Critical}, {"two", Default}, {"last", Default}} {
			l.Class(who.class).Key("a").TakeFunc(1, Forever, func(_ Permit, err error) {
				if err != nil {
					t.Errorf("%s: %v", who.name, err)
				}
				order <- who.name
			})
		}
		if st := l.Status(); st.Waiting != 6 || st.WaitingBy[Critical] != 1 || st.WaitingBy[Sheddable] != 2 {
			t.Errorf("%d wait, by class %v; want 6, and 1, 3, 2", st.Waiting, st.WaitingBy)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got := fmt.Sprint(received(order)); got != "[critical one two]" {
			t.Errorf("in the second window %s are served, want critical, one and two", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := fmt.Sprint(received(order)); got != "[last shed 1 shed 2]" {
			t.Errorf("in the third window %s are served, want last and the sheddable ones", got)
		}
	})
}

// A critical call takes the place of a sheddable one in a full line of its key, and no other's.
func TestACriticalCallTakesAPlaceInAFullLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(t.Context(), Fixed(keyedPolicy()), "github", Options{Logger: quiet, MaxWaiters: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		outcome := make(chan string, 3)
		wait := func(c Class, key string) {
			taken(l.Key(key).TryAcquire)
			l.Class(c).Key(key).TakeFunc(1, Forever, func(_ Permit, err error) {
				outcome <- fmt.Sprint(c, " ", errors.Is(err, ErrQueueFull), err != nil && strings.Contains(err.Error(), "displaced"))
			})
			synctest.Wait()
		}
		wait(Sheddable, "a")
		wait(Critical, "b")
		if got := fmt.Sprint(received(outcome)); got != "[critical true false]" {
			t.Fatalf("beside a full line of another key: %s, want the critical call refused", got)
		}
		wait(Critical, "a")
		if got := fmt.Sprint(received(outcome)); got != "[sheddable true true]" {
			t.Fatalf("in a full line: %s, want the sheddable call refused", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := fmt.Sprint(received(outcome)); got != "[critical false false]" {
			t.Errorf("in the next window: %s, want the critical call served", got)
		}
	})
}

// Stop takes a call for a key out of wherever it is: its function does not run, and nothing stays
// reserved or issued.
func TestStopOfACallForAKey(t *testing.T) {
	holdUp := func(l *Limiter) { l.TakeFunc(1, Forever, func(Permit, error) { time.Sleep(time.Millisecond) }) }
	for name, c := range map[string]struct {
		place func(l *Limiter)
		left  int64 // permits of the provider, after Stop
	}{
		"its line":            {func(l *Limiter) { l.Key("a").TryTake(3) }, 997},
		"the limiter's queue": {func(l *Limiter) { l.TryTake(1000) }, 0},
		// It was told an outcome, while another function runs.
		"on its way from its line": {func(l *Limiter) {
			others := l.Key("a").TryTake(3)
			time.AfterFunc(100*time.Millisecond, func() { holdUp(l); synctest.Wait(); others.Release() })
		}, 999},
		"on its way from the limiter's queue": {func(l *Limiter) {
			others := l.TryTake(1000)
			holdUp(l)
			time.AfterFunc(100*time.Millisecond, func() { others.Release() })
		}, 999},
	} {
		t.Run(name, func(t *testing.T) {
			keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
				c.place(l)
				w := l.Key("a").TakeFunc(2, Forever, func(Permit, error) { t.Error("the function of a call that was stopped ran") })
				time.Sleep(100*time.Millisecond + 500*time.Microsecond)
				if !w.Stop() || w.Stop() {
					t.Error("the first Stop is to return true, and the second false")
				}
				time.Sleep(time.Millisecond)
				if n := l.TryTake(1000).N(); n != c.left {
					t.Errorf("the provider has %d permits left, want %d", n, c.left)
				}
				time.Sleep(time.Second)
				if n := taken(l.Key("a").TryAcquire); n != 3 || l.Status().Waiting != 0 {
					t.Errorf("%d permits in the next window, want 3; %d wait", n, l.Status().Waiting)
				}
			})
		})
	}
}

// A call that leaves the line has those behind it served that only waited for their turn.
func TestThoseBehindACallThatLeavesAreServed(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		key, began := l.Key("a"), time.Now()
		key.TryTake(1)
		first := key.TakeFunc(3, Forever, func(Permit, error) { t.Error("a call that was stopped is served") })
		second := make(chan error, 1)
		key.TakeFunc(1, Forever, func(_ Permit, err error) { second <- err })
		first.Stop()
		if err := <-second; err != nil || time.Since(began) > 0 {
			t.Errorf("the one behind got %v after %v, want a permit at once", err, time.Since(began))
		}
	})
}

// The provider's permits come back of a call whose key has fewer by the time at which they come.
func TestACallWhoseKeyWasLoweredGivesTheProvidersBack(t *testing.T) {
	p := keyedPolicy()
	keyed(t, p, func(t *testing.T, l *Limiter, source *FixedSource) {
		others, outcome := l.TryTake(1000), make(chan error, 1)
		l.Key("a").TakeFunc(3, Forever, func(_ Permit, err error) { outcome <- err })
		p.Keys.Limits = []quota.Limit{{Permits: 2, Window: time.Second}}
		if err := source.Set(p); err != nil {
			t.Fatal(err)
		}
		others.Release()
		if err := <-outcome; !errors.Is(err, ErrTooLarge) {
			t.Errorf("a call for 3 of a key that has 2: %v", err)
		}
		if n := l.TryTake(1000).N(); n != 1000 {
			t.Errorf("the provider has %d permits left, want 1000", n)
		}
	})
}

// A call that is refused or served at once tells its function so, once, and Stop then returns false.
func TestAKeysFunctionIsCalledOnce(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		outcome := make(chan string, 9)
		note := func(p Permit, err error) { outcome <- fmt.Sprint(p.N(), " ", err != nil) }
		key := l.Key("a")
		first := key.TakeFunc(3, 0, note)
		second := key.TakeFunc(1, 0, note)
		key.TakeFunc(0, 0, note)
		l.Key("").TakeFunc(1, Forever, note)
		third := key.TakeFunc(1, Forever, note)
		synctest.Wait()
		if got, want := fmt.Sprint(received(outcome)), "[3 false 0 true 0 true 0 true]"; got != want {
			t.Errorf("the functions got %s, want %s", got, want)
		}
		if first.Stop() || second.Stop() {
			t.Error("Stop of a call that was answered returned true")
		}
		l.Close()
		synctest.Wait()
		if got := fmt.Sprint(received(outcome)); got != "[0 true]" || third.Stop() {
			t.Errorf("after Close the last one got %s, want an error, once", got)
		}
	})
}

// Calls that wait, give up and are stopped, at random, leave nothing behind: whatever is not issued can
// be taken.
func TestCallsForKeysLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			p := keyedPolicy()
			p.Limits[0].Permits = 5
			l, err := Open(t.Context(), Fixed(p), "github", Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			r := rand.New(rand.NewPCG(seed, 1))
			var called, stopped atomic.Int64
			started := int64(0)
			var wg sync.WaitGroup
			for range 200 {
				key, n, maxWait := l.Class(classes[r.IntN(3)]).Key([]string{"a", "b"}[r.IntN(2)]), 1+r.Int64N(3), time.Duration(r.IntN(3000))*time.Millisecond
				give := time.Duration(r.IntN(2000)) * time.Millisecond
				switch r.IntN(3) {
				case 0:
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), give)
						defer cancel()
						if p, err := key.Take(ctx, n, maxWait); err == nil && p.Valid(0) {
							p.Release()
						}
					})
				default:
					started++
					w := key.TakeFunc(n, maxWait, func(p Permit, _ error) { called.Add(1); p.Release() })
					time.AfterFunc(give, func() {
						if w.Stop() {
							stopped.Add(1)
						}
					})
				}
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			}
			wg.Wait()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if called.Load()+stopped.Load() != started || l.Status().Waiting != 0 {
				t.Errorf("seed %d: of %d functions %d were called and %d stopped; %d wait", seed, started, called.Load(), stopped.Load(), l.Status().Waiting)
			}
			if a, b := taken(l.Key("a").TryAcquire), taken(l.Key("b").TryAcquire); a != 3 || b != 2 {
				t.Errorf("seed %d: %d and %d permits are left, want 3 and 2", seed, a, b)
			}
		})
	}
}

// A refusal of a key's call says what stops the provider, if something does: the key's share is not what
// decided it then.
func TestARefusalOfAKeySaysWhatStopsTheProvider(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		key, until := l.Key("a"), time.Now().Add(10*time.Second)
		taken(key.TryAcquire)
		l.PauseUntil(until)
		err := key.Acquire(t.Context(), 0)
		if e, ok := errors.AsType[LimitError](err); !ok || e.Reason != ReasonPause || e.Key != "a" || !e.RetryAt.Equal(until) {
			t.Errorf("of a spent key during a pause: %v", err)
		}
	})
}

// A call for more than a key's limit is a mistake, and no refusal: so it is for the provider.
func TestAnImpossibleCallForAKeyIsNoRefusal(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		for _, maxWait := range []time.Duration{0, time.Second} {
			if _, err := l.Key("a").Take(t.Context(), 4, maxWait); !errors.Is(err, ErrTooLarge) {
				t.Errorf("4 of 3: %v", err)
			}
		}
		if st := l.Status(); st.Impossible != 2 || st.KeysRefused != 0 {
			t.Errorf("%d impossible, %d refused, want 2 and 0", st.Impossible, st.KeysRefused)
		}
	})
}

// What is reserved of a key's sliding limit lapses when its part ends, and then the call gives the provider's permit back. So
// nobody behind it is refused before it is known whether it does; afterwards callers are told at once again.
func TestWhoWaitsBehindAReservationThatLapses(t *testing.T) {
	for name, stops := range map[string]bool{"it starts again": false, "it was stopped": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policyOf(t, "1/10s")
				p.Keys.Limits = policyOf(t, "6/2m sliding").Limits
				f := NewLongFleet(t, p, 1, false, 40*time.Millisecond)
				defer f.End()
				l, start := f.Limiters[0], time.Now()
				at := func(after time.Duration) { time.Sleep(time.Until(start.Add(after))); synctest.Wait() }
				at(17 * time.Second) // 21 s, and windows begin at 20 and 30 s
				if err := l.Acquire(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				var keys time.Duration
				var behind atomic.Int64 // when the call behind it ended; 0 until then
				first := l.Key("a").TakeFunc(1, 25*time.Second, func(_ Permit, err error) {
					if keys = time.Since(start); err != nil {
						t.Error(err)
					}
				})
				at(17100 * time.Millisecond) // etcd has answered, and the call waits for the provider
				go func() {
					err := l.Acquire(t.Context(), 15*time.Second)
					if behind.Store(int64(time.Since(start))); err != nil {
						t.Error(err)
					}
				}()
				at(18 * time.Second)
				if behind.Load() > 0 {
					t.Errorf("the one behind it is refused after %v", time.Duration(behind.Load()))
				}
				wantKeys, wantBehind := 36*time.Second, 26*time.Second
				if stops {
					l.TakeFunc(2, Forever, func(Permit, error) { time.Sleep(10 * time.Second) }) // holds the dispatcher up
					at(27 * time.Second)
					if first.Stop() != true {
						t.Error("it is too late to stop")
					}
					wantKeys, wantBehind = 0, 28*time.Second
				}
				at(40 * time.Second)
				if behind := time.Duration(behind.Load()); keys != wantKeys || behind != wantBehind {
					t.Errorf("the key's call was served after %v, and the one behind it after %v: want %v and %v", keys, behind, wantKeys, wantBehind)
				}
				l.TryAcquire() // the rest of the window
				began := time.Now()
				if err := l.Acquire(t.Context(), 3*time.Second); err == nil || time.Since(began) > 0 {
					t.Errorf("a call that comes late: %v after %v, want a refusal at once", err, time.Since(began))
				}
			})
		})
	}
}

// A call for a key that waits for the provider keeps its turn while parts of the key's sliding window end: what is reserved
// for it is taken from etcd anew each time.
func TestAReservationIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(t, "1/5s")
		p.Keys.Limits = policyOf(t, "6/2m sliding").Limits
		f := NewLongFleet(t, p, 1, false, 40*time.Millisecond)
		defer f.End()
		l := f.Limiters[0]
		second := func() float64 { return float64(time.Now().UnixMilli()%60_000) / 1000 }
		at := func(s int) {
			time.Sleep(time.Duration(s)*time.Second - time.Duration(second()*1000)*time.Millisecond)
			synctest.Wait()
		}
		at(21) // the provider's windows begin at 20 and 25, and parts end at 21.6, 22.8 and 24
		if err := l.Acquire(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		served := map[string]float64{}
		wait := func(name string, take func(n int64, maxWait time.Duration, f func(Permit, error)) Waiter) {
			take(1, 30*time.Second, func(_ Permit, err error) {
				if served[name] = second(); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
		}
		wait("key", l.Key("a").TakeFunc)
		wait("behind it", l.TakeFunc)
		at(50)
		if diff := cmp.Diff(map[string]float64{"key": 25, "behind it": 30}, served); diff != "" {
			t.Errorf("when they were served (-want +got):\n%s", diff)
		}
	})
}

// A call for a key for which enough is reserved is not refused: what is reserved comes back if its caller does not get the
// provider's permits. Once it has got them the call is told. It makes no difference whether the key's limit is a short one
// or a long one, of which a process that is alone asks nobody for more.
func TestWhatIsReservedMayComeBack(t *testing.T) {
	p := policyOf(t, "5/s")
	for _, limit := range []string{"3/s", "3/h"} {
		p.Keys.Limits = policyOf(t, limit).Limits
		for name, stops := range map[string]bool{"it comes back": true, "it is issued": false} {
			t.Run(limit+", "+name, func(t *testing.T) {
				keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
					others, start := l.TryTake(3), time.Now()
					first := l.Key("a").TakeFunc(3, Forever, func(Permit, error) {})
					told := map[int64]time.Duration{}
					for _, n := range []int64{1, 4} { // the key never has 4
						l.Class(Critical).Key("a").TakeFunc(n, 400*time.Millisecond, func(_ Permit, err error) {
							if told[n] = time.Since(start); (err == nil) != (stops && n == 1) {
								t.Errorf("%d: %v", n, err)
							}
						})
						synctest.Wait()
					}
					time.Sleep(100 * time.Millisecond)
					if synctest.Wait(); len(told) != 1 {
						t.Errorf("told after %v, before it is known what becomes of the first call", told)
					}
					if stops {
						first.Stop()
					} else {
						others.Release()
					}
					synctest.Wait()
					if told[4] != 0 || told[1] != 100*time.Millisecond {
						t.Errorf("told after %v, want 0s and 100ms", told)
					}
				})
			})
		}
	}
}
