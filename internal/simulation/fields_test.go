package simulation_test

import (
	"reflect"
	"testing"

	"github.com/quotient-limiter/quotient/internal/simulation"
	"github.com/quotient-limiter/quotient/quota"
)

// TestEveryFieldIsChanged: in the histories operators change every field of a
// policy, one that is yet to come included: who adds a field sees this fail, and
// makes the simulation change it (fields.go) and judge by it.
func TestEveryFieldIsChanged(t *testing.T) {
	changed := map[string]int{}
	for _, kind := range simulation.Kinds() {
		for seed := range uint64(25) {
			policies := simulation.Policies(kind, seed+1)
			for i := range policies[1:] {
				note(changed, &policies[i], &policies[i+1])
			}
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[quota.Policy]()) {
		if changed[f.Name] == 0 {
			t.Errorf("no history changes Policy.%s", f.Name)
		}
	}
	for _, what := range []string{"a limit added", "a limit removed", "another total", "stop to hold", "hold to stop"} {
		if changed[what] == 0 {
			t.Errorf("no history has %s", what)
		}
	}
	t.Logf("%v", changed)
}

// note counts what differs between two policies that follow each other.
func note(changed map[string]int, a, b *quota.Policy) {
	x, y := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for _, f := range reflect.VisibleFields(x.Type()) {
		if !reflect.DeepEqual(x.FieldByIndex(f.Index).Interface(), y.FieldByIndex(f.Index).Interface()) {
			changed[f.Name]++
		}
	}
	lengths := func(p *quota.Policy) map[quota.Limit]bool {
		m := map[quota.Limit]bool{}
		for _, l := range p.Limits {
			m[quota.Limit{Window: l.Window}] = true
		}
		return m
	}
	old, now := lengths(a), lengths(b)
	for l := range now {
		if !old[l] {
			changed["a limit added"]++
		}
	}
	for l := range old {
		if !now[l] {
			changed["a limit removed"]++
		}
	}
	if len(old) == len(now) && reflect.DeepEqual(old, now) && !reflect.DeepEqual(a.Limits, b.Limits) {
		changed["another total"]++
	}
	if a.Outage != b.Outage {
		changed[string(a.Outage)+" to "+string(b.Outage)]++
	}
}
