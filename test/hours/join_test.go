package hours_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// TestANewcomerBorrowsAtOnce lets instances join at several parts of a window, in a
// fleet that has permits left. In fake time a network and a processor take no time, so
// a newcomer that takes a tenth of a second waits for something: the next probe.
func TestANewcomerBorrowsAtOnce(t *testing.T) {
	inCrew(t, 4, 1000, quota.Policy{}, func(c *crew) {
		for i := range 4 {
			pass(time.Second + 230*time.Millisecond) // another part of the window
			began := time.Now()
			h := c.join(4 + i)
			if err := h.limiter.Ready(c.ctx); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("newcomer %d was ready after %v", i, took)
			}
			if !h.limiter.TryAcquire() {
				t.Errorf("newcomer %d is ready, and has no permit", i)
			}
		}
	})
}
