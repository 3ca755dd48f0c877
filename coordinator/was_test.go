package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// changing is a follower of provider p whose windows an operator changes, of all keys and of the key tenant.
type changing struct {
	*fixture
	*membership
	now int64 // an instant in all windows that are taken of: they have begun when the operator changes them
}

func newChanging(t *testing.T) *changing {
	f := setup(t)
	p, _ := f.follower("10/s,1000/h")
	return &changing{f, p, time.Now().UnixNano()}
}

// set sets the limits of the provider and of all keys, beside 10/s, and returns the policy's revision.
func (c *changing) set(limit quota.Limit) (revision int64) {
	c.t.Helper()
	next := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}, limit}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 10, Window: time.Second}, limit}}}
	s, err := c.admin.Put(c.t.Context(), "p", next)
	if err != nil {
		c.t.Fatal(err)
	}
	await.Until(c.t, "the policy is known", func() bool { at := c.standing(); return at.Policy == s.Revision && at.Fresh })
	return s.Revision
}

// override sets the limit of key tenant; none if it is zero.
func (c *changing) override(limit quota.Limit) (revision int64) {
	c.t.Helper()
	var own *protocol.Override
	if limit.Window != 0 {
		own = &protocol.Override{Limits: []quota.Limit{limit}}
	}
	if _, err := feed.Inside(c.admin).SetOverrides(c.t.Context(), "p", "", func(protocol.KeyOverrides) (map[string]*protocol.Override, error) {
		return map[string]*protocol.Override{"tenant": own}, nil
	}); err != nil {
		c.t.Fatal(err)
	}
	s, err := c.admin.Get(c.t.Context(), "p")
	if err != nil {
		c.t.Fatal(err)
	}
	await.Until(c.t, "the override is known", func() bool { at := c.standing(); return at.Policy == s.Revision && at.Fresh })
	return s.Revision
}

// take has n permits taken by a policy of the windows that run, and returns how many were, and the totals: of the
// provider or of a key.
func (c *changing) take(policy int64, key string, limit quota.Limit, n int64) (taken, out int64) {
	c.t.Helper()
	b := protocol.BudgetAt(limit, time.UTC, c.now)
	uses := []escrow.KeyUse{{Key: key, Budget: b, Share: 1, Purse: escrow.Purse{Part: b.Part()}, Use: escrow.Use{Need: n}}}
	await.Until(c.t, "permits are taken", func() bool {
		_ = c.exchange(c.t.Context(), takingTries, policy, uses)
		return !uses[0].Away || c.standing().Policy != policy
	})
	return uses[0].Purse.Taken, uses[0].Purse.Out()
}

// Where an operator changes when the windows of a limit begin, or that it slides, what was handed out counts on: of
// the provider and of a key, also where the limit comes back.
func TestAChangeOfWindowsCarriesTheCount(t *testing.T) {
	t.Parallel()
	f := newChanging(t)
	take := func(limit quota.Limit, n int64) (outs []int64) {
		t.Helper()
		policy := f.set(limit)
		for _, key := range []string{"", "tenant"} {
			got, out := f.take(policy, key, limit, n)
			if got != n {
				t.Errorf("%v of %q: took %d instead of %d", limit, key, got, n)
			}
			outs = append(outs, out)
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

// The same where a single key gets another length of a window, by an override: of that key alone. Nobody takes of it by
// the override before.
func TestAnOverrideCarriesTheCount(t *testing.T) {
	t.Parallel()
	f := newChanging(t)
	hour := quota.Limit{Permits: 1000, Window: time.Hour}
	half, twice, day := hour, hour, hour
	half.Window, twice.Window, day.Window = 30*time.Minute, 2*time.Hour, 24*time.Hour
	policy := f.set(hour)
	if got, out := f.take(policy, "tenant", hour, 100); got != 100 || out != 100 {
		t.Fatalf("took %d, %d are handed out", got, out)
	}
	before := hour
	for _, step := range []struct {
		override quota.Limit
		limit    quota.Limit
		n, out   int64
	}{
		{half, half, 20, 120},
		{twice, twice, 30, 150},
		{day, day, 1, 151},
		{quota.Limit{}, hour, 4, 155}, // what the others carried of it is not counted twice
		{twice, twice, 5, 160},
	} {
		by := policy
		policy = f.override(step.override)
		if got, _ := f.take(by, "tenant", before, 7); got != 0 {
			t.Errorf("%d are taken of %v, which the key has no more", got, before)
		}
		got, out := f.take(policy, "tenant", step.limit, step.n)
		if got != step.n || out != step.out {
			t.Errorf("%v: took %d, %d are handed out; want %d and %d", step.limit, got, out, step.n, step.out)
		}
		if got, out := f.take(policy, "another", step.limit, 1); got != 1 || out > 2 { // two hours come twice
			t.Errorf("%v of another key: took %d, %d are handed out", step.limit, got, out)
		}
		before = step.limit
	}
}
