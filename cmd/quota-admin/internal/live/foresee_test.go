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

// What limits would have refused is counted in their windows, and never of points that tell
// nothing.
func TestForeseeLimits(t *testing.T) {
	at := int64(0)
	point := func(issued, refused float64) Point {
		at += 2000
		return Point{At: at - 2000, Total: &issued, Refused: refused}
	}
	points := []Point{point(100, 0), {At: 1, Refused: 1000}, point(100, 50), point(10, 0)}
	for text, want := range map[string]string{
		"60/s":          "Of 520 permits asked for in the last 6s that the dashboard knows, 100 were refused; 60/s would have refused about 260, if callers had asked for the same.",
		"30/500ms":      "Of 520 permits asked for in the last 6s that the dashboard knows, 100 were refused; 30/500ms would have refused about 260, if callers had asked for the same.",
		"200/s,5000/h":  "Of 520 permits asked for in the last 6s that the dashboard knows, 100 were refused; 200/s would have refused about 0, if callers had asked for the same.",
		"300/4s":        "Of 520 permits asked for in the last 6s that the dashboard knows, 100 were refused; 300/4s would have refused about 200, if callers had asked for the same.",
		"130/s,410/10s": "Of 520 permits asked for in the last 6s that the dashboard knows, 100 were refused; 130/s, 410/10s would have refused about 110, if callers had asked for the same.",
		"5000/h":        "",
	} {
		limits, err := quota.ParseLimits(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Foresee(points, 2*time.Second, limits).String(); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	few := []quota.Limit{{Permits: 1, Window: time.Second}}
	if got := Foresee(points[1:2], time.Second, few).String(); got != "" {
		t.Error(got)
	}
	if got := Foresee([]Point{point(0, 0)}, time.Second, few).String(); got != "No permits were asked for in the last 1s that the dashboard knows." {
		t.Error(got)
	}
}
