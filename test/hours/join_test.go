//go:build load

package hours_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
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

// TestSeveralStartTogether: the first begins at once, and lends to the others.
func TestSeveralStartTogether(t *testing.T) {
	alone(t, quota.Policy{}, func(s *solo) {
		sessions := []*coordinator.Session{s.join(), s.join(), s.join()}
		took := make(chan time.Duration, len(sessions))
		for _, session := range sessions {
			go func() { took <- s.permit(session) }()
		}
		for range sessions {
			if d := <-took; d > soon+100*time.Millisecond { // it is lent from the first permits
				s.t.Errorf("one had a permit after %v", d)
			}
		}
		for _, session := range sessions {
			s.ends(session.Close)
		}
	})
}
