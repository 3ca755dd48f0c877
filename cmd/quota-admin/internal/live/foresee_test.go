package live

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
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

// What a limit would have refused is told point by point, and never of points that tell
// nothing.
func TestForeseeALimit(t *testing.T) {
	point := func(issued, refused float64) Point { return Point{Total: &issued, Refused: refused} }
	points := []Point{{Refused: 1000}, point(100, 0), point(100, 50), point(10, 0)}
	limit := func(n int64) quota.Limit { return quota.Limit{Permits: n, Window: time.Second} }
	for n, want := range map[int64]string{
		60:  "Of 520 permits asked for in the last 6s that this dashboard knows, 100 were refused; 60/s would have refused about 260, if callers had asked for the same.",
		200: "Of 520 permits asked for in the last 6s that this dashboard knows, 100 were refused; 200/s would have refused about 0, if callers had asked for the same.",
	} {
		if got := Foresee(points, 2*time.Second, limit(n)); got != want {
			t.Errorf("%d/s: %s", n, got)
		}
	}
	if got := Foresee(points[:1], time.Second, limit(1)); got != "" {
		t.Error(got)
	}
}
