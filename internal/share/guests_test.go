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
	left := protocol.Instance{ID: "l", Until: time.Unix(0, planEpoch+7_000*ms)}
	for name, test := range map[string]struct {
		policy          *quota.Policy
		self            protocol.Instance
		at              int64
		silent          bool
		lends, borrows  bool
		toAll, toNewest bool
	}{
		"lending on":            {policy: lends("on", 0), at: 7_000, lends: true, borrows: true, toAll: true, toNewest: true},
		"a policy of before":    {policy: lends("", 0), at: 7_000, lends: true, borrows: true, toAll: true, toNewest: true},
		"by a newcomer":         {policy: lends("on", 0), self: newcomer("a"), at: 7_000, lends: true, borrows: true, toAll: true, toNewest: true},
		"off":                   {policy: lends("off", 0), at: 7_000},
		"shares warm up":        {policy: lends("on", time.Second), at: 7_000},
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
			l := p.Plan(instant(test.at)).Lending
			if l.Self != "a" || l.Lends != test.lends || l.Borrows != test.borrows {
				t.Errorf("%+v", l)
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
