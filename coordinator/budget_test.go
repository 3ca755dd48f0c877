package coordinator

import (
	"errors"
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
	r      *recorder
	policy int64
	t      *budgetWindow
}

func (f *fixture) taker(limits string, day int64) *taker {
	f.t.Helper()
	p, r := f.follower(limits)
	b := protocol.BudgetAt(quota.Limit{Permits: day, Window: 24 * time.Hour}, time.UTC, p.s.o.Clock.Wall())
	return &taker{f, p, r, p.standing().policy, &budgetWindow{Budget: b, share: 1}}
}

// follower has a session follow a provider with these limits until its view is proved recent.
func (f *fixture) follower(limits string) (*membership, *recorder) {
	f.t.Helper()
	f.set("p", limits)
	r, _ := f.subscribe(f.join(Options{}), "p")
	p := f.only(r)
	await.Until(f.t, "the view is proved", func() bool { return p.standing().fresh })
	return p, r
}

func (k *taker) total() escrow.Total {
	k.fixture.t.Helper()
	got, err := k.client.Get(k.fixture.t.Context(), k.p.s.keys.BudgetTotal("p", "d", k.t.Start))
	if err != nil || len(got.Kvs) == 0 {
		return escrow.Total{}
	}
	v, err := escrow.Decode[escrow.Total](got.Kvs[0].Value)
	if err != nil {
		k.fixture.t.Fatal(err)
	}
	return v
}

func (k *taker) exchange(use escrow.Use) {
	k.t.use, k.t.taken = use, k.t.account.May()
	_ = k.p.exchange(k.fixture.t.Context(), takingTries, k.policy, []*budgetWindow{k.t}, nil)
}

// becomes takes permits, or gives them back, until so many are handed out.
func (k *taker) becomes(out int64, use escrow.Use) {
	k.fixture.t.Helper()
	await.Until(k.fixture.t, "an exchange", func() bool { // again where the view is in doubt
		if k.total().Out != out {
			k.exchange(use)
		}
		return k.total().Out == out
	})
	if may := k.t.account.May(); may != out {
		k.fixture.t.Errorf("%d handed out, of which the only process knows %d", out, may)
	}
}

