//go:build e2e

package processes

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// TestThePaceOfAllProcesses has a provider refuse every second call of 20 instances in 4
// processes: the total falls to the floor in all of them, and the provider counts no more
// calls. When it refuses none, the limit is in force again. Nobody pauses.
func TestThePaceOfAllProcesses(t *testing.T) {
	cluster, client := etcdtest.New(t, embedded.Options{Slow: true})
	command := tool(t, cluster.Endpoints())
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	const limit, floor = 200, 100
	command("set", provider, "200/500ms", "--adaptive", "floor=50%,increase=25%,every=1h") // no raise
	a := &api{}
	a.serve(t, cluster.Endpoints())
	told := func(pace int64) func() bool {
		return a.every(func(h *heard) bool { return h.Pace == pace && free(h) })
	}
	await.Until(t, "the limit is in force", told(limit))

	begin := time.Now()
	a.is(func() bool { a.half = true; return true })()
	await.Until(t, "the floor is in force", told(floor))
	fell, from := time.Now(), 0
	a.is(func() bool { from = len(a.calls); return true })()
	await.Until(t, "all go on", a.have(40, from))
	// An instance has one call under way; its permit may be of before.
	end, calls := time.Now(), 0
	a.is(func() bool { calls = len(a.calls) - from; return true })()
	windows := int(end.Add(quota.DefaultClockError).Truncate(window).Sub(fell.Add(-quota.DefaultClockError).Truncate(window))/window) + 1
	if calls > windows*floor+callers {
		t.Errorf("%d calls in %d windows of %d permits", calls, windows, floor)
	}
	s, err := feed.Inside(admin).Throttle(t.Context(), provider)
	if err != nil || s == nil || s.Refused == 0 || !told(floor)() {
		t.Errorf("%+v, %v", s, err)
	}

	command("set", provider, "200/500ms", "--adaptive", "floor=50%,increase=25%,every=2s")
	risen := time.Now()
	a.is(func() bool { a.half = false; return true })()
	await.Until(t, "the limit is in force again", told(limit))
	await.Until(t, "the pace is gone", func() bool {
		s, err := feed.Inside(admin).Throttle(t.Context(), provider)
		return err == nil && s != nil && len(s.Limits) == 0
	})
	t.Logf("%d instances in %d processes: from the first 429 to half the limit everywhere %v, %d calls in %d windows of %d; back after %v",
		callers, processes, fell.Sub(begin).Round(time.Millisecond), calls, windows, floor, time.Since(risen).Round(time.Millisecond))
}
