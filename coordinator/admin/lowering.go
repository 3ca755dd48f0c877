package admin

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// A settle time must not be lowered under the freshness that was in force a moment ago.
// An instance that joins after the change waits for the new settle time only. Another
// may still be fresh then, by the old freshness, on the view from before. The joiner
// never saw the old policy, so only the writer can prevent it.
//
// So a policy that another one replaces, with less freshness, is kept under a key
// of its own, in the same transaction. While the key is there no settle time may be
// shorter than that policy needs. Once the change is committed the key gets a lease
// of that length: etcd measures the time, so operators' clocks do not matter. A
// writer that dies in between leaves a key without a lease, which the next change
// gives one.

// superseded is a policy that instances may still rely on.
type superseded struct {
	key    string
	leased bool
	policy quota.Policy
}

// need returns the settle time that keeps policies apart.
func (s *superseded) need(next *quota.Policy) time.Duration {
	p := s.policy.WithDefaults()
	return quota.MinSettleFor(p.Freshness, max(p.ClockError, next.ClockError), max(p.DriftWindow(), next.DriftWindow()))
}

// ttl returns how long instances may rely on the policy, in etcd's unit.
func (s *superseded) ttl() int64 {
	p := s.policy.WithDefaults()
	return int64(s.need(&p)/time.Second) + 1
}

// covered reports whether all that forbids a short settle time after the policy
// forbids it after next too.
func (s *superseded) covered(next *quota.Policy) bool {
	p := s.policy.WithDefaults()
	return next.Freshness >= p.Freshness && next.ClockError >= p.ClockError && next.DriftWindow() >= p.DriftWindow()
}

// checkLowering returns an error if the settle time of next, which is complete, is
// too short for the policies before it.
func checkLowering(provider string, next *quota.Policy, before []superseded) error {
	for _, s := range before {
		if need := s.need(next); next.Settle < need {
			return &quota.FieldError{
				Field: "settle", Value: next.Settle.String(),
				Problem: fmt.Sprintf("not allowed yet: instances still rely on the freshness of %v", s.policy.WithDefaults().Freshness),
				Hint: fmt.Sprintf("first quota-admin set %[1]s %[2]s --freshness %[3]v, %[4]d s later quota-admin set %[1]s %[2]s --settle %[5]v",
					provider, quota.FormatLimits(next.Limits), next.Freshness, s.ttl(), next.Settle),
			}
		}
	}
	return nil
}

func supersededIn(kvs []*mvccpb.KeyValue) []superseded {
	var all []superseded
	for _, kv := range kvs {
		if p := policyOf(kv.Value); p != nil {
			all = append(all, superseded{string(kv.Key), kv.Lease != 0, *p})
		}
	}
	return all
}

// expire lets etcd remove the key when nobody can rely on the policy any more. If
// that fails, the next change tries again.
func (a *Client) expire(ctx context.Context, s superseded) {
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	lease, err := a.client.Grant(c, s.ttl())
	if err != nil {
		return
	}
	unchanged := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.key), ">", 0), clientv3.Compare(clientv3.LeaseValue(s.key), "=", clientv3.NoLease)}
	put := clientv3.OpPut(s.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease.ID))
	if r, err := a.kv.Txn(c).If(unchanged...).Then(put).Commit(); err != nil || !r.Succeeded {
		_, _ = a.client.Revoke(c, lease.ID)
	}
}
