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
	f.set(func() { f.plan.Shape.Sliding = false })
	g.Changed(at(310 * ms))
	if n := upTo(g, at(310*ms), 100); n > 1 {
		t.Errorf("%d permits are in the bucket, of which four were issued before it began", n)
	}
}
