package main

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// The provider does not heed how many tokens an answer may have: some have half as many again. It
// counts them by its own clock. The calls of every span of minutes cost at most the limit and the debts
// that docs/proof/guarantees.md tells of, and most of it is used.
func TestTheProviderCountsNoMoreThanLimitsAndDebts(t *testing.T) {
	const (
		instances, workers, minutes = 4, 6, 15
		calls                       = 5 // at once, of one instance
		limit                       = 16_000
		longest                     = most + most/2
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(seed, 1))
		api := &provider{minute: time.Minute, say: func() int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(longest)
		}}
		open := func(name string, limit int64) (all []*consumer.Limiter) {
			fleet, err := limittest.New(quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: time.Minute}}}, instances)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range fleet.Instances() {
				l, err := consumer.Open(t.Context(), i, name, consumer.Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Close() })
				all = append(all, l)
			}
			return all
		}
		requests, tokens := open("requests", 400), open("tokens", limit)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(2 * time.Minute)))
		end := time.Now().Add(minutes * time.Minute)
		var running sync.WaitGroup
		for i := range instances {
			open := consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: calls, Window: 2 * time.Minute, InFlight: true}}})
			flight, err := consumer.Open(t.Context(), open, "calls", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = flight.Close() })
			c := &client{&http.Client{Transport: api}, requests[i], tokens[i], flight}
			for range workers {
				running.Go(func() {
					for time.Now().Before(end) {
						if text, err := c.ask(t.Context(), "Why is the sky blue?"); err != nil || len(text) > longest*len("blah ") {
							t.Errorf("%q, %v", text, err)
						}
					}
				})
			}
		}
		var owed []int64 // at each minute's end
		for range minutes {
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)) - 1)
			synctest.Wait()
			sum := int64(0)
			for _, l := range tokens {
				sum += l.Status().Debt
			}
			owed = append(owed, sum)
			time.Sleep(time.Nanosecond)
		}
		running.Wait()
		if n := api.mostOpen(); n != instances*calls {
			t.Errorf("%d calls were under way at once", n)
		}
		counted := api.counted()[:minutes]
		t.Logf("counted %v, owed at the end %v", counted, owed)
		const unsettled = instances * workers * (longest - most) // of calls that run at most
		above := 0
		for to := range counted {
			cost := int64(0)
			for from := to; from >= 0; from-- {
				cost += counted[from]
				if minutes := int64(to - from + 1); cost > minutes*limit+owed[to]+unsettled {
					t.Errorf("minutes %d to %d cost %d tokens, with a limit of %d and a debt of %d", from, to, cost, limit, owed[to])
				}
			}
			if counted[to] > limit {
				above++
			}
			if to == minutes-1 && cost < minutes*limit*8/10 {
				t.Errorf("%d tokens used of %d", cost, minutes*limit)
			}
		}
		if above == 0 {
			t.Error("no minute cost more than the limit: debts were not tried")
		}
		cost, booked := int64(0), int64(0)
		for _, n := range api.counted() {
			cost += n
		}
		for _, l := range tokens {
			st := l.Status()
			booked += st.Issued + st.Debt
		}
		if cost > booked {
			t.Errorf("%d tokens cost, %d issued, paid or owed", cost, booked)
		}
	})
}
