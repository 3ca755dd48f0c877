package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// use returns the use of the only long limit, once more is wanted.
func (s *stub) use(l *Limiter) escrow.KeyUse {
	for {
		if all, _ := s.sink.Uses(64); len(all) > 0 {
			return all[0]
		}
		l.core.gate.Want(l.core.clock.Now())
		time.Sleep(time.Second)
		s.prove()
	}
}

// fund answers with a purse once more is wanted.
func (s *stub) fund(l *Limiter, p escrow.Purse) {
	u := s.use(l)
	u.Purse = p
	s.sink.Fund([]escrow.KeyUse{u})
}

// purse has taken so many permits, and has read a total.
func purse(taken int64, total escrow.Total) escrow.Purse {
	p := escrow.Purse{Taken: taken}
	total.Cluster = 1
	p.Committed(total, 0, 1, &escrow.Verdict{Cluster: 1})
	return p
}

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

// Where a second and a day are spent a refusal names the day, also where that has begun before
// midnight in UTC: of a provider, and of a key.
func TestARefusalNamesTheDayOfItsZone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokyo, err := time.LoadLocation("Asia/Tokyo")
		if err != nil {
			t.Fatal(err)
		}
		policy := policyOf(t, "20/s,20/d")
		policy.Keys.Limits = policyOf(t, "5/s,5/d").Limits
		policy.Zone = tokyo.String()
		time.Sleep(time.Until(time.Date(2000, 3, 19, 10, 0, 0, 0, tokyo)))
		l := open(t, Fixed(policy), Options{})
		for _, of := range []struct {
			taker Taker
			total int64
		}{{l.Key("x"), 5}, {l, 20}} {
			for err = nil; err == nil; {
				_, err = of.taker.Take(t.Context(), 1, 0)
			}
			limited, _ := errors.AsType[LimitError](err)
			if limited.Total != of.total || limited.Window.Length != 24*time.Hour || !limited.RetryAt.Equal(time.Date(2000, 3, 20, 0, 0, 0, 0, tokyo)) {
				t.Errorf("%v, want %d a day", limited, of.total)
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
		s.fund(l, escrow.Purse{Taken: 2})
		if n := l.TryTake(5).N(); n != 2 || !wanted() || s.use(l).Use.Need != 1 {
			t.Errorf("%d permits of 2, or more is not wanted", n)
		}
	})
}

// A refusal under a long limit says how much is taken and left, and whether more is being
// taken.
func TestARefusalUnderALongLimitTellsTheTruth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := proved(t, "20/s,100/h", 2)
		refused := func(n int64) (text string, wait time.Duration) {
			t.Helper()
			err := take(t.Context(), l, n, 0)
			var limited LimitError
			if !errors.As(err, &limited) {
				t.Fatal(err)
			}
			text, _, _ = strings.Cut(limited.Error(), "; next at")
			return strings.TrimPrefix(text, "consumer: p: no permit: "), time.Until(limited.RetryAt)
		}
		is := func(n int64, want string, least, most time.Duration) {
			t.Helper()
			if got, wait := refused(n); got != want || wait < least || wait > most {
				t.Errorf("%q, try again in %v; want %q, %v to %v", got, wait, want, least, most)
			}
		}
		fund := func(taken, left int64) {
			s.fund(l, purse(taken, escrow.Total{Out: 100 - left}))
		}
		const soon = 200 * time.Millisecond
		s.fund(l, escrow.Purse{})
		is(1, "none in hand of 100/h; more are being fetched", 1, soon)
		fund(8, 92)
		if n := l.TryTake(8).N(); n != 8 {
			t.Fatal(n)
		}
		time.Sleep(time.Second)
		fund(11, 89)
		l.TryTake(3)
		is(1, "none in hand of 100/h; 89 are left and more are being fetched", 1, soon)
		fund(11, 5)
		is(6, "5 left of 100/h, too few for 6", time.Minute, time.Hour)
		fund(11, 0)
		is(1, "the limit of 100/h is used up", time.Minute, time.Hour)
		fund(11, 89)
		u := s.use(l)
		u.Away = true
		s.sink.Fund([]escrow.KeyUse{u})
		const spent = "none in hand of 100/h, and no more can be fetched: "
		for _, why := range []string{"etcd has not answered", "the role does not allow it"} {
			if err := l.Acquire(t.Context(), 0); !errors.Is(err, ErrStale) || !strings.HasSuffix(err.Error(), spent+why) { // no time: nobody knows when etcd answers
				t.Errorf("%v, want the cause: %s", err, why)
			}
			if _, wait := refused(1); wait > 2*time.Second { // also in the next hour etcd has to answer first
				t.Errorf("to be retried in %v, and etcd is asked again in a second", wait)
			}
			s.sink.Trouble(errors.New("the role does not allow it"))
		}
		s.sink.Trouble(nil)
		s.fund(l, purse(11, escrow.Total{Withheld: "etcd was restored"}))
		const way = "nothing more of 100/h is handed out until 2000-01-01 01:00:00 UTC, because etcd was restored; give the provider's count: quota-admin budget p --used N --limit 100/h"
		err := l.Acquire(t.Context(), 0)
		if e, _ := errors.AsType[LimitError](err); e.Error() != "consumer: p: no permit: "+way || !e.RetryAt.IsZero() || l.Status().Problem != way {
			t.Errorf("%v, to be retried at %v, problem %q", err, e.RetryAt, l.Status().Problem)
		}
	})
}

