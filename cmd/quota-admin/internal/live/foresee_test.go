package live

import (
	"testing"
	"time"
)

// A budget is used up where its rest lasts for less than its window.
func TestForesee(t *testing.T) {
	now := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	b := Budget{Limit: "5000/h", Permits: 5000, Left: 1200, End: now.Add(30 * time.Minute)}
	for _, test := range []struct {
		rate float64
		want string
	}{
		{1, "at 1/s, 5000/h is used up at 2027-01-01T12:20:00Z, 10m0s before its window ends"},
		{0.5, ""},
		{0, ""},
		{2400, "at 2400/s, 5000/h is used up at 2027-01-01T12:00:00Z, 30m0s before its window ends"},
	} {
		if got := b.Foretell(test.rate, now); got != test.want {
			t.Errorf("%v: %q, want %q", test.rate, got, test.want)
		}
	}
	b.Left = 0
	if at := b.Exhausted(1, now); !at.Equal(now) {
		t.Errorf("nothing is left, and it is used up at %v", at)
	}
}
