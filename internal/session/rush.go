package session

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// A watch that keeps up gets a message for every change; one that lags gets the
// missed changes in a few messages. When a large fleet joins, leaves or restarts at
// once, etcd and the instances spend their time on the former. So among
// ManyInstances or more a watch is kept closed for a little whenever more than
// RushChanges have come in that time. It skips nothing: the watch opens again
// where it left off, and every revision is a view of its own. It costs time: the view
// lags by up to HoldBack. So HoldBack is less than the freshness leaves, and a start or an end
// is announced so much earlier.
const (
	ManyInstances = 100
	RushChanges   = 12
	mostHeldBack  = 750 * time.Millisecond
	heldBackPart  = 4 // a watch is closed for at most this part of the settle time, and of the freshness
)

// HoldBack returns how long a watch stays closed in a rush, 0 if no fleet is large enough. A watch
// tells of all providers, so it is the least that any policy allows.
func (m *Machine) HoldBack() time.Duration {
	large, held := false, mostHeldBack
	for _, p := range m.members {
		if p.policy != nil {
			large = large || p.tracker.Instances() >= ManyInstances
			held = min(held, heldBack(ManyInstances, p.policy))
		}
	}
	if !large {
		return 0
	}
	return held
}

// heldBack returns how long a watch stays closed in a fleet of some instances under a policy.
func heldBack(instances int, policy *quota.Policy) time.Duration {
	if instances < ManyInstances {
		return 0
	}
	return min(mostHeldBack, policy.Settle/heldBackPart, policy.Freshness/heldBackPart)
}

// startAmong returns the start that an instance announces at the instant now, in corrected Unix
// nanoseconds, in a fleet of some instances, itself included. It allows for watches that are closed
// for a little.
func startAmong(instances int, now int64, policy *quota.Policy) time.Time {
	return protocol.FirstWindow(now+int64(heldBack(instances, policy)), policy)
}

// rush counts the changes that a watch tells. The zero rush has counted none.
type rush struct {
	began int64 // monotonic instant of the first change counted
	n     int   // changes since then
}

// changes counts n changes that came at an instant, and reports whether there were
// more than RushChanges within held; never if held is 0.
func (r *rush) changes(n int, at int64, held time.Duration) bool {
	if at-r.began > int64(held) {
		r.began, r.n = at, 0
	}
	r.n += n
	return held > 0 && r.n > RushChanges
}
