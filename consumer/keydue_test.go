package consumer

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// The limits go while etcd does not answer for permits of a long one, as when it has lost its data, or just before it is
// asked. They come back, and etcd answers: then callers have permits, and nobody waits for the end of the window.
func TestLongLimitsThatGoAndComeBack(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]string{"the provider": "1000/s,5000/h", "in flight": "40 inflight hold=40s", "a key": ""} {
		for how, away := range map[string]bool{"while etcd is away": true, "before etcd is asked": false} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					policy := policyByKey(t, "14/s,5000/h")
					if limits != "" {
						policy = withDefaults(policyOf(t, limits))
					}
					f := NewLongFleet(t, *policy, 1, false, 10*time.Millisecond)
					defer f.End()
					s, bank := f.sinks[0], &f.bank
					var taker Taker = f.Limiters[0]
					if limits == "" {
						taker = f.Limiters[0].Key("x")
					}
					bank.mu.Lock() // what is wanted now has to wait
					bank.away = away
					if _, err := taker.Take(t.Context(), 1, 0); err == nil {
						t.Fatal("a permit is in hand that nobody has wanted")
					}
					if away {
						bank.mu.Unlock()
						time.Sleep(2 * time.Second)
						bank.mu.Lock()
					}
					s.sink.Reset(s.clock.Now(), "0", protocol.View{Revision: 1, Instances: []protocol.Instance{{ID: "0"}}})
					bank.mu.Unlock()
					time.Sleep(5 * time.Second)
					bank.mu.Lock()
					bank.away = false
					bank.mu.Unlock()
					s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Policy: policy})
					back := time.Now()
					for {
						_, err := taker.Take(t.Context(), 1, 500*time.Millisecond)
						if err == nil {
							break
						}
						if time.Since(back) > 10*time.Second {
							t.Fatal(err)
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			})
		}
	}
}

// A refusal says that etcd has not answered only if it did not: not where others came first at each try.
func TestNobodyIsToldThatEtcdIsAwayThatAnswers(t *testing.T) {
	t.Parallel()
	for _, byKey := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bank, sinks, taker := hourlyFleet(t, byKey)
			for _, answered := range []bool{true, false} {
				_, _ = taker.Take(t.Context(), 50, 0)
				some, _ := sinks[0].sink.Uses(10)
				for i := range some {
					some[i].Away, some[i].Answered = true, answered
				}
				sinks[0].sink.Fund(some)
				_, err := taker.Take(t.Context(), 50, 0)
				if len(some) == 0 || errors.Is(err, ErrStale) == answered || answered && !strings.Contains(err.Error(), "more are being fetched") {
					t.Errorf("by key %v, answered %v: %d uses, %v", byKey, answered, len(some), err)
				}
				time.Sleep(time.Second)
			}
			bank.serve(sinks[0])
			if p, err := taker.Take(t.Context(), 50, 0); err != nil {
				t.Errorf("by key %v, etcd is not asked again: %v, %v", byKey, p, err)
			}
		})
	}
}

// Where others came first at each try etcd is asked again at once, and brings what a caller waits for.
func TestWhoWaitsIsServedThoughOthersCameFirst(t *testing.T) {
	t.Parallel()
	for _, byKey := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bank, sinks, taker := hourlyFleet(t, byKey)
			sink := sinks[0].sink
			served := make(chan error)
			go func() {
				_, err := taker.Take(t.Context(), 1, 500*time.Millisecond)
				served <- err
			}()
			synctest.Wait()
			<-sink.Wanting()
			some, _ := sink.Uses(10)
			for i := range some {
				some[i].Away, some[i].Answered, some[i].Outrun = true, true, true
			}
			sink.Fund(some)
			if len(some) != 1 || len(sink.Wanting()) != 1 {
				t.Errorf("by key %v: %d uses, and the source is told of %d", byKey, len(some), len(sink.Wanting()))
			}
			bank.serve(sinks[0])
			if err := <-served; err != nil {
				t.Errorf("by key %v: %v", byKey, err)
			}
		})
	}
}

// The log says that something is withheld of a key no more, once.
func TestTheLogSaysThatNothingIsWithheldOfAKeyAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "100/h", "a")
		var logged bytes.Buffer
		all[0].core.options.Store(&Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		says := func(when string, want int) {
			t.Helper()
			bank.play(12, sinks, func(int) { all[0].Key("x").TryAcquire() })
			if n := strings.Count(logged.String(), `msg="nothing is withheld any more" provider=p key=x limit=100/h`); n != want {
				t.Errorf("%s: said %d times, want %d: %s", when, n, want, logged.String())
			}
		}
		bank.lost = "etcd was restored"
		says("withheld", 0)
		bank.lost = ""
		bank.totals, bank.at = map[string][]byte{}, map[string]int64{}
		says("the count is given", 1)
		says("later", 1)
	})
}

// A source that sleeps until it is told is told of each key that is due, also of one that else waits for the next look.
func TestASourceThatSleepsIsToldOfAKeyThatIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, sinks, all := longKeys(t, "14/s", "a") // no limit of keys is long
		k, sink := all[0].core, sinks[0].sink
		all[0].Key("x").TryAcquire()
		for len(sink.Wanting()) > 0 {
			<-sink.Wanting()
		}
		if all, look := sink.Uses(10); len(all) != 0 || look != 0 {
			t.Fatalf("%d uses, and the next look in %v", len(all), look)
		}
		k.keys.funds.want(k, k.keys.known("x"), false)
		if len(sink.Wanting()) != 1 {
			t.Error("the source is not told")
		}
	})
}
