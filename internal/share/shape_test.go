package share

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// A share of a bucket has at least one permit of burst, without which it is worth nothing.
func TestAShareHasABurst(t *testing.T) {
	limit := quota.Limit{Permits: 1000, Window: time.Second}
	p := quota.Policy{Release: quota.Release{Shape: quota.ShapeBucket, Burst: 10}, Limits: []quota.Limit{limit}}
	of := terms{rules: p, policy: &p}
	for permits, want := range map[int64]int64{0: 0, 1: 1, 99: 1, 100: 1, 200: 2, 250: 2, 1000: 10} {
		if n := of.burst(permits, limit); n != want {
			t.Errorf("%d of 1000 permits have a burst of %d, want %d", permits, n, want)
		}
	}
}
