package protocol

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func TestTakesPart(t *testing.T) {
	t.Parallel()
	at := newYear.UnixNano()
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, test := range []struct {
		name        string
		from, until time.Time
		wall        int64
		want        bool
	}{
		{"always", time.Time{}, time.Time{}, at, true},
		{"before from", newYear, time.Time{}, at - 1, false},
		{"at from", newYear, time.Time{}, at, true},
		{"before until", time.Time{}, newYear, at - 1, true},
		{"at until", time.Time{}, newYear, at, false},
		{"never", newYear, newYear, at, false},
		{"from far away", year(9999), time.Time{}, at, false},
		{"until far away", time.Time{}, year(9999), at, true},
		{"from long ago", year(2), time.Time{}, at, true},
		{"until long ago", time.Time{}, year(2), at, false},
	} {
		i := Instance{From: test.from, Until: test.until}
		if got := TakesPart(&i, test.wall); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestDriftBoundIsThatOfTheSettleRule(t *testing.T) {
	t.Parallel()
	if got := quota.MinSettleFor(0, 0, quota.MaxWindow); got != quota.MaxWindow/DriftBound {
		t.Errorf("a window of %v needs %v, want %v", quota.MaxWindow, got, quota.MaxWindow/DriftBound)
	}
}
