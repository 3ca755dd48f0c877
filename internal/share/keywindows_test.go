package share_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// TestKeysAreCountedInTheSameWindows: an instance that has seen an override with another
// window, and one that came after it was deleted, count keys in the same windows once the
// settle time has passed and such a window has begun. Loans of keys count in equal lists only.
func TestKeysAreCountedInTheSameWindows(t *testing.T) {
	policy := keyed(plannerPolicy(quota.OutageHold))
	name := "key"
	bucket := protocol.OverrideBucket(name)
	override := map[int]*protocol.Overrides{bucket: {Keys: map[string]*protocol.Override{name: {Limits: []quota.Limit{{Permits: 5, Window: 7 * time.Second}}}}}}
	view := protocol.View{Revision: 1, Policy: policy, Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}}, Overrides: override}
	old, late := share.Planner{Clock: clock.Started(instant(0), nil)}, share.Planner{Clock: clock.Started(instant(0), nil)}
	old.Reset(instant(0), "a", view)
	has := func(p *share.Planner, at int64) bool {
		p.Prove(instant(at))
		for _, w := range p.Plan(instant(at)).Keys.Running {
			if w.Length == 7*time.Second {
				return true
			}
		}
		return false
	}
	if !has(&old, 10) {
		t.Fatal("the override's window is not counted")
	}
	old.Apply(instant(1000), protocol.Change{Revision: 2, Overrides: map[int]*protocol.Overrides{bucket: nil}})
	view.Revision, view.Overrides = 2, nil
	late.Reset(instant(1500), "b", view)
	if !has(&old, 1200) {
		t.Error("the window is not counted to its end: the override bound it")
	}
	if has(&old, 15_000) || has(&late, 15_000) {
		t.Error("the window of an override that was deleted 14 s before is counted by an instance that has seen it")
	}
}
