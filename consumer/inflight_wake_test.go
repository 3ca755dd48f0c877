package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who has an idle place, and who waits for one, asks etcd as soon as there is a reason, and not only when it looks: here
// instances ask only when their limiter says so, as a session does in between its looks.
func TestWhoWaitsForAPlaceIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longFleet(t, withDefaults(policyOf(t, "6 inflight hold=10m")), "a", "b", "c")
		bank.told = sinks
		woken := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				for _, s := range sinks {
					s.prove()
					select {
					case <-s.sink.Wanting():
						bank.serve(s)
					default:
					}
				}
			}
		}
		bank.serve(sinks...) // each hears of the total from its first use on
		var taken []Permit
		for range 6 {
			had := make(chan Permit, 1)
			go func() {
				p, _ := all[0].Take(t.Context(), 1, time.Minute)
				had <- p
			}()
			woken(50 * time.Millisecond)
			select {
			case p := <-had:
				taken = append(taken, p)
			default:
				t.Fatalf("the first instance waits for place %d", len(taken))
			}
		}
		for i, p := range taken {
			waits := all[1+i%2]
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			had := make(chan error, 1)
			go func() {
				_, err := waits.Take(ctx, 1, Forever)
				had <- err
			}()
			woken(time.Duration(i) * 400 * time.Millisecond) // it asks, and asks again
			p.Done()
			woken(50 * time.Millisecond)
			select {
			case err := <-had:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Errorf("place %d does not come to who waits", i)
			}
			end()
		}
	})
}
