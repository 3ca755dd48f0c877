package share_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// TestOwnersOfAnOverride: a change of the number of owners counts after the settle time, also if
// nothing else changes. Until then an instance has the smaller of both shares. Hosts of loans are
// those of the newest number.
func TestOwnersOfAnOverride(t *testing.T) {
	const key = "big-account"
	limits := []quota.Limit{{Permits: 12, Window: time.Second}}
	document := func(owners int64) map[int]*protocol.Overrides {
		o := &protocol.Override{Limits: limits, Owners: &owners}
		if owners < 0 {
			o.Owners = nil
		}
		return map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Keys: map[string]*protocol.Override{key: o}}}
	}
	for _, c := range []struct {
		name                 string
		policy, begin, then  int64    // numbers of owners; -1: the policy's
		before, now, settled [3]int64 // permits of the instances, by rank among owners
	}{
		{"fewer", 0, 2, 1, [3]int64{6, 6, 0}, [3]int64{6, 0, 0}, [3]int64{12, 0, 0}},
		{"more", 0, 1, 3, [3]int64{12, 0, 0}, [3]int64{4, 0, 0}, [3]int64{4, 4, 4}},
		{"all", 1, 1, 0, [3]int64{12, 0, 0}, [3]int64{4, 0, 0}, [3]int64{4, 4, 4}},
		{"those of the policy again", 2, 0, -1, [3]int64{4, 4, 4}, [3]int64{4, 4, 0}, [3]int64{6, 6, 0}},
		{"the policy's number, said", 2, -1, 2, [3]int64{6, 6, 0}, [3]int64{6, 6, 0}, [3]int64{6, 6, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := protocol.View{Revision: 1, Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}, {ID: "c"}}, Overrides: document(c.begin), Policy: &quota.Policy{
				Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 7, Window: time.Second}}, Owners: c.policy}}}
			ranked := v // its owners in order: of one, of two, of three
			var ids []string
			for n := int64(1); n <= 3; n++ {
				ranked.Overrides = document(n)
				_, shares, _ := share.OfKey(&ranked, key, quota.WindowAt(time.Second, planEpoch))
				for _, id := range []string{"a", "b", "c"} {
					if shares[id] > 0 && int64(len(ids)) < n && (len(ids) == 0 || ids[0] != id && ids[len(ids)-1] != id) {
						ids = append(ids, id)
					}
				}
			}
			for rank, id := range ids {
				p := &share.Planner{Clock: clock.Started(instant(0), nil)}
				p.Reset(instant(0), id, v)
				bound := func(mono int64) int64 {
					p.Prove(instant(mono))
					p.Plan(instant(mono))
					return p.Bound(share.KeyOf(key), quota.WindowAt(time.Second, instant(mono).Wall), instant(mono).Mono).Permits
				}
				if got := bound(20_500); got != c.before[rank] {
					t.Errorf("%d permits of rank %d before the change, want %d", got, rank, c.before[rank])
				}
				p.Apply(instant(20_600), protocol.Change{Revision: 2, Overrides: document(c.then)})
				if got := bound(20_700); got != c.now[rank] {
					t.Errorf("%d permits of rank %d after the change, want %d", got, rank, c.now[rank])
				}
				if got := bound(25_500); got != c.settled[rank] {
					t.Errorf("%d permits of rank %d after the settle time, want %d", got, rank, c.settled[rank])
				}
				for _, host := range p.KeyPeers(share.KeyOf(key), instant(25_500).Mono, nil) {
					if at := slices.Index(ids, host.ID); host.ID == id || c.settled[at] == 0 {
						t.Errorf("%s asks %s, which has nothing", id, host.ID)
					}
				}
			}
		})
	}
}
