package share_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// newcomer is an instance that borrows until second 8.
func newcomer(id string) protocol.Instance {
	return protocol.Instance{ID: id, From: time.Unix(0, planEpoch+8_000*ms), Borrows: true}
}

// TestTwoLendToANewcomer: those whose IDs follow its own, by each one's own view.
func TestTwoLendToANewcomer(t *testing.T) {
	ids := []string{"a", "c", "e", "g"}
	for guest, want := range map[string][]string{"b": {"c", "e"}, "d": {"e", "g"}, "f": {"a", "g"}, "h": {"a", "c"}} {
		var lend []string
		for _, self := range ids {
			v := protocol.View{Revision: 1, Policy: plannerPolicy(quota.OutageHold), Instances: []protocol.Instance{newcomer(guest)}}
			for _, id := range ids {
				v.Instances = append(v.Instances, protocol.Instance{ID: id})
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
	others := func(n int) (all []protocol.Instance) {
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
		newly   []protocol.Instance
		self    protocol.Instance
		at      int64
		silent  bool
		want    int
		resumed bool
	}{
		"a newcomer":                    {newly: others(1), at: 7_000, want: 1},
		"eight of twelve":               {newly: others(12), at: 7_000, want: 8},
		"a storm":                       {newly: others(13), at: 7_000},
		"it has its share":              {newly: others(1), at: 8_000},
		"it ends before it begins":      {newly: []protocol.Instance{ended}, at: 7_000},
		"it does not borrow":            {newly: []protocol.Instance{proud}, at: 7_000},
		"the host is one itself":        {newly: others(1), self: newcomer("a"), at: 7_000},
		"the host has left":             {newly: others(1), self: protocol.Instance{ID: "a", Until: time.Unix(0, planEpoch)}, at: 7_000},
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

// TestGuestsFollowTheView: after any changes an instance lends to those to which one lends
// that begins with the view.
func TestGuestsFollowTheView(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := protocol.View{Revision: 1, Policy: plannerPolicy(quota.OutageHold), Instances: []protocol.Instance{{ID: "m050"}}}
		there := map[string]protocol.Instance{"m050": v.Instances[0]}
		p := share.Planner{Clock: clock.Started(instant(0), nil), Lends: true}
		p.Reset(instant(0), 0, "m050", v)
		p.Prove(instant(6_900))
		for revision := int64(2); revision < 150; revision++ {
			c := protocol.Change{Revision: revision}
			i := protocol.Instance{ID: fmt.Sprintf("m%03d", rapid.IntRange(0, 99).Draw(t, "instance"))}
			switch _, was := there[i.ID]; {
			case i.ID == "m050":
			case was && rapid.IntRange(0, 3).Draw(t, "leaves") == 0:
				c.Deleted = []string{i.ID}
				delete(there, i.ID)
			default:
				if rapid.IntRange(0, 15).Draw(t, "is new") == 0 {
					i = newcomer(i.ID)
				}
				c.Put, there[i.ID] = []protocol.Instance{i}, i
			}
			p.Apply(instant(6_950), c)
			fresh := share.Planner{Clock: clock.Started(instant(0), nil), Lends: true}
			now := protocol.View{Revision: revision, Policy: v.Policy, Instances: slices.Collect(maps.Values(there))}
			fresh.Reset(instant(0), 0, "m050", now)
			fresh.Prove(instant(6_900))
			if got, want := p.Plan(instant(7_000)).Guests, fresh.Plan(instant(7_000)).Guests; !slices.Equal(got, want) {
				t.Fatalf("revision %d: lends to %v, would lend to %v", revision, got, want)
			}
		}
	})
}
