package share

import (
	"github.com/quotient-limiter/quotient/internal/safeguard"
	"github.com/quotient-limiter/quotient/quota"
)

// Without switches safeguards off, to see that a simulation notices. It is for
// tests, and survives Reset.
func (h *History) Without(off safeguard.Set) { h.off = off }

// leap goes to view v as if it were the next one: what Reset does where
// safeguard.GapRestarts is off.
func (h *History) leap(at int64, v quota.View) {
	c := quota.Change{Revision: max(v.Revision, h.revision+1), Policy: v.Policy, PolicyDeleted: v.Policy == nil, Put: v.Instances}
	there := map[string]bool{}
	for i := range v.Instances {
		there[v.Instances[i].ID] = true
	}
	for _, m := range h.members {
		if !there[m.id] {
			c.Deleted = append(c.Deleted, m.id)
		}
	}
	h.Apply(at, c)
}
