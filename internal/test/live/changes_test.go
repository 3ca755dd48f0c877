package live_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

const ms = time.Millisecond

func TestProviderDeletedAndSetAgainUnderLoad(t *testing.T) {
	t.Parallel()
	g, _ := loaded(t, exact(t, "60/200ms", 500*ms), 6, 60)
	g.remove()
	// A deleted policy binds every window that starts S' after it.
	gone := time.Now().Add(quota.DefaultFreshness).UnixNano()
	g.pass(quota.DefaultFreshness + 500*ms)
	if n := g.ledger.since(gone); n != 0 {
		t.Errorf("%d permits were issued without a policy", n)
	}
	g.set(exact(t, "30/200ms", 500*ms))
	g.awaitFull(200*ms, 30)
	g.remove() // and back at once: the view without a policy must count
	g.set(exact(t, "60/200ms", 500*ms))
	g.awaitFull(200*ms, 60)
	g.end()
}

func TestLimitsComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	const settle = 500 * ms
	g := newGroup(t, exact(t, "60/200ms", settle), 200*ms, 400*ms, time.Second)
	g.ready(g.join(6)...)
	g.awaitFull(200*ms, 60)
	for _, step := range []struct {
		limits string
		length time.Duration
		full   int64
	}{
		{"60/200ms,150/s", time.Second, 150},     // one more
		{"30/200ms,120/s", time.Second, 120},     // both less
		{"40/200ms", 200 * ms, 40},               // one removed
		{"50/400ms", 400 * ms, 50},               // another length in its place
		{"70/400ms,200/s", 400 * ms, 70},         // larger, and a longer one beside it
		{"20/200ms,30/400ms,70/s", 400 * ms, 30}, // a shorter one beside it
		{"60/200ms,110/400ms,240/s", time.Second, 240},
	} {
		g.set(exact(t, step.limits, settle))
		g.awaitFull(step.length, step.full)
	}
	g.end()
}

func TestChangesInQuickSuccessionUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "60/200ms", 500*ms), 200*ms)
	g.ready(g.join(6)...)
	for i := range 40 {
		p := exact(t, "60/200ms", 500*ms)
		p.Limits[0].Permits = int64(12 + 48*(i%2)) // many within one settle time
		if i%7 == 3 {
			p.Mode = quota.ModePause
		}
		g.set(p)
		g.pass(70 * ms)
	}
	g.set(exact(t, "50/200ms", 500*ms))
	g.awaitFull(200*ms, 50)
	g.end()
}

func TestSettleAndFreshnessChangeUnderLoad(t *testing.T) {
	t.Parallel()
	policy := func(text string, settle, freshness time.Duration) quota.Policy {
		p := exact(t, text, settle)
		p.Freshness = freshness
		return p
	}
	g, _ := loaded(t, policy("60/200ms", 500*ms, 400*ms), 5, 60)
	g.set(policy("60/200ms", 1500*ms, 400*ms))
	g.join(1) // who joins never saw the policy before
	g.set(policy("40/200ms", 1500*ms, 1300*ms))
	g.join(1)
	g.awaitFull(200*ms, 40)
	if _, err := g.admin.Put(t.Context(), provider, policy("60/200ms", 500*ms, 400*ms), coordinator.AnyRevision); !mentions(err, "settle") {
		t.Errorf("%v: the settle time must not be lowered under the freshness in force", err)
	}
	g.set(policy("60/200ms", 1500*ms, 400*ms))
	g.join(1)
	g.awaitFull(200*ms, 60)
	g.await("the long freshness is over", func() bool {
		_, err := g.admin.Put(t.Context(), provider, policy("60/200ms", 500*ms, 400*ms), coordinator.AnyRevision)
		if err != nil && !mentions(err, "settle") {
			t.Fatal(err)
		}
		return err == nil
	})
	g.set(policy("30/200ms", 500*ms, 400*ms))
	g.join(1)
	g.awaitFull(200*ms, 30)
	g.end()
}

func TestPausedAndResumedUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "60/200ms", 500*ms), 200*ms)
	all := g.join(6)
	g.ready(all...)
	for range 2 {
		g.awaitFull(200*ms, 60)
		paused := exact(t, "60/200ms", 500*ms)
		paused.Mode = quota.ModePause
		g.set(paused)
		g.await("paused", func() bool { return all[0].limiter.Status().State == quota.StatePaused })
		from := time.Now().Add(500 * ms).UnixNano()
		g.pass(time.Second)
		if n := g.ledger.since(from); n != 0 {
			t.Errorf("%d permits were issued while paused", n)
		}
		g.set(exact(t, "60/200ms", 500*ms))
	}
	g.awaitFull(200*ms, 60)
	g.end()
}

func TestAPolicyThatBreaksTheTimingIsRefused(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "60/200ms", 500*ms), 200*ms)
	p := exact(t, "60/200ms", 500*ms)
	p.Freshness = 480 * ms
	var field *quota.FieldError
	if _, err := g.admin.Put(t.Context(), provider, p, coordinator.AnyRevision); !errors.As(err, &field) || field.Field != "settle" {
		t.Errorf("%v, want a field error for settle", err)
	}
}
