package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// Where an operator changes when the windows of a limit begin, or that it slides, what was handed out counts on: of
// the provider and of a key, also where the limit comes back.
func TestAChangeOfWindowsCarriesTheCount(t *testing.T) {
	t.Parallel()
	f := setup(t)
	p, _ := f.follower("10/s,1000/h")
	set := func(limit quota.Limit) (revision int64) {
		t.Helper()
		next := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}, limit}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 10, Window: time.Second}, limit}}}
		s, err := f.admin.Put(t.Context(), "p", next)
		if err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the policy is known", func() bool { at := p.standing(); return at.Policy == s.Revision && at.Fresh })
		return s.Revision
	}
	// take takes n permits of the windows that run at the instant now, and returns their totals.
	now := time.Now().UnixNano() // all windows that contain it have begun when the operator changes them
	take := func(limit quota.Limit, n int64) (outs []int64) {
		t.Helper()
		policy := set(limit)
		b := protocol.BudgetAt(limit, time.UTC, now)
		for _, key := range []string{"", "tenant"} {
			uses := []escrow.KeyUse{{Key: key, Budget: b, Share: 1, Purse: escrow.Purse{Part: b.Part()}, Use: escrow.Use{Need: n}}}
			await.Until(t, "permits are taken", func() bool {
				_ = p.exchange(t.Context(), takingTries, policy, uses)
				return !uses[0].Away
			})
			if got := uses[0].Purse.Taken; got != n {
				t.Errorf("%v of %q: took %d instead of %d", limit, key, got, n)
			}
			outs = append(outs, uses[0].Purse.Out())
		}
		return outs
	}
	hour := quota.Limit{Permits: 1000, Window: time.Hour}
	phase, sliding, half, twice := hour, hour, hour, hour
	phase.Phase, sliding.Sliding, half.Window, twice.Window = 17*time.Minute, true, 30*time.Minute, 2*time.Hour
	for _, step := range []struct {
		limit  quota.Limit
		n, out int64
	}{
		{hour, 100, 100},
		{phase, 20, 120},
		{sliding, 30, 150},
		{hour, 4, 154}, // what the others carried of it is not counted twice
		{half, 5, 159},
		{twice, 6, 165},
	} {
		if outs := take(step.limit, step.n); !slices.Equal(outs, []int64{step.out, step.out}) {
			t.Errorf("%v: %v are handed out, want %d each", step.limit, outs, step.out)
		}
	}
	// With nothing left by what is carried, the total says so.
	low := sliding
	low.Permits = 160
	if outs := take(low, 0); !slices.Equal(outs, []int64{165, 165}) {
		t.Errorf("%v are handed out of 160", outs)
	}
}
