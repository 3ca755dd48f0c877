package main

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// TestFleetJoin covers what two reads, one after the other, can disagree on.
func TestFleetJoin(t *testing.T) {
	now := time.Unix(1000, 0)
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}.WithDefaults()
	view := quota.View{Revision: 9, Policy: &policy, PolicyRevision: 7, Instances: []quota.Instance{{ID: "a"}, {ID: "new"}}}
	status := func(id string, applied int64, says string) coordinator.InstanceStatus {
		return coordinator.InstanceStatus{Instance: quota.Instance{ID: id}, Report: &quota.Report{PolicyRevision: applied, Problem: says}}
	}
	f := newFleet("p", view, nil, []coordinator.InstanceStatus{status("a", 7, ""), status("gone", 7, "")}, now)
	if want := "total 10/s, 2 instances, sum of shares 10, policy revision 7 applied by 1 of 2"; f.summary() != want {
		t.Errorf("got %q, want %q", f.summary(), want)
	}
	if len(f.Instances) != 2 || f.Instances[0].Incarnation != "a" || f.Instances[1].Incarnation != "new" || f.Instances[1].Report != nil {
		t.Errorf("the one that is gone must be left out, the one that came must have no report: %+v", f.Instances)
	}
}

func TestTroublesInCommonAreOneLine(t *testing.T) {
	f := &fleet{Instances: []instanceJSON{
		{Incarnation: "a", Report: &quota.Report{Problem: "etcd is away"}},
		{Incarnation: "b", Problem: errors.New("cannot be read").Error()},
		{Incarnation: "c", Report: &quota.Report{Problem: "etcd is away"}},
		{Incarnation: "d", Report: &quota.Report{Problem: "etcd is away"}},
		{Incarnation: "e", Report: &quota.Report{}},
	}}
	want := []string{"instance a and 2 more: it says: etcd is away", "instance b: cannot be read"}
	if diff := cmp.Diff(want, f.troubles()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestPausedShares: a policy that pauses, or that this version does not know,
// gives nobody a share, but is still the policy in force.
func TestPausedShares(t *testing.T) {
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Mode: quota.ModePause}.WithDefaults()
	view := quota.View{Policy: &policy, PolicyRevision: 7, Instances: []quota.Instance{{ID: "a"}}}
	f := newFleet("p", view, nil, nil, time.Unix(1000, 0))
	if f.SumOfShares != 0 || f.Instances[0].Share == nil || *f.Instances[0].Share != 0 {
		t.Errorf("got %+v", f)
	}
	if want := "total 10/s (mode pause), 1 instance, sum of shares 0, policy revision 7 applied by 0 of 1"; f.summary() != want {
		t.Errorf("got %q, want %q", f.summary(), want)
	}
}

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
