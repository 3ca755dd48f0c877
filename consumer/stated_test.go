package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
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

// What others have used stays used where an operator raises the limit, or lowers it: so many more or fewer are left. A
// rest of no limit, as of a pause, stays as it is. A rest of the new limit counts in place of that of the old one.
func TestAStatedRestMovesWithTheLimit(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		policy := func(hour string) quota.Policy {
			p := policyOf(t, "100/s,"+hour)
			if byKey {
				p.Keys.Limits = p.Limits
				p.Limits = policyOf(t, "1000/s").Limits
			}
			return p
		}
		bubble(t, policy("1000/h"), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			take, states := l.TryTake, l.Stated
			if byKey {
				take, states = l.Key("a").TryTake, l.Key("a").Stated
			}
			issued := func(what, hour string, want int) {
				t.Helper()
				if err := source.Set(policy(hour)); err != nil {
					t.Fatal(err)
				}
				got := 0
				for range 50 {
					time.Sleep(time.Second)
					for range 10 {
						if take(1).N() == 1 {
							got++
						}
					}
				}
				if got != want {
					t.Errorf("by key %v: %s: %d issued, want %d", byKey, what, got, want)
				}
			}
			if take(1).N() != 1 {
				t.Fatal("no permit at the start")
			}
			reset := time.Now().Add(50 * time.Minute)
			states(1000, 30, reset) // 969 are used elsewhere
			issued("what the provider states", "1000/h", 30)
			issued("a raise", "1040/h", 40)
			issued("a limit that is lowered", "1020/h", 0)
			issued("one that is raised again", "1050/h", 10)
			states(1050, 100, reset) // the rest before is of 1000
			issued("a rest of the new limit", "1050/h", 100)
			states(1050, 200, reset)
			issued("a higher one", "1050/h", 0)
			if err := source.Set(policy("1060/h")); err != nil {
				t.Fatal(err)
			}
			states(0, 0, time.Now().Add(time.Minute)) // a pause, in which nothing of the 10 is left
			issued("a raise in a pause", "1100/h", 0)
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

// An answer that names no limit, such as one with Retry-After, asks for a pause: the refusal does not say that the limit is
// used up.
func TestAStatedPause(t *testing.T) {
	bubble(t, policyOf(t, "100/s,1000/h"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		l.Stated(0, 0, time.Now().Add(time.Minute))
		_, err := l.Take(ctx, 1, time.Second)
		if want := "consumer: p: no permit: the provider wants nothing more of 1000/h for now, by an answer that named no limit, such as one with Retry-After; next at 00:01:00.000 UTC"; err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	})
}
