package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Until when the provider's rest counts is compared with corrected time, whatever the clock of the operating system says: one
// that is ahead does not end it too early, and one that is behind does not have it last longer than every limit.
func TestARestIsStatedInCorrectedTime(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{-5 * time.Minute, 0, 10 * time.Minute} {
		for _, lasts := range []time.Duration{2 * time.Minute, 55 * time.Minute} {
			f := newFixed(map[time.Duration]int64{second: 1000})
			f.long, f.whole = quota.Limit{Permits: 5000, Window: time.Hour}, true
			f.plan.Offset = int64(offset)
			g := gateOf(f, 0, new(told).decided)
			now := at(4*time.Hour + 2*time.Minute)
			g.Changed(now)
			g.States(now, 9000, 7, now.Mono+f.plan.Offset+int64(lasts))
			if n := upTo(g, now, 100); n != 7 {
				t.Errorf("corrected by %v, for %v: %d are issued, 7 are left", offset, lasts, n)
			}
		}
	}
}
