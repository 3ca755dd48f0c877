package consumer

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// DelayN tells when that many permits can be had at once, and then they can.
func TestDelayOfSeveral(t *testing.T) {
	slot := protocol.SlotOf(10 * time.Second)
	for _, c := range []struct {
		name     string
		policy   quota.Policy
		n        int64
		from, to time.Duration
	}{
		{"none", quota.Policy{}, 0, 0, 0},
		{"one is left", quota.Policy{}, 1, 0, 0},
		{"more than are left", quota.Policy{}, 2, 6 * time.Second, 6 * time.Second},
		{"all of a share", quota.Policy{}, 6, 6 * time.Second, 6 * time.Second},
		{"more than a share", quota.Policy{}, 7, math.MaxInt64, math.MaxInt64},
		{"sliding: one is left", quota.Policy{Release: quota.Release{Shape: quota.ShapeSliding}}, 1, 0, 0},
		{"sliding: those of 2 s come back", quota.Policy{Release: quota.Release{Shape: quota.ShapeSliding}}, 4, 8*time.Second + slot, 8*time.Second + 2*slot},
		{"sliding: those of 4 s too", quota.Policy{Release: quota.Release{Shape: quota.ShapeSliding}}, 5, 10*time.Second + slot, 10*time.Second + 2*slot},
		{"bucket: some have accrued", quota.Policy{Release: quota.Release{Shape: quota.ShapeBucket}}, 2, 0, 0},
		{"bucket: one more than a burst", quota.Policy{Release: quota.Release{Shape: quota.ShapeBucket, Burst: 5}}, 6, math.MaxInt64, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.policy.Limits = []quota.Limit{{Permits: 6, Window: 10 * time.Second}}
				l := open(t, Fixed(c.policy), Options{})
				time.Sleep(2 * time.Second)
				l.TryTake(3).N()
				time.Sleep(2 * time.Second)
				l.TryTake(2).N()
				d := l.Delay(c.n)
				if d < c.from || d > c.to {
					t.Fatalf("%v, want %v to %v", d, c.from, c.to)
				}
				if d == math.MaxInt64 || c.n == 0 {
					return
				}
				if d > 0 {
					time.Sleep(d - time.Microsecond)
					if err := take(t.Context(), l, c.n, 0); err == nil {
						t.Errorf("%d permits 1 us sooner", c.n)
					}
					time.Sleep(time.Microsecond)
				}
				if err := take(t.Context(), l, c.n, 0); err != nil {
					t.Errorf("after %v: %v", d, err)
				}
			})
		})
	}
}
