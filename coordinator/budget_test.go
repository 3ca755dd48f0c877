package coordinator

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// taker is a process that takes permits of a day, by hand.
type taker struct {
	*fixture
	p      *membership
	policy int64
	u      escrow.KeyUse
}

func (f *fixture) taker(limits string, day int64) *taker {
	f.t.Helper()
	p, _ := f.follower(limits)
	b := protocol.BudgetAt(quota.Limit{Permits: day, Window: 24 * time.Hour}, time.UTC, p.s.o.Clock.Wall())
	return &taker{f, p, p.standing().Policy, escrow.KeyUse{Budget: b, Share: 1}}
}

// follower has a session follow a provider with these limits until its view is proved recent.
func (f *fixture) follower(limits string) (*membership, *recorder) {
	f.t.Helper()
	f.set("p", limits)
	r, _ := f.subscribe(f.join(Options{}), "p")
	p := f.only(r)
	await.Until(f.t, "the view is proved", func() bool { return p.standing().Fresh })
	return p, r
}

func (k *taker) total() escrow.Total {
	k.t.Helper()
	got, err := k.client.Get(k.t.Context(), k.p.s.keys.BudgetTotal("p", "d", k.u.Start))
	if err != nil || len(got.Kvs) == 0 {
		return escrow.Total{}
	}
	v, err := escrow.Decode[escrow.Total](got.Kvs[0].Value)
	if err != nil {
		k.t.Fatal(err)
	}
	return v
}

func (k *taker) exchange(use escrow.Use) {
	k.u.Use, k.u.Back = use, escrow.Back{}
	k.send()
}

func (k *taker) send() {
	uses := []escrow.KeyUse{k.u}
	_ = k.p.exchange(k.t.Context(), takingTries, k.policy, uses)
	k.u = uses[0]
}

// givesBack gives back so many permits, which it does not issue from before on.
func (k *taker) givesBack(n int64) {
	k.u.Use, k.u.Back, k.u.Purse.Taken = escrow.Use{}, escrow.Back{N: n}, k.u.Purse.Taken-n
	k.send()
}

// becomes takes permits until so many are handed out.
func (k *taker) becomes(out int64, use escrow.Use) {
	k.t.Helper()
	await.Until(k.t, "an exchange", func() bool { // again where the view is in doubt
		if k.total().Out != out {
			k.exchange(use)
		}
		return k.total().Out == out
	})
	if may := k.u.Purse.Taken; may != out {
		k.t.Errorf("%d handed out, of which the only process knows %d", out, may)
	}
}

// Permits are taken of the limit of the policy that is in etcd, and by nobody twice.
func TestPermitsOfALongWindowAreTaken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	k := f.taker("10/s,100/d", 100)
	k.becomes(7, escrow.Use{Need: 7})
	if l, err := f.client.TimeToLive(t.Context(), k.p.budgets.of(&k.u).lease); err != nil || l.GrantedTTL < int64(48*time.Hour/time.Second) {
		t.Errorf("the keys may be gone before the window: %+v, %v", l, err)
	}
	left := func(want int64) {
		t.Helper()
		fleet, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
		if err != nil || len(fleet.Budgets) != 1 || fleet.Budgets[0].Left != want || fleet.Budgets[0].End != k.u.End {
			t.Errorf("%+v, %v; want %d left", fleet.Budgets, err, want)
		}
	}
	left(93)
	// A process that sees an old policy takes nothing by it.
	after := f.set("p", "10/s,50/d").Revision
	k.exchange(escrow.Use{Used: 7, Need: 7})
	if got := k.total(); got.Out != 7 || got.Limit != 100 {
		t.Errorf("by the policy before: %+v", got)
	}
	k.policy, k.u.Permits = after, 50
	k.becomes(50, escrow.Use{Used: 7, Need: 43})
	left(0)
	k.exchange(escrow.Use{Used: 50, Need: 1})
	k.givesBack(30)
	if got := k.total(); got.Out != 20 || got.Writes != 3 || got.Limit != 50 {
		t.Errorf("after 30 were given back: %+v", got)
	}
}

// A total that cannot be read hands out nothing more, and instances and tools say so.
func TestAnUnreadableTotalIsWithheld(t *testing.T) {
	t.Parallel()
	f := setup(t)
	k := f.taker("10/s,100/d", 100)
	k.becomes(7, escrow.Use{Need: 7})
	if _, err := k.client.Put(t.Context(), k.p.s.keys.BudgetTotal("p", "d", k.u.Start), `{"out":`, clientv3.WithIgnoreLease()); err != nil {
		t.Fatal(err)
	}
	k.exchange(escrow.Use{Used: 7, Need: 1})
	const why = "its total in etcd cannot be read"
	if told := k.u.Purse.Withheld(); k.u.Purse.Taken != 7 || told != why {
		t.Errorf("%d are taken, and %q is said", k.u.Purse.Taken, told)
	}
	fleet, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
	if err != nil || len(fleet.Budgets) != 1 || fleet.Budgets[0].Left != 0 || fleet.Budgets[0].Withheld != why {
		t.Errorf("%+v, %v", fleet.Budgets, err)
	}
}

