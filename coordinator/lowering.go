package coordinator

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// A settle time must not be lowered under the freshness that was in force a
// moment ago: an instance that joins after the change waits for the new settle
// time only, while another may still be fresh, by the old freshness, on the view
// from before. Who joins never saw the old policy, so nobody but the writer can
// prevent it.
//
// The rule: for every policy that was superseded at time d, now plus the new
// settle time must not be before d plus the settle time that its freshness needs.

// recentRecords is how many history records are looked at; more changes than
// that within MaxSettle are not a person's.
const recentRecords = 20

// superseded is a policy and when it was replaced.
type superseded struct {
	policy quota.Policy
	at     time.Time
}

// checkLowering returns an error if the new policy's settle time is too short so
// soon after the policies before it.
func (a *Admin) checkLowering(ctx context.Context, provider string, old []byte, value []byte) error {
	set := policyOf(value)
	if set == nil {
		return nil // a deletion
	}
	next := set.WithDefaults()
	before, err := a.recentlySuperseded(ctx, provider)
	if err != nil {
		return err
	}
	now := time.Now()
	if p := policyOf(old); p != nil {
		before = append(before, superseded{*p, now})
	}
	for _, s := range before {
		was := s.policy.WithDefaults()
		need := quota.MinSettleFor(was.Freshness, max(was.ClockError, next.ClockError), max(was.DriftWindow(), next.DriftWindow()))
		if wait := need - next.Settle - now.Sub(s.at); wait > 0 {
			return &quota.FieldError{
				Field: "settle", Value: next.Settle.String(),
				Problem: fmt.Sprintf("too short so soon after a freshness of %v: who joins now could exceed the total with those who still rely on that", was.Freshness),
				Hint:    fmt.Sprintf("first lower freshness alone, and lower settle %v later", need),
			}
		}
	}
	return nil
}

func (a *Admin) recentlySuperseded(ctx context.Context, provider string) ([]superseded, error) {
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	r, err := a.client.Get(c, a.keys.history(provider), clientv3.WithPrefix(), clientv3.WithLimit(recentRecords),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err != nil {
		return nil, classify(ctx, "read the history of "+provider, err)
	}
	var all []superseded
	for _, kv := range r.Kvs {
		w, err := decodeRecord(kv.Value)
		if err != nil {
			continue
		}
		if p := policyOf(w.Old); p != nil {
			all = append(all, superseded{*p, w.Time})
		}
	}
	return all, nil
}
