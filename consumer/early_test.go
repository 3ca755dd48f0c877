package consumer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/queue"
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

// Where a short limit is spent, and a long one has nothing in hand of which more is fetched, a refusal names the short one,
// whose next window brings permits. Where only the long one lacks permits it is that one.
func TestARefusalNamesTheLimitThatDecidesWhen(t *testing.T) {
	t.Parallel()
	for _, byKey := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			policy := policyOf(t, "14/s,5000/h sliding")
			if byKey {
				policy = *policyByKey(t, "14/s,5000/h sliding")
			}
			bank, sinks, all := longFleet(t, withDefaults(policy), "a")
			var taker Taker = all[0]
			if byKey {
				taker = all[0].Key("z")
			}
			refused := func(want string) {
				t.Helper()
				if _, err := taker.Take(t.Context(), 1, 0); err == nil || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("by key %v: %v\nwant ... %s", byKey, err, want)
				}
			}
			refused("none in hand of 5000/h sliding; more are being fetched; next at 01:00:00.100 UTC")
			bank.serve(sinks...)
			for range 14 {
				if _, err := taker.Take(t.Context(), 1, 0); err != nil {
					t.Fatal(err)
				}
			}
			refused("the limit of 14/s is used up; next at 01:00:01.000 UTC")
		})
	}
}

// A refusal that is worded when permits have come says that, with the limit, and names no time: it is over.
func TestARefusalAsPermitsCome(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"20 inflight hold=2m", "100/h", "5/s", "5/s,100/d"} {
		synctest.Test(t, func(t *testing.T) {
			bank, sinks, all := longFleet(t, withDefaults(policyOf(t, limit)), "a")
			if _, err := all[0].Take(t.Context(), 1, 0); err == nil {
				t.Log("a permit of what is in hand")
			}
			bank.serve(sinks...)
			first, _, _ := strings.Cut(limit, ",")
			_, _, err := all[0].core.explain(queue.Limited, 1, queue.Default)
			if want := "consumer: p: no permit: 1 permit of " + first + " came just too late for this call: try again"; err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
			if limited, ok := errors.AsType[LimitError](err); !ok || limited.RetryAt.IsZero() || time.Until(limited.RetryAt) > 0 {
				t.Errorf("to be retried at %v", limited.RetryAt)
			}
		})
	}
}
