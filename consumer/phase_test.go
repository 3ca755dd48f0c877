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
	spending(t, "100/s,10/h@17m", func(set func(limits, zone string), spend func(at time.Duration, most int, limit, next string)) {
		spend(0, 10, "10/h@17m", "00:17:00.000")
		spend(16*time.Minute+59*time.Second, 0, "10/h@17m", "00:17:00.000")
		spend(17*time.Minute, 10, "10/h@17m", "01:17:00.000")
		spend(77*time.Minute, 10, "10/h@17m", "02:17:00.000")
		set("100/s,12/h@10m", "")
		spend(80*time.Minute, 2, "12/h@10m", "02:10:00.000")
		spend(130*time.Minute, 12, "12/h@10m", "03:10:00.000")
		set("100/s,12/d@12:00", "")
		spend(131*time.Minute, 12, "12/d@12:00", "2000-01-01 12:00")
		spend(12*time.Hour, 12, "12/d@12:00", "2000-01-02 12:00")
	})
}

// The same where the zone changes, whether the day or the month of the new one has begun earlier or later.
func TestDaysAndMonthsAreThoseOfTheZone(t *testing.T) {
	spending(t, "100/s,12/d", func(set func(limits, zone string), spend func(at time.Duration, most int, limit, next string)) {
		spend(10*time.Hour, 12, "12/d", "2000-01-02 00:00")
		set("100/s,12/d", "America/Los_Angeles")
		spend(11*time.Hour, 0, "12/d", "2000-01-02 08:00")
		spend(32*time.Hour, 12, "12/d", "2000-01-03 08:00")
		set("100/s,15/d", "Europe/Berlin")
		spend(33*time.Hour, 3, "15/d", "2000-01-02 23:00")
		spend(47*time.Hour, 15, "15/d", "2000-01-03 23:00")
		set("100/s,15/d", "Europe/Paris") // whose days are those of Berlin
		spend(48*time.Hour, 0, "15/d", "2000-01-03 23:00")
		set("100/s,20/mo", "Europe/Paris")
		spend(49*time.Hour, 20, "20/mo", "2000-01-31 23:00")
		set("100/s,30/mo", "Asia/Tokyo")
		spend(50*time.Hour, 10, "30/mo", "2000-01-31 15:00")
		spend(31*24*time.Hour, 30, "30/mo", "2000-02-29 15:00")
		set("100/s,30/mo", "")
		spend(31*24*time.Hour+time.Hour, 0, "30/mo", "2000-03-01 00:00")
	})
}

// spending plays a history of a provider, and of one of its keys, that has these limits. set gives it others, and a zone.
// spend waits until so long after the beginning, issues all that there is, and compares how much that was, and the limit
// and the time in UTC that the refusal tells then.
func spending(t *testing.T, limits string, history func(set func(limits, zone string), spend func(at time.Duration, most int, limit, next string))) {
	for _, byKey := range []bool{false, true} {
		of := func(p quota.Policy) quota.Policy {
			if byKey {
				p.Keys.Limits = p.Limits
				p.Limits = policyOf(t, "1000/s").Limits
			}
			return p
		}
		bubble(t, of(policyOf(t, limits)), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			take, name := l.Take, ""
			if byKey {
				take, name = l.Key("a").Take, ` for key "a"`
			}
			history(func(limits, zone string) {
				t.Helper()
				p := policyOf(t, limits)
				p.Zone = zone
				if err := source.Set(of(p)); err != nil {
					t.Fatal(err)
				}
			}, func(at time.Duration, most int, limit, next string) {
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
			})
			synctest.Wait()
		})
	}
}

// began is when time begins in a bubble.
func began() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }
