package share_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// newcomer is an instance that borrows until second 8.
func newcomer(id string) quota.Instance {
	return quota.Instance{ID: id, From: time.Unix(0, planEpoch+8_000*ms), Borrows: true}
}

// TestTwoLendToANewcomer: those whose IDs follow its own, by each one's own view.
func TestTwoLendToANewcomer(t *testing.T) {
	ids := []string{"a", "c", "e", "g"}
	for guest, want := range map[string][]string{"b": {"c", "e"}, "d": {"e", "g"}, "f": {"a", "g"}, "h": {"a", "c"}} {
		var lend []string
		for _, self := range ids {
			v := protocol.View{Revision: 1, Policy: plannerPolicy(quota.OutageHold), Instances: []quota.Instance{newcomer(guest)}}
			for _, id := range ids {
				v.Instances = append(v.Instances, quota.Instance{ID: id})
			}
			p := share.Planner{Clock: clock.Started(instant(0), nil), Lends: true}
			p.Reset(instant(0), 0, self, v)
			p.Prove(instant(6_900))
			if guests := p.Plan(instant(7_000)).Guests; slices.Equal(guests, []string{guest}) {
				lend = append(lend, self)
			} else if guests != nil {
				t.Errorf("%s lends to %v", self, guests)
			}
		}
		if diff := cmp.Diff(want, lend); diff != "" {
			t.Errorf("to %s (-want +got):\n%s", guest, diff)
		}
	}
}

func TestWhenNobodyLends(t *testing.T) {
	warming := plannerPolicy(quota.OutageHold)
	warming.WarmUp = time.Second
	others := func(n int) (all []quota.Instance) {
		for i := range n {
			all = append(all, newcomer(fmt.Sprint("b", i)))
		}
		return all
	}
	ended := newcomer("b")
	ended.Until = ended.From
	proud := newcomer("b")
	proud.Borrows = false
	for name, test := range map[string]struct {
		policy  *quota.Policy
		newly   []quota.Instance
		self    quota.Instance
		at      int64
		silent  bool
		want    int
		resumed bool
	}{
		"a newcomer":                    {newly: others(1), at: 7_000, want: 1},
		"eight of twelve":               {newly: others(12), at: 7_000, want: 8},
		"a storm":                       {newly: others(13), at: 7_000},
		"it has its share":              {newly: others(1), at: 8_000},
		"it ends before it begins":      {newly: []quota.Instance{ended}, at: 7_000},
		"it does not borrow":            {newly: []quota.Instance{proud}, at: 7_000},
		"the host is one itself":        {newly: others(1), self: newcomer("a"), at: 7_000},
		"the host has left":             {newly: others(1), self: quota.Instance{ID: "a", Until: time.Unix(0, planEpoch)}, at: 7_000},
		"shares warm up":                {policy: warming, newly: others(1), at: 7_000},
		"the source cannot tell anyone": {newly: others(1), at: 7_000, silent: true},
		"the host was continued":        {newly: others(1), at: 7_000, resumed: true, want: 1},
		"the host is stale":             {newly: others(1), at: 7_701},
	} {
		t.Run(name, func(t *testing.T) {
			if test.self.ID = "a"; test.policy == nil {
				test.policy = plannerPolicy(quota.OutageHold)
			}
			p := share.Planner{Clock: clock.Started(instant(0), nil), Lends: !test.silent}
			v := protocol.View{Revision: 1, Policy: test.policy, Instances: append(test.newly, test.self)}
			if test.resumed {
				p.Reset(instant(10), 0, "a", v)
			} else {
				p.Reset(instant(0), 0, "a", v)
			}
			p.Prove(instant(min(test.at, 7_300)))
			plan := p.Plan(instant(test.at))
			if len(plan.Guests) != test.want {
				t.Errorf("lends to %v, want %d", plan.Guests, test.want)
			}
			if test.want > 0 && plan.Until > 8_000*ms {
				t.Errorf("the plan ends at %d ms, after the newcomer's own share begins", plan.Until/ms)
			}
		})
	}
}
