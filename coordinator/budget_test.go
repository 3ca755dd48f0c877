package coordinator

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/quota"
)

// Permits are taken of the limit of the policy that is in etcd, and by nobody twice.
func TestPermitsOfALongWindowAreTaken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	before := f.set("p", "10/s,100/d").Revision
	r, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", r.is(proved))
	p := f.only(r)
	b := protocol.BudgetAt(quota.Limit{Permits: 100, Window: 24 * time.Hour}, time.UTC, p.s.o.Clock.Wall())
	total := func() escrow.Total {
		t.Helper()
		got, err := f.client.Get(t.Context(), p.s.keys.BudgetTotal("p", "d", b.Start))
		if err != nil || len(got.Kvs) == 0 {
			return escrow.Total{}
		}
		v, err := escrow.Decode[escrow.Total](got.Kvs[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	w := &funded{Budget: b, policy: before}
	u := &protocol.BudgetUse{Budget: b}
	becomes := func(out int64, use escrow.Use) {
		t.Helper()
		await.Until(t, "an exchange", func() bool { // again where the view is in doubt
			if total().Out != out {
				p.exchange(t.Context(), w, u, use)
			}
			return total().Out == out
		})
		if may := w.account.May(); may != out {
			t.Errorf("%d handed out, of which the only process knows %d", out, may)
		}
	}
	becomes(7, escrow.Use{Need: 7})
	if l, err := f.client.TimeToLive(t.Context(), w.lease); err != nil || l.GrantedTTL < int64(48*time.Hour/time.Second) {
		t.Errorf("the keys may be gone before the window: %+v, %v", l, err)
	}
	left := func(want int64) {
		t.Helper()
		fleet, err := f.admin.Fleet(t.Context(), "p", nil)
		if err != nil || len(fleet.Budgets) != 1 || fleet.Budgets[0].Left != want || fleet.Budgets[0].End != b.End {
			t.Errorf("%+v, %v; want %d left", fleet.Budgets, err, want)
		}
	}
	left(93)
	// A process that sees an old policy takes nothing by it.
	after := f.set("p", "10/s,50/d").Revision
	p.exchange(t.Context(), w, u, escrow.Use{Used: 7, Need: 7})
	if got := total(); got.Out != 7 || got.Limit != 100 {
		t.Errorf("by the policy before: %+v", got)
	}
	w.policy, w.Permits = after, 50
	becomes(50, escrow.Use{Used: 7, Need: 43})
	left(0)
	p.exchange(t.Context(), w, u, escrow.Use{Used: 50, Need: 1})
	becomes(20, escrow.Use{Used: 20, Ends: true})
	if got := total(); got.Writes != 3 || got.Limit != 50 {
		t.Errorf("after 30 were given back: %+v", got)
	}
}

// An instance that uses all that it takes takes more each time, up to its chunk, also if
// it begins with one permit.
func TestWhatIsUsedUpGrows(t *testing.T) {
	t.Parallel()
	rule, found := escrow.Rule{Limit: 50_000, Seconds: 3600, Instances: 3}, &escrow.Found{Cluster: 1, Revision: 1}
	w, last := &funded{}, int64(0)
	for i := range int64(20) {
		w.account.Read(found)
		u := &protocol.BudgetUse{Used: found.Own.Taken, Need: 1}
		step, ok := w.account.Next(rule, found, w.see(u, i*int64(1500*time.Millisecond)), "i")
		if !ok {
			t.Fatalf("nothing is taken after %+v", found)
		}
		last = step.Own.Taken - found.Own.Taken
		w.account.Sent(step.Own.Taken)
		found.Revision++
		w.account.Answered(true, found.Revision)
		found.Total, found.TotalRevision, found.Own, found.OwnRevision = step.Total, found.Revision, step.Own, found.Revision
	}
	if most := rule.Chunk(rule.Left(found)); last != most {
		t.Errorf("%d permits are taken at a time, want %d", last, most)
	}
}

// The rate of use is right also for permits by the billion.
func TestRateOfUse(t *testing.T) {
	t.Parallel()
	for used, want := range map[int64]int64{0: 0, 1: 1, 100: 50, 1e11: 5e10, quota.MaxPermits: quota.MaxPermits / 2} {
		w := &funded{}
		if got := w.see(&protocol.BudgetUse{Used: used}, int64(2*time.Second)).Rate; got != want {
			t.Errorf("%d in 2 s: %d a second, want %d", used, got, want)
		}
	}
}
