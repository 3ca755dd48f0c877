package coordinator

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// A watch that keeps up gets a message for every change; one that lags gets the
// missed changes in a few messages. When a large fleet joins, leaves or restarts at
// once, etcd and the instances spend their time on the former. So among
// manyInstances or more a watch is kept closed for a little whenever more than
// rushChanges have come in that time. It skips nothing: the watch opens again
// where it left off, and every revision is a view of its own. It costs time: the view
// lags by up to holdBack. So holdBack is less than the freshness leaves, and a start or an end
// is announced so much earlier.
const (
	manyInstances = 100
	mostHeldBack  = 750 * time.Millisecond
	heldBackPart  = 4 // of the settle time, and of the freshness, at most
	rushChanges   = 12
)

// countInstances is the question how many instances there are.
func (p *membership) countInstances() clientv3.Op {
	return clientv3.OpGet(p.s.keys.Instances(p.provider), clientv3.WithPrefix(), clientv3.WithCountOnly())
}

// heldBack is how long a watch stays closed in a fleet of some instances under a policy.
func heldBack(instances int, policy *quota.Policy) time.Duration {
	if instances < manyInstances {
		return 0
	}
	return min(mostHeldBack, policy.Settle/heldBackPart, policy.Freshness/heldBackPart)
}

// startAmong is the start that an instance announces at the instant now, in wall time, in
// a fleet of some instances, itself included: their watches may be closed for a little.
func startAmong(instances int, now int64, policy *quota.Policy) time.Time {
	return protocol.FirstWindow(now+int64(heldBack(instances, policy)), policy)
}

// rush counts the changes that a watch delivers.
type rush struct {
	began int64 // instant of the first one counted
	n     int
}

// changes counts changes that came at an instant, and reports whether there were
// more than rushChanges within held; never if held is 0.
func (r *rush) changes(n int, at int64, held time.Duration) bool {
	if at-r.began > int64(held) {
		r.began, r.n = at, 0
	}
	r.n += n
	return held > 0 && r.n > rushChanges
}
