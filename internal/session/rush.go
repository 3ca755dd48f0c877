package session

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// An open watch costs a message for every change. A watch that opens again gets all that it has missed
// in a few messages. When a large fleet joins, leaves or restarts at once, etcd and the instances would
// spend their time on single messages. So in a session with a fleet of ManyInstances or more, a watch that
// tells more than RushChanges within HoldBack is closed for as long. Nothing is skipped: the watch opens
// again where it left off, and every revision becomes a view of its own. But the view is up to HoldBack
// late. So HoldBack is a part of the freshness, and starts and ends are announced that much earlier.
const (
	ManyInstances = 100
	RushChanges   = 12
	mostHeldBack  = 750 * time.Millisecond
	heldBackPart  = 4 // a watch is closed for a quarter of the settle time and of the freshness at most
)

// HoldBack returns how long a watch stays closed in a rush; 0 if no fleet of the session is large enough. One
// watch tells of all providers, so it is the shortest time that any of their policies allows.
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

// heldBack returns how long a policy lets a watch be closed; 0 if there are fewer than ManyInstances.
func heldBack(instances int, policy *quota.Policy) time.Duration {
	if instances < ManyInstances {
		return 0
	}
	return min(mostHeldBack, policy.Settle/heldBackPart, policy.Freshness/heldBackPart)
}

// startAmong returns from when an instance takes part that announces itself at the instant now, in corrected
// Unix nanoseconds. instances are those of its fleet, itself included. The others know of it by then, even if
// their watches are closed for a while.
func startAmong(instances int, now int64, policy *quota.Policy) time.Time {
	return protocol.FirstWindow(now+int64(heldBack(instances, policy)), policy)
}

// rush counts the changes that a watch tells, to notice when they come too fast. The zero rush has counted none.
type rush struct {
	began int64 // monotonic instant of the first change counted
	n     int   // changes since then
}

// changes counts n changes that came at the monotonic instant at, and reports whether more than RushChanges have
// come within held. If so, it counts anew: the next watch is not closed before it has told as many. If held is 0 it
// counts nothing.
func (r *rush) changes(n int, at int64, held time.Duration) bool {
	if held == 0 {
		return false
	}
	if at-r.began > int64(held) {
		*r = rush{began: at}
	}
	if r.n += n; r.n <= RushChanges {
		return false
	}
	*r = rush{}
	return true
}