// Permits are taken of the limit of the policy that is in etcd, and by nobody twice.
func TestPermitsOfALongWindowAreTaken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	k := f.taker("10/s,100/d", 100)
	k.becomes(7, escrow.Use{Need: 7})
	if l, err := f.client.TimeToLive(t.Context(), k.p.budgets.of(24*time.Hour).lease); err != nil || l.GrantedTTL < int64(48*time.Hour/time.Second) {
		t.Errorf("the keys may be gone before the window: %+v, %v", l, err)
	}
	left := func(want int64) {
		t.Helper()
		fleet, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
		if err != nil || len(fleet.Budgets) != 1 || fleet.Budgets[0].Left != want || fleet.Budgets[0].End != k.t.End {
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
	k.policy, k.t.Permits = after, 50
	k.becomes(50, escrow.Use{Used: 7, Need: 43})
	left(0)
	k.exchange(escrow.Use{Used: 50, Need: 1})
	k.becomes(20, escrow.Use{Used: 20, Ends: true})
	if got := k.total(); got.Writes != 3 || got.Limit != 50 {
		t.Errorf("after 30 were given back: %+v", got)
	}
}

// Permits are given back once the sink cannot issue them any more, and not before.
func TestGivesBackAfterBinding(t *testing.T) {
	t.Parallel()
	k := setup(t).taker("10/s,100/d", 100)
	k.becomes(7, escrow.Use{Need: 7})
	var bound []int64 // what is handed out when the sink is told of less
	k.r.budget = func(u protocol.BudgetUse) {
		if u.Taken == 2 {
			bound = append(bound, k.total().Out)
		}
	}
	k.becomes(2, escrow.Use{Used: 2, Idle: true})
	if len(bound) == 0 || bound[0] != 7 {
		t.Errorf("%d were handed out when the sink was bound, want 7", bound)
	}
}

// A total that cannot be read hands out nothing more, and instances and tools say so.
func TestAnUnreadableTotalIsWithheld(t *testing.T) {
	t.Parallel()
	f := setup(t)
	k := f.taker("10/s,100/d", 100)
	k.becomes(7, escrow.Use{Need: 7})
	told := ""
	k.r.budget = func(u protocol.BudgetUse) { told = u.Withheld }
	if _, err := k.client.Put(t.Context(), k.p.s.keys.BudgetTotal("p", "d", k.t.Start), `{"out":`, clientv3.WithIgnoreLease()); err != nil {
		t.Fatal(err)
	}
	k.exchange(escrow.Use{Used: 7, Need: 1})
	const why = "its total in etcd cannot be read"
	if k.t.account.May() != 7 || told != why {
		t.Errorf("%d are taken, and %q is said", k.t.account.May(), told)
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
	month := &budgetWindow{Budget: protocol.BudgetAt(quota.Limit{Permits: 1000, Window: 31 * 24 * time.Hour}, time.UTC, k.t.Start), share: 3}
	exchange := func() error {
		return k.p.exchange(t.Context(), takingTries, k.policy, []*budgetWindow{k.t, month}, nil)
	}
	await.Until(t, "permits of both", func() bool { // again where the view is in doubt
		_ = exchange()
		return k.t.account.May() > 0
	})
	if k.t.account.May() != 1 || month.account.May() != 3 || k.t.found.TotalRevision != month.found.TotalRevision {
		t.Errorf("%d at %d, %d at %d", k.t.account.May(), k.t.found.TotalRevision, month.account.May(), month.found.TotalRevision)
	}
	// One that cannot be is none of both.
	other := f.set("p", "10/s,100/d,2000/mo").Revision
	k.t.use, month.use = escrow.Use{Used: 1}, escrow.Use{Used: 3}
	if _ = exchange(); k.t.account.May() != 1 || month.account.May() != 3 || k.total().Out != 1 {
		t.Errorf("%d and %d by another policy", k.t.account.May(), month.account.May())
	}
	k.policy = other
	if err := exchange(); err != nil || k.t.account.May() != 2 || month.account.May() != 6 {
		t.Errorf("%d and %d, %v", k.t.account.May(), month.account.May(), err)
	}
}

// The rate of use is right also for permits by the billion.
func TestRateOfUse(t *testing.T) {
	t.Parallel()
	for used, want := range map[int64]int64{0: 0, 1: 1, 100: 50, 1e11: 5e10, quota.MaxPermits: quota.MaxPermits / 2} {
		w := &budgetWindow{}
		if got := w.see(&protocol.BudgetUse{Used: used}, int64(2*time.Second)).Rate; got != want {
			t.Errorf("%d in 2 s: %d a second, want %d", used, got, want)
		}
	}
}

// A process that ends gives back also what it learns only then to have taken: the answer to its last
// taking was lost.
func TestGivesBackWhatWasOnItsWay(t *testing.T) {
	t.Parallel()
	k := setup(t).taker("10/s,100/d", 100)
	k.becomes(7, escrow.Use{Need: 7})
	k.p.cancel()
	k.p.parts.Wait()
	total, own := k.p.budgetKeys(k.t)
	step, _ := k.t.account.Next(k.t.rule(k.p.standing()), k.t.found, escrow.Use{Used: 7, Need: 2}, "")
	k.t.account.Sent(step.Own.Taken)
	out, err1 := escrow.Encode(step.Total)
	taken, err2 := escrow.Encode(step.Own)
	_, err3 := k.client.Txn(t.Context()).Then(clientv3.OpPut(total, out, clientv3.WithIgnoreLease()), clientv3.OpPut(own, taken, clientv3.WithIgnoreLease())).Commit()
	if err := errors.Join(err1, err2, err3); err != nil || k.total().Out != 9 {
		t.Fatal(k.total(), err)
	}
	k.p.budgets.of(k.t.Window).window = k.t
	k.r.mu.Lock()
	k.r.budgets = []protocol.BudgetUse{{Budget: k.t.Budget, Taken: 7, Used: 7}}
	k.r.mu.Unlock()
	k.p.giveBack(t.Context())
	if out := k.total().Out; out != 7 {
		t.Errorf("%d are handed out when the process has ended, which has issued 7", out)
	}
}
