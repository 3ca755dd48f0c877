package consumer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A fortnight of days in Berlin, one of which has 23 hours: each holds its limit, no more
// and no less, and a refusal tells when it ends.
func TestDaysOfACalendar(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		policy := policyOf(t, "40/s,100/d")
		policy.Zone = berlin.String()
		time.Sleep(time.Until(time.Date(2000, 3, 19, 12, 0, 0, 0, berlin)))
		l := open(t, Fixed(policy), Options{})
		issued := map[string]int64{}
		for range 14*24*3 - 1 {
			time.Sleep(20 * time.Minute)
			now := time.Now().In(berlin)
			today := now.Format(time.DateOnly)
			if issued[today] += l.TryTake(30).N(); issued[today] < 100 {
				continue
			}
			var limited LimitError
			midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, berlin)
			if err := l.Acquire(t.Context(), 0); !errors.As(err, &limited) || !limited.RetryAt.Equal(midnight) {
				t.Fatalf("at %v: %v", now, err)
			}
		}
		if len(issued) != 15 {
			t.Errorf("%d days", len(issued))
		}
		for day, n := range issued {
			if n != 100 {
				t.Errorf("%s: %d permits", day, n)
			}
		}
	})
}

// Whoever only ever asks for what is there says all the same that more is wanted.
func TestTryTakeSaysThatMoreIsWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := proved(t, "10/s,100/d", 2)
		wanted := func() bool {
			select {
			case <-s.sink.Wanting():
				return true
			default:
				return false
			}
		}
		if n := l.TryTake(5).N(); n != 0 || !wanted() {
			t.Errorf("%d permits of none taken, or more is not wanted", n)
		}
		u := s.sink.Budgets()[0]
		u.Taken = 2
		s.sink.Fund(u)
		if n := l.TryTake(5).N(); n != 2 || !wanted() || s.sink.Budgets()[0].Need != 1 {
			t.Errorf("%d permits of 2, or more is not wanted", n)
		}
	})
}
