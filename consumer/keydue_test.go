package consumer

import (
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
