package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// A key with owners by its override has them, and no other key has. Until a change of their
// number has settled, an instance has only what both numbers give it.
func TestOwnersByOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 12, 0, quota.OutageHold, "a", "b", "c")
		const name = "big-account"
		set := func(revision, owners int64) {
			own := &protocol.Override{Limits: []quota.Limit{{Permits: 12, Window: time.Second}}, Owners: &owners}
			for _, s := range m.sinks {
				s.sink.Apply(s.clock.Now(), protocol.Change{Revision: revision, Overrides: map[int]*protocol.Overrides{
					protocol.OverrideBucket(name): {Keys: map[string]*protocol.Override{name: own}},
				}})
			}
		}
		nextSecond := func() {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			m.prove()
		}
		// has takes what each instance has, and returns the sums of owners and of others.
		has := func(named bool) (owners, others int64) {
			t.Helper()
			first := ""
			for id, l := range all {
				if owner, self := l.Key("another").Owner(); owner != "" || !self {
					t.Errorf("%s: another key has the owner %q", id, owner)
				}
				owner, self := l.Key(name).Owner()
				if first == "" {
					first = owner
				}
				if owner != first || named != (owner != "") || self != (owner == "" || owner == id) {
					t.Errorf("%s says that the owner is %q, and that it is one: %v; another says %q", id, owner, self, first)
				}
				n := l.Key(name).TryTake(12).N()
				if self {
					owners += n
				} else {
					others += n
				}
			}
			return owners, others
		}
		for i, c := range []struct {
			owners                 int64
			ofOwners, soon, others int64
		}{{1, 12, 4, 0}, {0, 12, 4, 0}} {
			set(int64(2+i), c.owners)
			nextSecond()
			if owners, others := has(c.owners > 0); owners != c.soon || others != c.others {
				t.Errorf("%d owners, not settled: owners have %d permits and others %d, want %d and %d", c.owners, owners, others, c.soon, c.others)
			}
			for range 4 {
				nextSecond()
			}
			if owners, others := has(c.owners > 0); owners != c.ofOwners || others != c.others {
				t.Errorf("%d owners: they have %d permits and others %d, want %d and %d", c.owners, owners, others, c.ofOwners, c.others)
			}
		}
	})
}

// Where nothing is lent, an instance that does not own a key takes nothing of its long limit: it could never issue that.
func TestWhoDoesNotOwnAKeyTakesNothingOfItsHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyByKey(t, "10/s,30/h")
		p.Keys.Owners, p.Lend = 1, "off"
		bank, sinks, all := longFleet(t, p, "a", "b", "c")
		issued := int64(0)
		bank.play(20, sinks, func(int) {
			for _, l := range all {
				key := l.Key("big-account")
				n := key.TryTake(10).N()
				if _, self := key.Owner(); !self && n > 0 {
					t.Errorf("an instance that does not own the key has %d permits of it", n)
				}
				issued += n
				if _, err := key.Take(context.Background(), 5, time.Millisecond); err == nil {
					issued += 5
				}
			}
		})
		if issued != 30 {
			t.Errorf("the owner had %d permits of 30: the others have the rest in hand", issued)
		}
	})
}
