package consumer_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// A limit that another window's replaces binds until its window ends. A caller that does what README says is refused
// once, and told when that is; so is one for a key.
func TestWhoIsRefusedByARemovedLimitTriesAgainAtItsEnd(t *testing.T) {
	for name, key := range map[string]string{"the provider": "", "a key": "x"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, before := time.Now(), policyOf(t, "60/1m")
				f := fleet(t, before, 6)
				var all []*consumer.Limiter
				for _, i := range f.Instances() {
					all = append(all, open(t, i, consumer.Options{}))
				}
				for _, l := range all {
					if n := tryTake(l, 100); n != 10 {
						t.Fatalf("%d permits, want 10", n)
					}
				}
				pass(15 * time.Second)
				after := policyOf(t, "1000/s")
				if key != "" {
					after.Keys.Limits = policyOf(t, "14/s").Limits
				}
				if err := f.Set(after); err != nil {
					t.Fatal(err)
				}
				pass(4 * time.Second) // keys have permits by now
				acquire := func() error { return all[0].Acquire(t.Context(), 2*time.Second) }
				if key != "" {
					acquire = func() error { return all[0].Key(key).Acquire(t.Context(), 2*time.Second) }
				}
				var refused []string
				for err := acquire(); err != nil && len(refused) < 60; err = acquire() {
					e, ok := errors.AsType[consumer.LimitError](err)
					if refused = append(refused, err.Error()); !ok || !e.RetryAt.Equal(start.Add(time.Minute)) || e.Reason != consumer.ReasonSpent ||
						!strings.Contains(err.Error(), "not enough left of 60/1m, a limit that was removed and still binds; next at 00:01:00.000 UTC") {
						t.Errorf("%v", err)
					}
					pass(max(time.Second, time.Until(e.RetryAt)))
				}
				if at := time.Since(start).Truncate(time.Second); len(refused) != 1 || at != time.Minute {
					t.Errorf("refused %d times, and served after %v: %q", len(refused), at, refused)
				}
			})
		})
	}
}

// To be rid of a limit at once, an operator raises it before its window is changed.
func TestALimitThatIsRaisedFirstBindsNobodyWhenItIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet(t, policyOf(t, "60/1m"), 6)
		var all []*consumer.Limiter
		for _, i := range f.Instances() {
			all = append(all, open(t, i, consumer.Options{}))
		}
		for _, l := range all {
			tryTake(l, 100)
		}
		pass(15 * time.Second)
		for _, limits := range []string{"1000/s,60000/1m", "1000/s"} {
			if err := f.Set(policyOf(t, limits)); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			for _, l := range all {
				if n := tryTake(l, 100); n != 100 {
					t.Errorf("%s: %d permits, want 100", limits, n)
				}
			}
		}
	})
}

// The first limits by key wait for the settle time. Who asks for a key before then is told that, and when they begin:
// its instance has a share of the provider's limit all along.
func TestWhoAsksForAKeyBeforeTheFirstLimitsByKeyBeginIsToldWhen(t *testing.T) {
	for limits, begins := range map[string]time.Duration{"14/s": 24 * time.Second, "14/s,100/30s": 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start, policy := time.Now(), policyOf(t, "1000/s")
			f := fleet(t, policy, 4)
			l := open(t, f.Instances()[0], consumer.Options{})
			pass(20*time.Second + 318*time.Millisecond)
			policy.Keys.Limits = policyOf(t, limits).Limits
			if err := f.Set(policy); err != nil {
				t.Fatal(err)
			}
			pass(300 * time.Millisecond)
			err := l.Key("ann").Acquire(t.Context(), 0)
			e, ok := errors.AsType[consumer.LimitError](err)
			want := `consumer: p: no permit for key "ann": the limits by key are new; they begin at ` + start.Add(begins).UTC().Format("15:04:05") +
				" UTC, with the first windows after the settle time (3s)"
			if !ok || err.Error() != want || e.Reason != consumer.ReasonJoining || !e.RetryAt.Equal(start.Add(begins)) {
				t.Errorf("%s: %v, reason %q, retry at %v; want %q", limits, err, e.Reason, e.RetryAt, want)
			}
			pass(time.Until(e.RetryAt) - time.Millisecond)
			if err := l.Key("ann").Acquire(t.Context(), 0); err == nil {
				t.Errorf("%s: a permit before they begin", limits)
			}
			pass(time.Second)
			if err := l.Key("ann").Acquire(t.Context(), 0); err != nil {
				t.Errorf("%s: %v", limits, err)
			}
		})
	}
}
