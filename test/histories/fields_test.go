package histories

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// TestEveryFieldIsChanged: operators of the histories change every field of a policy. A
// field that is added needs a place in policy_test.go, and the judge goes by it.
func TestEveryFieldIsChanged(t *testing.T) {
	changed := map[string]int{}
	synctest.Test(t, func(*testing.T) {
		for seed := range uint64(400) {
			w := &world{plan: newPlan(kinds[seed%uint64(len(kinds))], seed, nil), begin: time.Now()}
			r := rand.New(rand.NewPCG(seed, 1))
			p := w.policy
			for range 8 {
				n := w.change(r, &p)
				if r.IntN(4) == 0 {
					if a := w.announced(r, &p); a != nil {
						n = a
					}
				}
				if err := n.Validate(); err != nil {
					t.Errorf("%s, seed %d: %v", w.kind, seed, err)
				}
				note(changed, &p, n)
				p = *n
			}
		}
	})
	for _, f := range reflect.VisibleFields(reflect.TypeFor[quota.Policy]()) {
		if changed[f.Name] == 0 && f.Name != "Time" && f.Name != "Ignored" { // which Admin and UnmarshalJSON set
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
