package consumer

import (
	"math/rand/v2"

	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// newPhase draws what sets this limiter's paced permits apart from those of other
// instances.
func newPhase() uint64 { return rand.Uint64() }

// pacingLocked returns how the policy wants permits released.
func (k *core) pacingLocked() window.Pacing {
	policy, _ := k.mu.warrant.Policy()
	if policy == nil || policy.Pacing == quota.PacingOff || policy.Pacing == "" {
		return window.Pacing{}
	}
	return window.Pacing{Even: true, Delay: int64(policy.PacingDelay), Phase: k.phase}
}
