package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// What the provider says is left is all that is issued until it counts anew, of the provider's limit and of
// a key's. It only lowers, and the refusal says so.
func TestAStatedRest(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		policy := policyOf(t, "100/s,1000/h")
		if byKey {
			policy.Keys.Limits = policy.Limits
			policy.Limits = policyOf(t, "100/s").Limits
		}
		bubble(t, policy, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			take, states, name := l.Take, l.Stated, ""
			if byKey {
				take, states, name = l.Key("a").Take, l.Key("a").Stated, ` for key "a"`
			}
			issued := func(n int64) (got int64) {
				for range n {
					if _, err := take(ctx, 1, 0); err == nil {
						got++
					}
				}
				return got
			}
			if n := issued(20); n != 20 {
				t.Fatalf("%d of 20", n)
			}
			reset := time.Now().Add(17 * time.Minute)
			states(5000, 30, reset) // others use the account; the policy has less than the provider allows
			states(5000, 900, reset)
			states(5000, 0, time.Now())
			time.Sleep(time.Second)
			if n := issued(50); n != 30 {
				t.Errorf("%d issued, 30 were left", n)
			}
			_, err := take(ctx, 1, time.Minute)
			if want := `consumer: p: no permit` + name + `: the provider says that nothing more of 1000/h is left; next at 00:17:00.000 UTC`; err == nil || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
			waits := make(chan time.Time, 1)
			go func() {
				if _, err := take(ctx, 1, consumer.Forever); err != nil {
					t.Error(err)
				}
				waits <- time.Now()
			}()
			if at := <-waits; at.Before(reset) || at.After(reset.Add(2*time.Second)) {
				t.Errorf("served at %v, the provider counts anew at %v", at, reset)
			}
			time.Sleep(time.Second)
			if n := issued(100); n != 100 {
				t.Errorf("%d of 100 after the provider's reset", n)
			}
			synctest.Wait()
		})
	}
}

// The provider's hour begins with the first call of it, at any minute of the limiter's. By what its responses
// state it never counts more than its limit, and nearly all of that is used.
func TestAStatedRestFollowsTheProvidersHour(t *testing.T) {
	const limit, hours = 5000, 3
	for phase := time.Minute; phase < time.Hour; phase += 26 * time.Minute {
		for _, byKey := range []bool{false, true} {
			policy := policyOf(t, "80/s,5000/h")
			if byKey {
				policy.Keys.Limits = policy.Limits
				policy.Limits = policyOf(t, "1000/s").Limits
			}
			bubble(t, policy, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
				take, states := l.Take, l.Stated
				if byKey {
					take, states = l.Key("a").Take, l.Key("a").Stated
				}
				time.Sleep(phase)
				first := time.Now()
				var reset time.Time
				var count, all, over int64
				for time.Since(first) < hours*time.Hour {
					if _, err := take(ctx, 1, consumer.Forever); err != nil {
						t.Fatal(err)
					}
					if !time.Now().Before(reset) {
						count, reset = 0, time.Now().Add(time.Hour)
					}
					if count++; count > limit {
						over++
					} else {
						all++
					}
					states(limit, max(0, limit-count), reset)
				}
				if use := float64(all) / limit / hours; over > 0 || use < 0.97 {
					t.Errorf("phase %v, by key %v: %d calls over the provider's limit, %.3f of it used", phase, byKey, over, use)
				}
			})
		}
	}
}

// The provider's hour may end after the limiter's: who is refused is told when the provider counts anew.
func TestAStatedRestOutlastsTheHour(t *testing.T) {
	bubble(t, policyOf(t, "100/s,1000/h"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		time.Sleep(50 * time.Minute)
		l.Stated(1000, 0, time.Now().Add(20*time.Minute))
		for range 2 {
			_, err := l.Take(ctx, 1, 5*time.Minute)
			if want := "consumer: p: no permit: the provider says that nothing more of 1000/h is left; next at 01:10:00.000 UTC"; err == nil || err.Error() != want {
				t.Errorf("at %v: %v", time.Now(), err)
			}
			time.Sleep(10*time.Minute + time.Second) // into the next hour
		}
	})
}
