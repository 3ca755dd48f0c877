package consumer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Several callers wait for a key of which nothing is in hand, and etcd is asked for its long limit. Its answer brings a
// permit for one of them: the others wait for the next answer, which comes within their patience. So it is for callers that
// come while the instance joins, as of a program that has just begun.
func TestWhoWaitsForALongKeyBehindAnother(t *testing.T) {
	t.Parallel()
	for _, limits := range []string{"100/h sliding", "100/h", "14/s,5000/h sliding", "14/s,5000/h"} {
		for _, answers := range []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond} {
			for _, joins := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, etcd answers after %v, joins %v", limits, answers, joins), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(960 * time.Millisecond)
						f := NewLongFleet(t, *policyByKey(t, limits), 1, joins, answers)
						defer f.End()
						patience := 2 * time.Second
						if !joins {
							patience = 800 * time.Millisecond
							time.Sleep(140 * time.Millisecond) // its window ends later than that
						}
						served := make(chan error)
						for range 3 {
							go func() { served <- f.Limiters[0].Key("z").Acquire(t.Context(), patience) }()
						}
						for range 3 {
							if err := <-served; err != nil {
								t.Error(err)
							}
						}
					})
				})
			}
		}
	}
}

// Behind a debt of a key, of which nothing is in hand, etcd's answer pays the debt and brings a permit.
func TestWhoWaitsForALongKeyBehindADebt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := NewLongFleet(t, *policyByKey(t, "100/h"), 1, false, 50*time.Millisecond)
		defer f.End()
		key := f.Limiters[0].Key("z")
		p, err := key.Take(t.Context(), 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Settle(3); err != nil {
			t.Error(err)
		}
		if err := key.Acquire(t.Context(), 500*time.Millisecond); err != nil { // its window ends later
			t.Error(err)
		}
	})
}

// A caller that waits is served when etcd has answered, and is told at once if the window has
// nothing left for it.
func TestAWaiterOfALongKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longKeys(t, "10/h", "a", "b")
		key := all[0].Key("x")
		served := make(chan error)
		for range 2 {
			go func() { served <- key.Acquire(t.Context(), time.Second) }()
		}
		synctest.Wait()
		select {
		case <-sinks[0].sink.Wanting():
		default:
			t.Error("callers wait, and nobody is told")
		}
		bank.serve(sinks...)
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		for range 8 {
			go func() { served <- key.Acquire(t.Context(), time.Second) }()
		}
		synctest.Wait()
		bank.serve(sinks...)
		for range 8 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		bank.serve(sinks...)
		began := time.Now()
		err := key.Acquire(t.Context(), 30*time.Minute)
		var limited LimitError
		if !errors.As(err, &limited) || limited.Key != "x" || limited.Total != 10 || limited.Share != 10 || limited.Remaining != 0 || limited.Taking || time.Since(began) != 0 {
			t.Fatalf("%v after %v, want a refusal at once", err, time.Since(began))
		}
		if next := time.Now().Truncate(time.Hour).Add(time.Hour); !limited.RetryAt.Equal(next) || !strings.Contains(err.Error(), "the limit of 10/h is used up") {
			t.Errorf("%v", err)
		}
		use := key.Limits()
		if len(use) < 1 || use[len(use)-1].Limit != (quota.Limit{Permits: 10, Window: time.Hour}) || use[len(use)-1].Used != 10 || use[len(use)-1].Remaining != 0 {
			t.Errorf("%+v", use)
		}
		if err := key.limiter.acquireKey(t, "x", 11); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want that 11 are too many", err)
		}
	})
}

// Who waits for permits of an hour while etcd says nothing, and never has anything in hand, is told that etcd is away: of
// the provider and of a key.
func TestAWaiterOfAnHourWithoutEtcd(t *testing.T) {
	t.Parallel()
	for _, byKey := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, sinks, taker := hourlyFleet(t, byKey)
			_, err := taker.Take(t.Context(), 1, 0)
			if !strings.Contains(err.Error(), "more are being fetched") {
				t.Error(err)
			}
			sinks[0].sink.Uses(10) // etcd is asked, and does not answer
			_, err = taker.Take(t.Context(), 1, 10*time.Second)
			if !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "none in hand of 100/h, and no more can be fetched: etcd has not answered") {
				t.Errorf("by key %v: %v", byKey, err)
			}
		})
	}
}
