package shape

import (
	"testing"
	"time"
)

// All of a full bucket's burst may be issued at one instant, one permit after the other, whatever is
// rounded when a permit is taken.
func TestABurstIsThereAtOneInstant(t *testing.T) {
	t.Parallel()
	now := int64(time.Hour)
	for share := int64(1); share <= 40; share++ {
		for burst := int64(1); burst <= share; burst++ {
			b := bucket{length: time.Second, empty: unused}
			for left := burst; left >= 0; left-- {
				if b.roll(now, share, burst, false); b.left(nil) != left {
					t.Fatalf("%d/s with a burst of %d: %d are left, want %d", share, burst, b.left(nil), left)
				}
				b.take(min(1, left), now)
			}
			if b.roll(now+1, share, burst, false); b.left(nil) > 0 {
				t.Errorf("%d/s with a burst of %d: %d more after a nanosecond", share, burst, b.left(nil))
			}
		}
	}
}
