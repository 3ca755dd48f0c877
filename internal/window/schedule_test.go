package window

import (
	"testing"
	"time"
)

// A permit that is given back returns to each schedule that counted it, and to no later one.
func TestAReturnGoesToTheSchedulesThatCountedIt(t *testing.T) {
	g, f := shapedGate(map[time.Duration]int64{second: 10}, 0, sliding, nil)
	before, ok := take(g, at(0), 4)
	if !ok {
		t.Fatal("nothing was issued")
	}
	f.set(func() { f.plan.Shape.Bucket = true })
	g.Changed(at(100 * ms))
	play(t, g, []step{{200 * ms, 100, 6}})
	if !refund(g, at(300*ms), before, 4) {
		t.Error("the permits cannot be given back")
	}
	play(t, g, []step{{300 * ms, 100, 4}, {310 * ms, 100, 0}})
	if n := g.mu.ledger.spans[0].by[2].left(nil); n > 1 {
		t.Errorf("%d permits are in the bucket, of which four were issued before it began", n)
	}
}

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
