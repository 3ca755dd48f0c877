package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// A limit's windows begin at its phase, of the provider and of a key. Where the phase changes, what was
// issued in the window that ran counts in the one that runs then.
func TestWindowsBeginAtTheirPhase(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		policy := func(limits string) (p quota.Policy) {
			p = policyOf(t, limits)
			if byKey {
				p.Keys.Limits = p.Limits
				p.Limits = policyOf(t, "1000/s").Limits
			}
			return p
		}
		bubble(t, policy("100/s,10/h@17m"), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			take, name := l.Take, ""
			if byKey {
				take, name = l.Key("a").Take, ` for key "a"`
			}
			spend := func(at time.Duration, most int, limit, next string) {
				t.Helper()
				time.Sleep(at - time.Since(began()))
				n := 0
				for {
					_, err := take(ctx, 1, 0)
					if err == nil {
						n++
						continue
					}
					if want := "consumer: p: no permit" + name + ": the limit of " + limit + " is used up; next at " + next + " UTC"; err.Error() != want {
						t.Errorf("at %v: %v\nwant %s", at, err, want)
					}
					break
				}
				if n != most {
					t.Errorf("at %v: %d issued, want %d", at, n, most)
				}
			}
			spend(0, 10, "10/h@17m", "00:17:00.000")
			spend(16*time.Minute+59*time.Second, 0, "10/h@17m", "00:17:00.000")
			spend(17*time.Minute, 10, "10/h@17m", "01:17:00.000")
			spend(77*time.Minute, 10, "10/h@17m", "02:17:00.000")
			if err := source.Set(policy("100/s,12/h@10m")); err != nil {
				t.Fatal(err)
			}
			spend(80*time.Minute, 2, "12/h@10m", "02:10:00.000")
			spend(130*time.Minute, 12, "12/h@10m", "03:10:00.000")
			if err := source.Set(policy("100/s,12/d@12:00")); err != nil {
				t.Fatal(err)
			}
			spend(131*time.Minute, 12, "12/d@12:00", "2000-01-01 12:00")
			spend(12*time.Hour, 12, "12/d@12:00", "2000-01-02 12:00")
			synctest.Wait()
		})
	}
}

// began is when time begins in a bubble.
func began() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }
