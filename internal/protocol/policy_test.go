package protocol

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// A length that comes into force within a window is limited in all of it, by the smallest
// of its announced limits.
func TestPermitsForALengthThatComes(t *testing.T) {
	t.Parallel()
	minute := func(permits int64) []quota.Limit { return []quota.Limit{{Permits: permits, Window: time.Minute}} }
	w := quota.WindowAt(time.Minute, newYear.UnixNano())
	p := quota.Policy{Limits: []quota.Limit{{Permits: 5, Window: time.Second}}, Next: []quota.LimitChange{
		{From: newYear.Add(10 * time.Second), Limits: minute(70)},
		{From: newYear.Add(20 * time.Second), Limits: minute(30)},
		{From: newYear.Add(30 * time.Second), Limits: minute(50)},
		{From: newYear.Add(time.Minute), Limits: minute(20)},
	}}
	for _, c := range []struct {
		w       quota.Window
		permits int64
		limited bool
	}{
		{w, 30, true},
		{quota.Window{Length: time.Minute, Index: w.Index + 1}, 20, true},
		{quota.Window{Length: time.Minute, Index: w.Index - 1}, 0, false},
	} {
		permits, limited, inForce := PermitsFor(&p, c.w)
		if permits != c.permits || limited != c.limited || !inForce {
			t.Errorf("%v: %d permits, limited %v, in force %v; want %d, %v", c.w, permits, limited, inForce, c.permits, c.limited)
		}
	}
}

// Two builds that disagree here give out a remainder twice.
func TestTurnGoldenValue(t *testing.T) {
	t.Parallel()
	if Turn != 64 {
		t.Errorf("remainders turn every %d windows, not every 64", Turn)
	}
}

// A long limit alone leaves the windows of a second to everybody.
func TestALongLimitAloneBindsNoSecond(t *testing.T) {
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: 24 * time.Hour}}}.WithDefaults()
	for what, limits := range map[string][]quota.Limit{"short": Short(&p), "in force": LimitsAt(&p, 0)} {
		if len(limits) != 1 || limits[0] != (quota.Limit{Permits: quota.MaxPermits, Window: time.Second}) {
			t.Errorf("%s: %+v", what, limits)
		}
	}
}

func TestCeilIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, quota.MaxPermits).Draw(t, "n")
		whole := rapid.Int64Range(1, int64(quota.MaxWindow)).Draw(t, "whole")
		part := rapid.Int64Range(0, whole).Draw(t, "part")
		want := new(big.Int).Mul(big.NewInt(n), big.NewInt(part))
		want.Add(want, big.NewInt(whole-1)).Div(want, big.NewInt(whole))
		if got := ceil(n, time.Duration(part), time.Duration(whole)); got != want.Int64() {
			t.Fatalf("ceil(%d, %d, %d) = %d, want %d", n, part, whole, got, want)
		}
	})
}