// Whatever else refuses a call of a limit that is withheld after a restore: nobody knows when an operator gives the
// count, so no refusal names the window's end, by which a loop such as README's would sleep.
func TestNoRefusalOfAWithheldLimitNamesTheWindowsEnd(t *testing.T) {
	t.Parallel()
	const pause = 10 * time.Second
	gone := func(s *stub, _ *Limiter) {
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Deleted: []string{"me"}})
		s.sink.Trouble(errors.New("this instance's registration is gone from etcd; it is registering again"))
	}
	silent := func(*stub, *Limiter) { time.Sleep(time.Minute) }
	for name, play := range map[string]struct {
		then  func(s *stub, l *Limiter)
		why   Reason
		until time.Duration // RetryAt, from then on; 0: not known
	}{
		"nothing else":          {func(*stub, *Limiter) {}, ReasonSpent, 0},
		"its share is gone":     {gone, ReasonJoining, 0},
		"so it is, etcd silent": {func(s *stub, l *Limiter) { gone(s, l); silent(s, l) }, ReasonJoining, 0},
		"etcd is silent":        {silent, ReasonSpent, 0},
		"a pause":               {func(_ *stub, l *Limiter) { l.PauseUntil(time.Now().Add(pause)) }, ReasonPause, pause},
		"a pause, and its share is gone": {func(s *stub, l *Limiter) {
			gone(s, l)
			l.PauseUntil(time.Now().Add(pause))
		}, ReasonPause, pause},
	} {
		for _, ofKey := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, of a key %v", name, ofKey), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := policyOf(t, "10/s,100/h")
					if ofKey {
						p = *policyByKey(t, "10/s,100/h")
					}
					bank, sinks, all := longFleet(t, withDefaults(p), "me", "other")
					bank.lost = "etcd was restored"
					taker := Taker(all[0])
					if ofKey {
						taker = all[0].Key("x")
					}
					refused := func() LimitError {
						_, err := taker.Take(t.Context(), 1, 0)
						e, _ := errors.AsType[LimitError](err)
						return e
					}
					bank.play(3, sinks[:1], func(int) { _ = refused() })
					play.then(sinks[0], all[0])
					at := time.Time{}
					if play.until != 0 {
						at = time.Now().Add(play.until)
					}
					if e := refused(); e.Reason != play.why || !e.RetryAt.Equal(at) {
						t.Errorf("%s, to be retried at %v, want %s, %v: %v", e.Reason, e.RetryAt, play.why, at, e)
					}
					if wait := taker.delay(1); wait != Forever {
						t.Errorf("it says that a permit comes in %v", wait)
					}
				})
			})
		}
	}
}

// The log says once that what was withheld is handed out again, also where the state stays the same.
func TestTheLogSaysThatNothingIsWithheldAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		s.tell(1, withDefaults(policyOf(t, "100/h")), 2)
		time.Sleep(4 * time.Second)
		s.prove()
		says := func(want int) {
			t.Helper()
			if n := strings.Count(logged.String(), `msg="nothing is withheld any more" provider=p limit=100/h`); n != want {
				t.Errorf("said %d times, want %d: %s", n, want, logged.String())
			}
		}
		s.fund(l, purse(0, escrow.Total{Out: 8}))
		says(0)
		s.fund(l, purse(0, escrow.Total{Withheld: "etcd was restored"}))
		says(0)
		s.fund(l, purse(8, escrow.Total{Out: 8}))
		says(1)
		l.TryTake(8)
		s.fund(l, purse(16, escrow.Total{Out: 16}))
		says(1)
	})
}

// Of a policy of long limits alone Status and the report have these, and no limit that
// nobody has set.
func TestALongLimitAloneIsAllThatIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := proved(t, "100/h", 2)
		s.fund(l, purse(8, escrow.Total{Out: 8}))
		l.TryTake(3)
		st := l.Status()
		if len(st.Limits) != 1 || st.Shortest().Limit.String() != "100/h" || st.Shortest().Share != 8 || st.Instances != 2 || st.Largest > 100 {
			t.Errorf("%+v", st)
		}
		r := s.sink.Report(s.clock.Now())
		if r.Total != 100 || r.Share != 8 || r.Instances != 2 || r.Window != time.Second || r.Used != 3 || r.Time.Sub(r.WindowStart) > time.Second {
			t.Errorf("%+v", r)
		}
		l.PauseUntil(time.Now().Add(time.Minute))
		if err := l.Acquire(t.Context(), 0); !errors.Is(err, ErrLimited) || strings.Contains(err.Error(), "1s") {
			t.Error(err)
		}
	})
}
