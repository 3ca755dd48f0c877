//go:build load

package hours_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// full checks that all of the total was issued in every second between two
// instants.
func (c *crew) full(from, to time.Time, total int64) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	judged := 0
	for second := from.Add(time.Second - 1).Unix(); second < to.Unix(); second++ {
		judged++
		if n := c.issued[second]; n != total {
			c.t.Errorf("%d of %d permits were used in the second that began %v after %v", n, total, time.Unix(second, 0).Sub(from), from)
		}
	}
	if judged < 3 {
		c.t.Errorf("only %d seconds could be judged", judged)
	}
}

// greedy callers ask for more than there can be.
func greedy(int) int64 { return 500 }

func TestAnnouncedJoinsAndLeavesLoseNothing(t *testing.T) {
	const total = 50 // over 8, 10, 5: with remainders
	inCrew(t, 8, total, quota.Policy{}, func(c *crew) {
		c.offer(greedy)
		began := time.Now()
		time.Sleep(4 * time.Second)
		c.join(8)
		c.join(9)
		c.offer(greedy)
		time.Sleep(7 * time.Second)
		left := make(chan error)
		for _, h := range c.hands[:5] {
			go func() { left <- h.session.Shutdown(c.ctx) }()
		}
		for range 5 {
			if err := <-left; err != nil {
				c.t.Error(err)
			}
		}
		time.Sleep(4 * time.Second)
		c.full(began, time.Now(), total)
		if st := c.hands[9].limiter.Status(); st.Instances != 5 || st.Shortest().Share != total/5 {
			c.t.Errorf("who joined last knows %d instances and has %d permits", st.Instances, st.Shortest().Share)
		}
	})
}

func TestALimitAnnouncedInTimeFlipsAtOneWindow(t *testing.T) {
	const before, after = 60, 96
	inCrew(t, 6, after, quota.Policy{}, func(c *crew) {
		c.offer(greedy)
		p := quota.Policy{Limits: permits(before).Limits}
		c.put(p)
		time.Sleep(10 * time.Second)
		began := time.Now()
		p.Settle, p.ClockError = quota.DefaultSettle, quota.DefaultClockError
		at := time.Now().Add(p.Settle + 2*p.ClockError + time.Second).Truncate(time.Second)
		p.Next = []quota.LimitChange{{From: at, Limits: permits(after).Limits}}
		c.put(p)
		time.Sleep(time.Until(at) + 5*time.Second)
		c.full(began, at, before)
		c.full(at, time.Now(), after)
	})
}

// TestTheAuthorOfAnAnnouncementDies: before the window that it announced, or
// after it with its key still there. The others take over when it said.
func TestTheAuthorOfAnAnnouncementDies(t *testing.T) {
	const total = 50
	for name, ahead := range map[string]time.Duration{"before its window": 900 * time.Millisecond, "after its window": 50 * time.Millisecond} {
		inCrew(t, 4, total, quota.Policy{}, func(c *crew) {
			c.offer(greedy)
			began, author := time.Now(), c.hands[3]
			time.Sleep(4 * time.Second)
			left := make(chan error, 1)
			go func() { left <- author.session.Shutdown(c.ctx) }()
			time.Sleep(100 * time.Millisecond)
			until := c.announced(author)
			time.Sleep(time.Until(until.Add(-ahead)))
			died := time.Now()
			if ahead > 500*time.Millisecond {
				author.stop() // a process that is gone issues nothing
			}
			author.line.hold()
			time.Sleep(time.Until(until) + 10*time.Second) // its lease ends on the way
			author.line.mend()
			if err := <-left; err != nil && !errors.Is(err, coordinator.ErrUnreachable) { // its keys go with its lease
				c.t.Errorf("%s: %v", name, err)
			}
			if ahead > 500*time.Millisecond { // what the dead had not used by then is lost
				c.full(began, died.Truncate(time.Second), total)
				c.full(until, time.Now(), total)
				return
			}
			c.full(began, time.Now(), total)
		})
	}
}

// announced returns the end that an instance has announced.
func (c *crew) announced(h *hand) time.Time {
	c.t.Helper()
	v, err := feed.Inside(c.admin).Fleet(c.t.Context(), provider)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, i := range v.View().Instances {
		if i.ID == h.limiter.Status().Incarnation && !i.Until.IsZero() {
			return i.Until
		}
	}
	c.t.Fatal("the end is not announced")
	return time.Time{}
}

func (c *crew) put(p quota.Policy) {
	c.t.Helper()
	if _, err := c.admin.Put(c.t.Context(), provider, p); err != nil {
		c.t.Fatal(err)
	}
}
