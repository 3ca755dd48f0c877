package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

func TestApplyKeepsTheRest(t *testing.T) {
	old := quota.Policy{
		Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Timing: quota.Timing{Settle: 10 * time.Second, Freshness: 4 * time.Second, Guard: time.Millisecond},
		Mode: quota.ModeShadow, Outage: quota.OutageStop, Requires: []string{"x"},
		Author: "old", Reason: "old", Time: time.Unix(1, 0),
	}.WithDefaults()
	limits := []quota.Limit{{Permits: 20, Window: time.Second}}
	apply := func(s settings, old quota.Policy) quota.Policy {
		t.Helper()
		p, err := s.apply(old, time.Unix(1000, 0))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	// given is set with one flag.
	given := func(flag, value string) settings {
		s := settings{limits: limits}
		for _, f := range fields {
			if f.flag == flag {
				set, err := f.parse(value)
				if err != nil {
					t.Fatal(err)
				}
				s.fields = append(s.fields, []func(*quota.Policy){set})
			}
		}
		return s
	}
	want := old.Clone()
	want.Limits = limits
	if diff := cmp.Diff(want, apply(settings{limits: limits}, old)); diff != "" {
		t.Errorf("no flags: -want +got\n%s", diff)
	}
	got := apply(given("settle", "6s"), old).WithDefaults()
	if got.Settle != 6*time.Second || got.Freshness != 4*time.Second {
		t.Errorf("a freshness that was chosen must stay: settle %v, freshness %v", got.Settle, got.Freshness)
	}
	old.Freshness = quota.Policy{Timing: quota.Timing{Settle: old.Settle}}.WithDefaults().Freshness
	if got = apply(given("settle", "6s"), old).WithDefaults(); got.Freshness != 5*time.Second {
		t.Errorf("a freshness at its default must follow: %v", got.Freshness)
	}
}
