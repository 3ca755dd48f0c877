package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/quota"
)

// takesOf has a membership take a permit of each of some keys, and returns for how many etcd
// gave no answer.
func (p *membership) takesOf(t *testing.T, names ...string) (away int) {
	t.Helper()
	var uses []escrow.KeyUse
	for _, name := range names {
		b := protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, time.Now().UnixNano())
		uses = append(uses, escrow.KeyUse{Key: name, Budget: b, Use: escrow.Use{Need: 1}, Share: -1, Left: -1})
	}
	p.mu.Lock()
	policy := p.policyAt
	p.mu.Unlock()
	if err := p.transactKeys(t.Context(), uses, policy); err != nil {
		t.Log(err)
	}
	for _, u := range uses {
		if u.Away {
			away++
		} else if u.Purse.Taken < 1 {
			t.Errorf("%s: nothing was taken of 100 permits", u.Key)
		}
	}
	return away
}

// A batch is one transaction of etcd. A lease that a restored etcd does not know is granted anew.
func TestKeysAreTakenInBatches(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "100/s")
	r, _ := f.subscribe(f.join(Options{}), "p")
	p := f.only(r)
	await.Until(t, "a proof", r.is(proved))
	var names []string
	for i := range keyBatch {
		names = append(names, fmt.Sprint("tenant/", i))
	}
	await.Until(t, "a whole batch is taken", func() bool { return p.takesOf(t, names...) == 0 })
	if _, err := p.s.client.Revoke(t.Context(), p.budgets.leases[time.Hour].id); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "keys are taken under another lease", func() bool { return p.takesOf(t, "new") == 0 })
}
