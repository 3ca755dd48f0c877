//go:build load

package hours_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func TestWeightIsShare(t *testing.T) {
	const n, total = 24, 3300
	inCrew(t, n, total, quota.Policy{Division: quota.Division{Share: quota.ShareWeighted}}, func(c *crew) {
		c.offer(func(int) int64 { return total })
		pass(5*time.Second - time.Duration(time.Now().Nanosecond())) // all have shares of their own, and a window begins
		all := c.served(10 * time.Second)
		if got, want := sum(all), int64(10*total); got != want {
			t.Errorf("%d of %d permits were used", got, want)
		}
		for i, got := range all {
			want := int64(10 * total / (n + 9))
			if i == 0 {
				want *= 10
			}
			if got != want {
				t.Errorf("instance %d got %d, want %d", i, got, want)
			}
		}
	})
}
