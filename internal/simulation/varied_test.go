package simulation

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// vary sets what of a policy does not enter into shares: when permits are
// released within them, what a refusal means, what only people and tools read. It
// draws by itself, so that the histories' course does not depend on it.
func (p *plan) vary(n *quota.Policy) *quota.Policy {
	r := p.aside
	if r.IntN(12) == 0 {
		n.Mode = quota.ModeShadow
	}
	if p.kind != Calm && r.IntN(6) == 0 { // what pacing releases late, those who do not wait may miss
		n.Pacing = quota.PacingEven
	}
	if p.kind == Timing {
		p.auto = r.IntN(4) == 0
	}
	if p.kind != Calm && p.auto && p.e <= 80*ms && p.autoFits(n) {
		n.GuardAuto, n.Guard = true, 0
	}
	step := 1 + r.IntN(20)
	n.MaxStep, n.BackoffQuorum, n.BackoffMax = float64(step), int64(step%9), time.Duration(step)*100*time.Millisecond
	n.Backoff = []quota.Backoff{quota.BackoffInstance, quota.BackoffFleet}[step%2]
	if n.Budgets, n.Zone = nil, ""; step%4 == 0 { // one that never binds: package escrow has histories of those that do
		n.Budgets, n.Zone = []quota.Limit{{Permits: quota.MaxPermits, Window: time.Hour}}, "Asia/Kolkata"
	}
	n.Author, n.Reason = fmt.Sprintf("operator %d", r.IntN(9)), fmt.Sprintf("reason %d", r.IntN(9))
	n.Time = wallTime(r.Int64N(1000 * ms))
	return n
}

// autoFits reports whether a guard as large as the clock error leaves something
// of every window that the history may have.
func (p *plan) autoFits(n *quota.Policy) bool {
	for _, l := range lengthChoices {
		if p.guarded(l) && n.ClockError >= l/2 {
			return false
		}
	}
	return true
}

// guardCovers reports whether a policy's guard covers the error of the clocks.
func (w *world) guardCovers(p *quota.Policy) bool {
	return !protocol.Shaped(p) && (p.GuardAuto || int64(p.Guard) >= w.e)
}
