//go:build load

package hours_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// away is how long the oldest is out of reach: its lease ends, and it comes back
// as the youngest. As the next oldest follows after 5 s, one or two are away all
// the time.
const away = 8 * time.Second

// harms are what befalls the oldest instance.
var harms = []struct {
	name string
	do   func(c *crew, oldest *hand, next int)
}{
	{"killed", func(c *crew, oldest *hand, next int) {
		oldest.stop()
		_ = oldest.client.Close()
		c.t.Cleanup(func() { _ = oldest.session.Close() })
		c.join(next)
	}},
	{"cut off", func(c *crew, oldest *hand, _ int) {
		oldest.line.hold()
		time.AfterFunc(away, oldest.line.mend)
		c.hands = append(c.hands, oldest)
	}},
	{"standing still", func(c *crew, oldest *hand, _ int) {
		c.rest(oldest, true)
		oldest.line.hold()
		time.AfterFunc(away, func() {
			oldest.line.mend()
			c.rest(oldest, false)
		})
		c.hands = append(c.hands, oldest)
	}},
}

// TestTheOldestFailsAgainAndAgain: every 5 s, without a word. The others go on
// lending, and the fleet uses what its callers ask for.
func TestTheOldestFailsAgainAndAgain(t *testing.T) {
	const total, n, times = 12_000, 24, 8
	for _, harm := range harms {
		// One that is cut off and holds its share would exceed: see docs/proof/protocol.md.
		inCrew(t, n, total, quota.Policy{Outage: quota.OutageStop}, func(c *crew) {
			ask := func(i int) int64 { return int64(1+i%4) * total * 2 / 5 / int64(n) }
			c.offer(ask)
			c.until(total * 95 / 100)
			before := time.Now().Unix()
			for i := range times {
				oldest := c.hands[0]
				c.hands = c.hands[1:]
				harm.do(c, oldest, n+i)
				c.offer(ask)
				pass(5 * time.Second)
			}
			used, could := c.since(before)
			part := float64(used) / float64(could)
			t.Logf("%.3f of the total, or of what was asked for, was used while the oldest was %s %d times (%.3f of the total)",
				part, harm.name, times, float64(used)/float64(total*(time.Now().Unix()-before)))
			// Two shares at most are nobody's.
			if part < 0.98*float64(n-2)/float64(n) {
				t.Errorf("only %.3f was used while the oldest was %s again and again", part, harm.name)
			}
			pass(away) // all are back
		})
	}
}

// rest lets an instance's callers rest, or call again.
func (c *crew) rest(h *hand, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.stopped = stopped
}

// since returns the permits of all seconds from one on that are over, and how
// many could have been used: the total, or what was asked for.
func (c *crew) since(second int64) (used, could int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; second < time.Now().Unix(); second++ {
		used += c.issued[second]
		could += min(c.total, c.asked[second])
	}
	return used, could
}
