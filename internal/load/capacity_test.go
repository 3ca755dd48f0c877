package load

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

func takesFrom(at time.Duration, permits int64) Takes {
	return Takes{at, quota.Limit{Permits: permits, Window: time.Second}}
}

// A provider takes what it takes in each window of its clock and refuses the rest. A step
// counts from the window's start on; what came before the measured time is not summed.
func TestCapacity(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	c := NewCapacity([]Takes{takesFrom(0, 10), takesFrom(3*time.Second, 4), takesFrom(20*time.Second, 8)})
	calls := func(second, n int64) (taken int64) {
		for i := range n {
			if c.Call(second*s + i*s/n) {
				taken++
			}
		}
		return taken
	}
	if got := calls(90, 12); got != 10 || c.Summary(91*s) != nil {
		t.Errorf("before the measured time %d are taken; %+v", got, c.Summary(91*s))
	}
	c.Begin(100 * s)
	for second := range int64(26) {
		want := int64(10)
		switch {
		case second >= 20:
			want = 8
		case second >= 3:
			want = 4
		}
		n := int64(12)
		if second >= 20 {
			n = 5 + (second-20)/2 // 5 5 6 6 7 7
			want = min(want, n)
		}
		if got := calls(100+second, n); got != want {
			t.Errorf("in second %d %d of %d are taken, want %d", second, got, n, want)
		}
	}
	got := c.Summary(125*s + s/2) // the last window is not whole
	if got == nil || len(got.Steps) != 3 {
		t.Fatalf("%+v", got)
	}
	after := func(seconds float64) *float64 { return &seconds }
	use := func(calls, refused, takes int64) CapacityUse {
		return CapacityUse{calls, refused, ratio(refused, calls), ratio(calls-refused, takes)}
	}
	first, later, last := use(36, 6, 30), use(120, 80, 40), use(84, 56, 28)
	rising := use(29, 0, 40)
	want := &CapacitySummary{use(36+204+29, 6+136, 30+68+40), []CapacityStep{
		{0, "10/s", &first, nil, after(1)},
		{3, "4/s", &later, &last, after(1)},
		{20, "8/s", &rising, nil, nil},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := c.Summary(126 * s).Steps[2].UsedAfterSeconds; got != nil {
		t.Errorf("7 of 8 are 90%%: %v", *got)
	}
	calls(126, 8)
	if got := c.Summary(127 * s).Steps[2].UsedAfterSeconds; got == nil || *got != 7 {
		t.Errorf("all of it is used after %v", got)
	}
}
