package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

func TestApplyKeepsTheRest(t *testing.T) {
	old := quota.Policy{
		Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Settle: 10 * time.Second, Freshness: 4 * time.Second,
		Mode: quota.ModeShadow, Outage: quota.OutageStop, Guard: time.Millisecond, Requires: []string{"x"},
		Author: "old", Reason: "old", Time: time.Unix(1, 0),
	}.WithDefaults()
	limits := []quota.Limit{{Permits: 20, Window: time.Second}}
	apply := func(s settings, old quota.Policy) quota.Policy {
		t.Helper()
		p, _, err := s.apply(old, time.Unix(1000, 0))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	none := func(string) bool { return false }
	want := old.Clone()
	want.Limits, want.Author, want.Reason, want.Time = limits, "", "why", time.Time{}
	if diff := cmp.Diff(want, apply(settings{limits: limits, reason: "why", given: none}, old)); diff != "" {
		t.Errorf("no flags: -want +got\n%s", diff)
	}
	settle := func(flag string) bool { return flag == "settle" }
	got := apply(settings{limits: limits, settle: 6 * time.Second, given: settle}, old)
	if got.Settle != 6*time.Second || got.Freshness != 4*time.Second {
		t.Errorf("a freshness that was chosen must stay: settle %v, freshness %v", got.Settle, got.Freshness)
	}
	old.Freshness = quota.Policy{Settle: old.Settle}.WithDefaults().Freshness
	if got = apply(settings{limits: limits, settle: 6 * time.Second, given: settle}, old); got.Freshness != 5*time.Second {
		t.Errorf("a freshness at its default must follow: %v", got.Freshness)
	}
}
