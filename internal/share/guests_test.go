package share_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// newcomer is an instance that has a share from second 8 on.
func newcomer(id string) protocol.Instance {
	return protocol.Instance{ID: id, From: time.Unix(0, planEpoch+8_000*ms)}
}

func TestWhoLendsAndBorrows(t *testing.T) {
	lends := func(rule string, warmUp time.Duration) *quota.Policy {
		p := plannerPolicy(quota.OutageHold)
		p.Lend, p.WarmUp = rule, warmUp
		return p
	}
	// only has the policy's keys alone lend: they have windows of a second.
	only := func(change func(*quota.Policy)) *quota.Policy {
		p := lends("on", 0)
		p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 5, Window: time.Second}}, Most: 10}
		change(p)
		return p
	}
	left := protocol.Instance{ID: "l", Until: time.Unix(0, planEpoch+7_000*ms)}
	for name, test := range map[string]struct {
		policy          *quota.Policy
		self            protocol.Instance
		at              int64
		silent          bool
		lends, borrows  bool
		toAll, toNewest bool
		keys            bool
	}{
		"lending on":            {policy: lends("on", 0), at: 7_000, lends: true, borrows: true, toAll: true, toNewest: true},
		"a policy of before":    {policy: lends("", 0), at: 7_000, lends: true, borrows: true, toAll: true, toNewest: true},
		"by a newcomer":         {policy: lends("on", 0), self: newcomer("a"), at: 7_000, lends: true, borrows: true, toAll: true, toNewest: true},
		"off":                   {policy: lends("off", 0), at: 7_000},
		"shares warm up":        {policy: lends("on", time.Second), at: 7_000},
		"a shape that slides":   {policy: only(func(p *quota.Policy) { p.Shape = quota.ShapeSliding }), at: 7_000, toAll: true, toNewest: true, keys: true},
		"a bucket":              {policy: only(func(p *quota.Policy) { p.Shape = quota.ShapeBucket }), at: 7_000, toAll: true, toNewest: true, keys: true},
		"windows too short":     {policy: only(func(p *quota.Policy) { p.Limits[0].Window = 200 * time.Millisecond }), at: 7_000, toAll: true, toNewest: true, keys: true},
		"it cannot tell anyone": {policy: lends("on", 0), at: 7_000, silent: true, toAll: true, toNewest: true},
		"its end has not come":  {policy: lends("on", 0), self: protocol.Instance{Until: time.Unix(0, planEpoch+7_001*ms)}, at: 7_000, lends: true, borrows: true, toAll: true, toNewest: true},
		"its end has come":      {policy: lends("on", 0), self: protocol.Instance{Until: time.Unix(0, planEpoch+7_000*ms)}, at: 7_000, lends: true, toAll: true, toNewest: true},
		"it is stale":           {policy: lends("on", 0), at: 9_801, toAll: true, toNewest: true},
	} {
		t.Run(name, func(t *testing.T) {
			test.self.ID = "a"
			p := share.Planner{Clock: clock.Started(instant(0), nil), Lends: !test.silent}
			p.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: test.policy, Instances: []protocol.Instance{test.self, {ID: "b"}, newcomer("c"), left}})
			p.Prove(instant(min(test.at, 7_800)))
			plan := p.Plan(instant(test.at))
			if l := plan.Lending; l.Self != "a" || l.Lends != test.lends || l.Borrows != test.borrows || p.Borrows() != test.borrows {
				t.Errorf("%+v", l)
			}
			if k := plan.Keys; (k != nil) != test.keys || test.keys && !(k.Lending.Lends && k.Lending.Borrows) {
				t.Errorf("of keys: %+v", k)
			}
			mono := instant(test.at).Mono
			for guest, want := range map[string]bool{"b": test.toAll, "c": test.toNewest, "a": false, "l": false, "x": false} {
				from, got := p.LendsTo(guest, mono)
				if got != want || got && guest == "c" && from <= mono {
					t.Errorf("lends to %s: %v, whose share is from %v", guest, got, instant(from))
				}
			}
		})
	}
}

// Those that take part are asked, but the one that asks, and newcomers that owe permits.
func TestPeersTakePart(t *testing.T) {
	p := share.Planner{Clock: clock.Started(instant(0), nil)}
	left := protocol.Instance{ID: "l", Until: time.Unix(0, planEpoch+5_000*ms)}
	p.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: plannerPolicy(quota.OutageHold), Instances: []protocol.Instance{{ID: "a"}, {ID: "b"}, newcomer("c"), newcomer("n"), left}})
	debtors := []lending.Debtor{{ID: "l", Permits: 1}, {ID: "n", Permits: 1}, {ID: "x", Permits: 1}}
	for at, want := range map[int64][]string{4_000: {"b", "l", "n"}, 7_000: {"b", "n"}, 8_000: {"b", "c", "n"}} {
		p.Plan(instant(at))
		var got []string
		for _, peer := range p.Peers(instant(at).Mono, debtors) {
			got = append(got, peer.ID)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("at %d: %v, want %v", at, got, want)
		}
	}
}
