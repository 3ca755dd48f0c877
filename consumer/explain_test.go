package consumer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/queue"
)

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