// One transaction takes permits of all long limits, and each is counted in its own.
func TestOneTransactionForAllLongLimits(t *testing.T) {
	t.Parallel()
	f := setup(t)
	k := f.taker("10/s,100/d,1000/mo", 100)
	month := escrow.KeyUse{Budget: protocol.BudgetAt(quota.Limit{Permits: 1000, Window: 31 * 24 * time.Hour}, time.UTC, k.u.Start), Share: 3}
	uses := []escrow.KeyUse{k.u, month}
	day, mo := &uses[0], &uses[1]
	exchange := func() error { return k.p.exchange(t.Context(), takingTries, k.policy, uses) }
	await.Until(t, "permits of both", func() bool { // again where the view is in doubt
		_ = exchange()
		return day.Purse.Taken > 0
	})
	if day.Purse.Taken != 1 || mo.Purse.Taken != 3 || day.Purse.Revision() != mo.Purse.Revision() {
		t.Errorf("%d at %d, %d at %d", day.Purse.Taken, day.Purse.Revision(), mo.Purse.Taken, mo.Purse.Revision())
	}
	// One that cannot be is none of both.
	other := f.set("p", "10/s,100/d,2000/mo").Revision
	day.Use, mo.Use = escrow.Use{Used: 1}, escrow.Use{Used: 3}
	if _ = exchange(); day.Purse.Taken != 1 || mo.Purse.Taken != 3 || k.total().Out != 1 {
		t.Errorf("%d and %d by another policy", day.Purse.Taken, mo.Purse.Taken)
	}
	k.policy = other
	if err := exchange(); err != nil || day.Purse.Taken != 2 || mo.Purse.Taken != 6 {
		t.Errorf("%d and %d, %v", day.Purse.Taken, mo.Purse.Taken, err)
	}
}

// A process that ends gives back what its sink hands out, and waits for nothing else.
func TestGivesBackAtItsEnd(t *testing.T) {
	t.Parallel()
	k := setup(t).taker("10/s,100/d", 100)
	k.becomes(7, escrow.Use{Need: 7})
	k.p.cancel()
	k.p.parts.Wait()
	k.u.Use, k.u.Back, k.u.Purse.Taken = escrow.Use{}, escrow.Back{N: 2}, 5
	r := k.p.Sink.(*recorder)
	r.mu.Lock()
	r.uses = []escrow.KeyUse{k.u}
	r.mu.Unlock()
	k.p.giveBack(t.Context())
	if out := k.total().Out; out != 5 {
		t.Errorf("%d are handed out when the process has ended, which has issued 5", out)
	}
}

// Permits of a sliding limit are taken of the part of time that runs. What is left of an earlier part goes back in
// the same transaction, and each write lets the total last for as long as something counts.
func TestPermitsOfASlidingLimitAreTaken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	p, _ := f.follower("10/s,100/h sliding")
	l := quota.Limit{Permits: 100, Window: time.Hour, Sliding: true}
	b := protocol.BudgetAt(l, time.UTC, p.s.o.Clock.Wall())
	key := p.s.keys.BudgetTotal("p", "h-sliding", 0)
	total := func() (v escrow.Total, lease int64) {
		t.Helper()
		got, err := f.client.Get(t.Context(), key)
		if err != nil || len(got.Kvs) == 0 {
			return v, 0
		}
		if v, err = escrow.Decode[escrow.Total](got.Kvs[0].Value); err != nil {
			t.Fatal(err)
		}
		return v, got.Kvs[0].Lease
	}
	uses := []escrow.KeyUse{{Budget: b, Share: 1, Purse: escrow.Purse{Part: b.Part()}, Use: escrow.Use{Need: 7}}}
	take := func(want int64) {
		t.Helper()
		await.Until(t, "an exchange", func() bool { // again where the view is in doubt
			if uses[0].Purse.Taken != want {
				_ = p.exchange(t.Context(), takingTries, p.standing().Policy, uses)
			}
			return uses[0].Purse.Taken == want
		})
	}
	take(7)
	v, lease := total()
	if v.Out != 7 || len(v.Parts) != 1 || v.Parts[0] != 7 || v.Newest != b.Part().Number {
		t.Errorf("%+v after 7 were taken", v)
	}
	if l, err := f.client.TimeToLive(t.Context(), clientv3.LeaseID(lease)); err != nil || l.GrantedTTL < int64(3*time.Hour/time.Second) {
		t.Errorf("the total may be gone while something counts: %+v, %v", l, err)
	}
	// Three are used. In the next part the other four go back, and two are taken.
	next := protocol.BudgetAt(l, time.UTC, b.End)
	uses[0] = escrow.KeyUse{Budget: next, Share: 1, Purse: uses[0].Purse.In(next.Part()), Back: escrow.Back{N: 4, Of: b.Part()}, Use: escrow.Use{Need: 2}}
	take(2)
	if v, _ := total(); v.Out != 5 || len(v.Parts) != 2 || v.Parts[0] != 2 || v.Parts[1] != 3 {
		t.Errorf("%+v, want 3 and then 2", v)
	}
	// By another policy nothing is taken; what goes back may.
	uses[0].Use, uses[0].Back, uses[0].Purse.Taken = escrow.Use{Look: true}, escrow.Back{N: 2, Of: next.Part()}, 0
	if err := p.exchange(t.Context(), endingTries, 0, uses); err != nil {
		t.Fatal(err)
	}
	if v, _ := total(); v.Out != 3 || v.Parts[0] != 0 {
		t.Errorf("%+v, want 3", v)
	}
	fleet, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
	if err != nil || len(fleet.Budgets) != 1 || fleet.Budgets[0].Left != 97 {
		t.Errorf("%+v, %v; want 97 left", fleet.Budgets, err)
	}
}
