package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func TestSettle(t *testing.T) {
	bubble(t, "10/s,100/m", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		take := func(n int64) Permit {
			p, err := l.Take(ctx, n, 0)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		settle := func(p Permit, actual int64) {
			t.Helper()
			if err := p.Settle(actual); err != nil {
				t.Error(err)
			}
		}
		p, q, late := take(6), take(2), take(1)
		settle(p, 1)
		if p.Release() || !errors.Is(p.Settle(99), ErrInvalid) {
			t.Error("a permit is given back twice")
		}
		for _, actual := range []int64{-1, quota.MaxPermits + 1} {
			if err := q.Settle(actual); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "0 to 1000000000000") {
				t.Errorf("%d: %v", actual, err)
			}
		}
		settle(q, 10) // 6 are left, and 2 are owed
		if st := l.Status(); st.Debt != 2 || st.Issued != 10 || st.Limits[1].Used != 10 || st.Shortest().Left != 0 {
			t.Errorf("%+v", st)
		}
		if r := l.core.Report(l.core.clock.Now()); r.Debt != 2 || r.Used != 10 {
			t.Errorf("%+v", r)
		}
		if d := l.Delay(8); d != time.Second {
			t.Errorf("8 permits come in %v", d)
		}
		if d := l.Delay(9); d != 2*time.Second {
			t.Errorf("9 permits come in %v", d)
		}
		if _, err := l.Take(ctx, 8, Forever); err != nil || l.Status().Debt != 0 {
			t.Errorf("%v, and a debt of %d", err, l.Status().Debt)
		}
		time.Sleep(3 * time.Second)
		settle(late, 12) // the answer came three windows later
		if st := l.Status(); st.Debt != 1 || st.Shortest().Left != 0 {
			t.Errorf("%+v", st)
		}
		time.Sleep(time.Second)
		if st := l.Status(); st.Debt != 0 || st.Shortest().Left != 9 {
			t.Errorf("a window that nobody used has not paid: %+v", st)
		}
		if err := (Permit{}).Settle(0); err != nil {
			t.Error(err)
		}
		if err := (Permit{}).Settle(1); !errors.Is(err, ErrInvalid) {
			t.Errorf("the zero Permit: %v", err)
		}
	})
}

// What shadow mode let pass owes nothing; a debt from before does not stop it.
func TestSettleInShadowMode(t *testing.T) {
	bubble(t, "5/s", Options{}, func(t *testing.T, ctx context.Context, source *FixedSource, l *Limiter) {
		policy := policyOf(t, "5/s")
		policy.Mode = quota.ModeShadow
		if err := source.Set(policy); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		mixed := l.TryTake(9)
		passed, err := l.Take(ctx, 9, 0)
		if err := errors.Join(err, mixed.Settle(20), passed.Settle(20)); err != nil || l.Status().Debt != 0 {
			t.Errorf("%v, and a debt of %d", err, l.Status().Debt)
		}
		time.Sleep(time.Second)
		p := l.TryTake(5)
		settled := p.Settle(50)
		_, err = l.Take(ctx, 7, 0)
		if err := errors.Join(settled, err); err != nil || l.Status().Debt != 45 {
			t.Errorf("%v, and a debt of %d", err, l.Status().Debt)
		}
	})
}

// A debt belongs to the process: a new incarnation pays it. A debt that is unpaid at the
// end is shown and logged.
func TestADebtSurvivesUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		policy := withDefaults(policyOf(t, "10/s"))
		s.tell(1, policy, 1)
		time.Sleep(5 * time.Second)
		s.prove()
		p, other := l.TryTake(5), l.TryTake(1)
		if err := p.Settle(100); err != nil {
			t.Fatal(err)
		}
		before := l.Status().Debt
		s.sink.Reset(s.clock.Now(), "b", protocol.View{Revision: 9, Policy: policy, PolicyRevision: 1, Instances: []protocol.Instance{{ID: "b"}}})
		s.prove()
		if st := l.Status(); st.Debt != before || before != 91 {
			t.Errorf("a debt of %d became %d", before, st.Debt)
		}
		time.Sleep(3 * time.Second)
		s.prove()
		time.Sleep(2 * time.Second)
		paid := l.Status().Debt
		if paid >= before || l.TryAcquire() {
			t.Errorf("a debt of %d became %d", before, paid)
		}
		s.sink.Close()
		if st := l.Status(); st.Debt == 0 || st.Debt > paid {
			t.Errorf("the debt is %d after the end, and was %d", st.Debt, paid)
		}
		if !strings.Contains(text.String(), "closed with a debt") {
			t.Errorf("no debt in the log:\n%s", &text)
		}
		if err := other.Settle(2); !errors.Is(err, ErrClosed) {
			t.Errorf("a debt after the end: %v", err)
		}
	})
}

// A cost above ten windows of the smallest limit is a mistake: so much is booked, and said.
func TestACostIsBounded(t *testing.T) {
	bubble(t, "10/s,500/m", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		honest, wrong := l.TryTake(2), l.TryTake(3)
		if err := honest.Settle(100); err != nil || l.Status().Debt != 93 {
			t.Errorf("ten windows: %v, a debt of %d", err, l.Status().Debt)
		}
		const text = "consumer: p: settle: 100 permits are booked of a cost of 1000000000, which is above ten windows of 10/s: is the unit right?"
		if err := wrong.Settle(1e9); !errors.Is(err, ErrTooLarge) || err.Error() != text || l.Status().Debt != 93+97 {
			t.Errorf("%v, a debt of %d", err, l.Status().Debt)
		}
		if err := wrong.Settle(1); !errors.Is(err, ErrInvalid) {
			t.Errorf("settled again: %v", err)
		}
	})
}

// Of a call for a key the smallest limit is the key's or the provider's, whichever has fewer permits.
func TestACostOfAKeyIsBounded(t *testing.T) {
	for _, c := range []struct {
		limits, keys string
		cost, booked int64
		above        string // "": it is all booked
	}{
		{"1000/s", "3/s", 30, 30, ""},
		{"1000/s", "3/s", 31, 30, "3/s"},
		{"1000/s", "3/s,50/m", 31, 30, "3/s"},
		{"20/s", "30/s", 200, 200, ""},
		{"20/s", "30/s", 201, 200, "20/s"},
	} {
		t.Run(fmt.Sprint(c.limits, " ", c.keys, " ", c.cost), func(t *testing.T) {
			policy := policyOf(t, c.limits)
			limits, err := quota.ParseLimits(c.keys)
			if err != nil {
				t.Fatal(err)
			}
			policy.Keys = quota.Keys{Limits: limits, Most: 100}
			keyed(t, policy, func(t *testing.T, l *Limiter, _ *FixedSource) {
				err := l.Key("a").TryTake(1).Settle(c.cost)
				e, _ := errors.AsType[TooLargeError](err)
				if c.above == "" && err != nil || c.above != "" && (e.Asked != c.cost || e.Largest != c.booked || e.Settled.String() != c.above) {
					t.Errorf("%v", err)
				}
				if issued := l.Status().Issued + l.Status().Debt; issued != c.booked {
					t.Errorf("%d permits are booked or owed of the provider, want %d", issued, c.booked)
				}
				used := l.Key("a").Limits()[0].Used
				refused, _ := errors.AsType[LimitError](l.Key("a").Acquire(t.Context(), 0))
				if used+refused.Debt != c.booked {
					t.Errorf("%d permits are booked of the key and %d owed, want %d", used, refused.Debt, c.booked)
				}
			})
		})
	}
}

// While a debt is paid, whoever is refused or looks is told how much is owed, and until about when.
func TestADebtIsSaid(t *testing.T) {
	bubble(t, "10/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		p := l.TryTake(5)
		if err := p.Settle(51); err != nil {
			t.Fatal(err)
		}
		// 10 of the 51 are of this second, and each of the next four and a part of the fifth pays.
		ends := time.Now().Truncate(time.Second).Add(5 * time.Second)
		err := l.Acquire(ctx, 0)
		limited, _ := errors.AsType[LimitError](err)
		if limited.Reason != ReasonDebt || limited.Debt != 41 || !limited.DebtUntil.Equal(ends) || !limited.RetryAt.Equal(ends) {
			t.Errorf("%+v, want until %v", limited, ends)
		}
		text := "an earlier call cost more than it reserved; 41 of that are still to be paid, by about " + ends.UTC().Format("2006-01-02 15:04:05 UTC")
		if err == nil || err.Error() != "consumer: p: no permit: "+text {
			t.Errorf("%v", err)
		}
		st := l.Status()
		if st.Debt != 41 || !st.DebtUntil.Equal(ends) || st.Problem != text || st.RefusedBy[ReasonDebt] != 1 || l.core.Report(l.core.clock.Now()).Problem != text {
			t.Errorf("%+v", st)
		}
		time.Sleep(3 * time.Second)
		if st := l.Status(); st.Debt != 11 || st.Problem != "" || !st.DebtUntil.Equal(ends) {
			t.Errorf("a debt that the next window pays is no problem: %+v", st)
		}
		if err := l.Acquire(ctx, 2*time.Second); err != nil || !l.Status().DebtUntil.IsZero() || !time.Now().Equal(ends) {
			t.Errorf("%v at %v, want the permit at %v", err, time.Now(), ends)
		}
	})
}
