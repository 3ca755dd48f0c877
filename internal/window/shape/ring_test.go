package shape

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// When a ring has permits agrees with the counts, slot by slot.
func TestRingWhenAgainstCounting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := &Count{Window: quota.Window{Length: time.Second}}
		r := &ring{length: time.Second, span: spanSlots, slot: unused}
		r.allowFor(rapid.Int64Range(0, int64(time.Second/2)-1).Draw(t, "transit"))
		now, share := int64(0), rapid.Int64Range(1, 12).Draw(t, "share")
		a.Bound = share
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "later")
			r.roll(now)
			r.take(rapid.Int64Range(0, share-r.sum).Draw(t, "n"), now)
		}
		want := rapid.Int64Range(1, share).Draw(t, "n")
		got := r.when(a, want, Present{Now: now})
		c, when := *r, now
		for c.roll(when); share-c.sum < want; c.roll(when) {
			when = c.slotEnd(when)
		}
		if got != when {
			t.Fatalf("%d permits at %v, by counting at %v: %v", want, time.Duration(got), time.Duration(when),
				slices.DeleteFunc(c.counts[:], func(n int64) bool { return n == 0 }))
		}
	})
}
