package histories

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// This file judges pauses. An instance is held back at most for the longest time that a
// policy allows; by others only if as many ask as a quorum is, or somebody forges that;
// and once for each write of asks, each ask of its own, and each policy, which bounds asks.

// judgePause looks at a limiter. until is the monotonic end of its pause as last seen,
// grown how often that has moved on.
func (c *caller) judgePause(st consumer.Status, until *int64, grown *int) {
	if st.PausedUntil.IsZero() {
		return
	}
	now := c.reader.read().Mono
	left := st.PausedUntil.UnixNano() - c.clock.WallAt(now)
	if strings.Contains(st.PauseReason, "said by") {
		backedOff.note()
	}
	longest, policies := mostDrain, 0
	var last *quota.Policy
	c.f.states.mu.Lock()
	c.f.policies(func(p *quota.Policy) {
		if p != last {
			last = p
			policies++
		}
		longest = max(longest, p.BackoffMax)
	})
	asked := c.f.asked
	c.f.states.mu.Unlock()
	w := c.w
	w.mu.Lock()
	own, drains, askers, most := w.pushed[c.name], c.drains, len(w.pushed), 0
	for _, n := range w.pushed {
		most = max(most, n)
	}
	forged, unset := w.forged, c.f.unset
	w.mu.Unlock()
	if own > 0 || unset { // it may not know a policy
		longest = time.Minute
	}
	if time.Duration(left) > longest+100*time.Millisecond {
		w.complain("%s is held back for %v, policies allow %v", c.name, time.Duration(left), longest)
	}
	quorum := 1
	if _, said, ok := strings.Cut(st.PauseReason, "said by "); ok {
		var by, n int
		if _, err := fmt.Sscanf(said, "%d of %d", &by, &n); err != nil {
			w.complain("%s: %q: %v", c.name, st.PauseReason, err)
		}
		if n > 3 {
			quorum = 2
		}
	}
	if !forged && own+drains == 0 && most < 3 && askers < quorum {
		w.complain("%s is held back by %d instances, the quorum is %d", c.name, askers, quorum)
	}
	if now+left > *until+20*ms && c.w.kind != measured { // where clocks step
		*until = now + left
		if *grown++; *grown > asked+own+drains+policies {
			w.complain("%s was held back %d times, by %d writes, %d policies and %d asks", c.name, *grown, asked, policies, own+drains)
		}
	}
}
