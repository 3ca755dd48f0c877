package limittest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// limitersOf returns a fleet's limiters of n instances, five seconds after they were opened.
func limitersOf(t *testing.T, limits string, n int) (all []*consumer.Limiter) {
	t.Helper()
	parsed, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	f, err := limittest.New(quota.Policy{Limits: parsed}, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Instances() {
		l, err := consumer.Open(t.Context(), i, "p", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		all = append(all, l)
	}
	time.Sleep(5 * time.Second)
	return all
}

// settle takes permits for a call that costs more.
func settle(t *testing.T, l *consumer.Limiter, reserved, cost int64) {
	t.Helper()
	p, err := l.Take(t.Context(), reserved, time.Minute)
	if err == nil {
		err = p.Settle(cost)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A debt is paid by what others do not need: at once if somebody waits behind it, or else when
// the window is nearly over. An instance alone pays by itself.
func TestADebtIsPaidByTheFleet(t *testing.T) {
	for _, c := range []struct {
		instances      int
		limits         string
		reserved, cost int64
		within         time.Duration // the next permit
		unasked        time.Duration // the debt is gone, if nobody waits
	}{
		{20, "100000/1m", 4000, 60000, 10 * time.Millisecond, 55 * time.Second},
		{20, "100000/1m", 4000, 9000, 10 * time.Millisecond, 55 * time.Second},
		{4, "100000/1m", 4000, 160000, 56 * time.Second, 115 * time.Second},
		{20, "1000/s", 40, 600, 10 * time.Millisecond, time.Second},
		{1, "100000/1m", 4000, 160000, 55 * time.Second, 55 * time.Second},
	} {
		name := fmt.Sprintf("%d instances, %s, cost %d", c.instances, c.limits, c.cost)
		synctest.Test(t, func(t *testing.T) {
			all := limitersOf(t, c.limits, c.instances)
			settle(t, all[0], c.reserved, c.cost)
			began := time.Now()
			if _, err := all[0].Take(t.Context(), 1, 24*time.Hour); err != nil || time.Since(began) > c.within {
				t.Errorf("%s: the next permit comes after %v: %v", name, time.Since(began), err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			all := limitersOf(t, c.limits, c.instances)
			settle(t, all[0], c.reserved, c.cost)
			time.Sleep(c.unasked)
			if debt := all[0].Status().Debt; debt > 0 {
				t.Errorf("%s: nobody waits, and a debt of %d is left after %v", name, debt, c.unasked)
			}
		})
	}
}

// Whoever is refused for a debt is told one time, by the text and by RetryAt. It is about when the debt is paid: by what
// others lend too, as soon as a whole window has shown how much. Before, no time is told that the own share alone would
// take, which may be many times as long.
func TestWhenADebtIsPaidIsToldByTheFleet(t *testing.T) {
	for _, others := range []int{0, 100, 200, 250} { // what each of them takes of its share of 250
		synctest.Test(t, func(t *testing.T) {
			all := limitersOf(t, "1000/s", 4)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for _, l := range all[1:] {
				wg.Go(func() {
					for others > 0 && ctx.Err() == nil {
						l.TryAcquire()
						time.Sleep(time.Second / time.Duration(others))
					}
				})
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(3*time.Second + 500*time.Millisecond)))
			settle(t, all[0], 5, 8000)
			told := map[time.Time]consumer.LimitError{} // by when
			for {
				err := all[0].Acquire(t.Context(), 0)
				if err == nil {
					break
				}
				limited, _ := errors.AsType[consumer.LimitError](err)
				if limited.Reason == consumer.ReasonDebt {
					told[time.Now()] = limited
				}
				next := "; next at " + limited.RetryAt.Round(time.Millisecond).UTC().Format("15:04:05.000 UTC")
				if limited.Reason == consumer.ReasonDebt && (limited.DebtUntil.IsZero() != strings.Contains(err.Error(), next) || !limited.DebtUntil.IsZero() && !limited.DebtUntil.Equal(limited.RetryAt)) {
					t.Errorf("two times, %v and %v: %v", limited.DebtUntil, limited.RetryAt, err)
				}
				if !all[0].Status().DebtUntil.Equal(limited.DebtUntil) && limited.Reason == consumer.ReasonDebt {
					t.Errorf("Status says %v, and the refusal %v", all[0].Status().DebtUntil, limited.DebtUntil)
				}
				time.Sleep(250 * time.Millisecond)
			}
			paid := time.Now()
			stop()
			wg.Wait()
			began, unknown := paid, 0
			for at := range told {
				if at.Before(began) {
					began = at
				}
			}
			for at, limited := range told {
				off := limited.RetryAt.Sub(paid)
				if limited.DebtUntil.IsZero() {
					unknown++
					if off > 0 || at.Sub(began) > 2*time.Second {
						t.Errorf("others take %d: after %v nothing is known, and the next try is %v after the debt is paid", others, at.Sub(began), off)
					}
				} else if most := 1500*time.Millisecond + paid.Sub(at)/8; off.Abs() > most {
					t.Errorf("others take %d: after %v the debt is to be paid %v too late, it took %v", others, at.Sub(began), off, paid.Sub(began))
				}
			}
			t.Logf("others take %d: paid after %v; %d of %d times unknown", others, paid.Sub(began), unknown, len(told))
		})
	}
}

// Others lose no call by a debt behind which nobody waits, whatever they want of their shares,
// also if they begin to call when the debt comes.
func TestOthersLoseNoCallByADebt(t *testing.T) {
	const limit, share, others, minutes = 4000, 1000, 3, 3
	for _, warm := range []bool{true, false} {
		for _, part := range []float64{0.5, 0.9, 1.5} {
			synctest.Test(t, func(t *testing.T) {
				all := limitersOf(t, fmt.Sprint(limit, "/1m"), 1+others)
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var granted, refused atomic.Int64
				begin := func() {
					for _, l := range all[1:] {
						wg.Go(func() {
							for ctx.Err() == nil {
								if l.TryAcquire() {
									granted.Add(1)
								} else {
									refused.Add(1)
								}
								time.Sleep(time.Duration(float64(time.Minute) / (part * share)))
							}
						})
					}
				}
				if warm {
					begin()
					time.Sleep(3 * time.Minute)
				}
				settle(t, all[0], share, share+3*limit)
				if !warm {
					begin()
				}
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
				before := granted.Load()
				time.Sleep(minutes * time.Minute)
				got := granted.Load() - before
				stop()
				wg.Wait()
				wanted, least := int64(part*share)*others*minutes, int64(min(part, 1)*share)*others*minutes
				if got < least-others || part < 1 && refused.Load() > 0 { // a call of each may come just after the last minute
					t.Errorf("others want %.1f of their shares, warm %v: beside a debt they have %d of %d calls, %d refused", part, warm, got, wanted, refused.Load())
				}
				// In the minute of the call all of the own share is used, and the part that others do not want
				// of theirs may pay from its end on.
				own, lent := int64(share*(minutes+1)), int64(max(0, 0.9-part)*share)*others*minutes
				if debt := all[0].Status().Debt; debt > 3*limit-own-lent+share {
					t.Errorf("others want %.1f of their shares, warm %v: a debt of %d is left; the own share leaves %d", part, warm, debt, 3*limit-own+share)
				}
			})
		}
	}
}

// A key's debt is paid likewise.
func TestAKeysDebtIsPaidByTheFleet(t *testing.T) {
	for _, waits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			policy := lendingKeys(1000, 0)
			f, err := limittest.New(policy, 20)
			if err != nil {
				t.Fatal(err)
			}
			var keys []consumer.Key
			for _, i := range f.Instances() {
				l, err := consumer.Open(t.Context(), i, "p", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				keys = append(keys, l.Key("a"))
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(5*time.Second + 300*time.Millisecond)))
			p := keys[0].TryTake(50)
			if err := p.Settle(600); err != nil {
				t.Fatal(err)
			}
			if waits {
				err = keys[0].Acquire(t.Context(), 0)
			}
			if limited, _ := errors.AsType[consumer.LimitError](err); waits && (limited.Reason != consumer.ReasonDebt || limited.Key != "a" || limited.Debt != 550 || !limited.DebtUntil.IsZero() || time.Until(limited.RetryAt) > time.Second) {
				t.Errorf("%v: %+v", err, limited)
			}
			began := time.Now()
			if !waits {
				time.Sleep(time.Until(began.Truncate(time.Second).Add(time.Second)))
			}
			if err := keys[0].Acquire(t.Context(), 20*time.Second); err != nil || waits && time.Since(began) > 100*time.Millisecond || !waits && time.Since(began) > 701*time.Millisecond {
				t.Errorf("waits %v: the next permit comes after %v: %v; 11 windows would pay by the own share", waits, time.Since(began), err)
			}
		})
	}
}
