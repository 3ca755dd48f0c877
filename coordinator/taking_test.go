package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// takesOf has a membership take a permit of each of some keys, and returns for how many etcd
// gave no answer.
func (p *membership) takesOf(t *testing.T, names ...string) (away int) {
	t.Helper()
	var uses []escrow.KeyUse
	for _, name := range names {
		b := protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, time.Now().UnixNano())
		uses = append(uses, escrow.KeyUse{Key: name, Budget: b, Use: escrow.Use{Need: 1}, Share: -1})
	}
	if err := p.exchange(t.Context(), takingTries, p.standing().Policy, uses); err != nil {
		t.Log(err)
	}
	for _, u := range uses {
		if u.Away {
			away++
		} else if u.Purse.Taken < 1 {
			t.Errorf("%s: nothing was taken of 100 permits", u.Key)
		}
	}
	return away
}

// A batch is one transaction of etcd. A lease that a restored etcd does not know is granted anew.
func TestKeysAreTakenInBatches(t *testing.T) {
	t.Parallel()
	p, _ := setup(t).follower("100/s,1000000/h")
	var names []string
	for i := range keyBatch {
		names = append(names, fmt.Sprint("tenant/", i))
	}
	await.Until(t, "a whole batch is taken", func() bool { return p.takesOf(t, names...) == 0 })
	if _, err := p.s.client.Revoke(t.Context(), p.budgets.of(&escrow.KeyUse{Key: "new", Budget: protocol.Budget{Limit: quota.Limit{Window: time.Hour}}}).lease); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "keys are taken under another lease", func() bool { return p.takesOf(t, "new") == 0 })
}

// logging returns a membership of a session with a log, and what closes the session and returns the log.
func logging(t *testing.T) (p *membership, logged func() string) {
	t.Helper()
	var log bytes.Buffer
	f := setup(t)
	f.set("p", "100/s")
	s := f.join(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r, _ := f.subscribe(s, "p")
	return f.only(r), func() string {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return log.String()
	}
}

// That nothing more of keys is handed out in a window is logged once, also if another lease is
// granted for its keys.
func TestAWithheldWindowOfKeysIsLoggedOnce(t *testing.T) {
	t.Parallel()
	p, logged := logging(t)
	b := protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, time.Now().UnixNano())
	for i := range 3 {
		k := &taking{KeyUse: &escrow.KeyUse{Key: fmt.Sprint("tenant/", i), Budget: b}}
		k.Purse.Read([]byte(`{"withheld":"a restore"}`), 1, &escrow.Verdict{Cluster: 1})
		if k.decided(p); k.Purse.Withheld() == "" {
			t.Fatal("more is handed out")
		}
		p.budgets.of(k.KeyUse).lease = clientv3.NoLease
	}
	if n := strings.Count(logged(), "nothing more of a limit is handed out for some keys"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// Of which limit nothing more is handed out, the log says until when. A limit of calls under way has no window, and goes on
// by itself: to wait is best.
func TestTheLogSaysUntilWhenALimitIsWithheld(t *testing.T) {
	t.Parallel()
	p, logged := logging(t)
	now := time.Now()
	for _, limit := range []quota.Limit{{Permits: 100, Window: time.Hour}, {Permits: 3, Window: 20 * time.Second, InFlight: true}} {
		k := &taking{KeyUse: &escrow.KeyUse{Budget: protocol.BudgetAt(limit, time.UTC, now.UnixNano())}}
		k.Purse.Part = k.Part()
		text, err := escrow.Encode(escrow.Total{Cluster: 1, Withheld: "a restore", From: k.Purse.Part.Number + 2})
		if err != nil {
			t.Fatal(err)
		}
		k.Purse.Read([]byte(text), 1, &escrow.Verdict{Cluster: 1})
		k.decided(p)
	}
	text := logged()
	for _, want := range []string{
		`limit=100/h until="` + now.UTC().Truncate(time.Hour).Add(time.Hour).Format("2006-01-02 15:04:05 UTC") + `" because="a restore" do="give the provider's count: quota-admin budget p --used N --limit 100/h"`,
		` UTC at the latest" because="a restore" do="wait, or to go on sooner give how many calls are open now, those from before the restore included: quota-admin budget p --used N --limit '3 inflight hold=20s'"`,
	} {
		if strings.Count(text, `msg="nothing more of a limit is handed out" provider=p `) != 2 || !strings.Contains(text, want) {
			t.Errorf("%s\ndoes not say %s", text, want)
		}
	}
}

// hooked calls what a context has under hook{} before each transaction of that context, with the transaction's own
// context. The session's own transactions, such as reports, are of another one.
type hooked struct{ clientv3.KV }

type hook struct{}

func (h hooked) Txn(ctx context.Context) clientv3.Txn {
	if before, ok := ctx.Value(hook{}).(func(context.Context)); ok {
		before(ctx)
	}
	return h.KV.Txn(ctx)
}

// Permits of the provider and of its keys are taken in one transaction. A window that another
// instance writes in between holds up no other.
func TestOneTransactionForBudgetsAndKeys(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.kv = hooked{f.client}
	k := f.taker("10/s,100/d", 100)
	if err := k.p.knowMark(t.Context(), k.p.standing()); err != nil {
		t.Fatal(err)
	}
	hour := protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, k.u.Start)
	k.u.Use.Need = 7
	day, key := &taking{KeyUse: &k.u}, &taking{KeyUse: &escrow.KeyUse{Key: "tenant", Budget: hour, Use: escrow.Use{Need: 1}, Share: -1}}
	write := func(out int64) {
		text, err := escrow.Encode(escrow.Total{Limit: 100, Out: out, Cluster: k.p.standing().Cluster})
		if err == nil {
			_, err = k.client.Put(t.Context(), k.p.s.keys.BudgetTotal("p", "d", k.u.Start), text)
		}
		if err != nil {
			t.Error(err)
		}
	}
	rounds := 0
	between := func(context.Context) {
		switch rounds++; rounds {
		case 1: // neither was read
			write(5)
		case 2: // after both were read
			write(10)
		}
	}
	if err := k.p.transact(context.WithValue(t.Context(), hook{}, between), 3, k.policy, []*taking{day, key}); err != nil {
		t.Fatal(err)
	}
	if key.Purse.Taken != 1 || day.Purse.Taken != 7 || k.total().Out != 17 || day.Purse.Revision() <= key.Purse.Revision() || rounds != 3 {
		t.Errorf("%d transactions: %d of the key at %d, %d of the day at %d, %+v", rounds, key.Purse.Taken, key.Purse.Revision(), day.Purse.Taken, day.Purse.Revision(), k.total())
	}
}

// An operator says that the store was restored under its old ID, and an instance learns that by the mark that its own
// transaction finds: what it has in hand counts no more, and a give-back of it is not written.
func TestAMarkThatIsFoundEndsWhatIsInHand(t *testing.T) {
	t.Parallel()
	k := setup(t).taker("10/s,100/d", 100)
	withhold := func() {
		t.Helper()
		await.Until(t, "permits are taken", func() bool { k.exchange(escrow.Use{Need: 4}); return k.u.Purse.Taken >= 4 })
		text, err := escrow.Encode(k.p.budgets.mark.Withholding(k.p.s.o.Clock.Wall(), time.Second))
		if err == nil {
			_, err = k.client.Put(t.Context(), k.p.s.keys.BudgetMark("p"), text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	withhold()
	await.Until(t, "the mark is found", func() bool { k.exchange(escrow.Use{Used: 1, Need: 6}); return k.u.Purse.Withheld() != "" })
	if k.u.Purse.Taken != 1 {
		t.Errorf("%d permits count, want the one that was issued", k.u.Purse.Taken)
	}

	k = setup(t).taker("10/s,100/d", 100)
	withhold()
	before := k.total()
	k.u.Use, k.u.Purse.Taken = escrow.Use{}, k.u.Purse.Taken-3
	await.Until(t, "etcd answers", func() bool { k.u.Back = escrow.Back{N: 3}; k.send(); return !k.u.Away })
	if k.u.Back.N != 3 {
		t.Errorf("the use comes back without what was to be given back: %+v", k.u)
	}
	if k.total().Writes != before.Writes || k.u.Purse.Taken != 0 {
		t.Errorf("%d permits count after a give-back of those in hand; the total is %+v, and was %+v", k.u.Purse.Taken, k.total(), before)
	}
}

// Where the session follows no store, as before the first answer of a provider's own watch, a total
// that was written before is not of another store, and the error speaks of none.
func TestNoStoreIsNotAnotherStore(t *testing.T) {
	t.Parallel()
	f := setup(t)
	p, _ := f.follower("100/s,1000000/h")
	b := protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, time.Now().UnixNano())
	uses := []escrow.KeyUse{{Key: "tenant", Budget: b, Use: escrow.Use{Need: 5}, Share: -1}}
	await.Until(t, "permits are taken", func() bool {
		return p.exchange(t.Context(), takingTries, p.standing().Policy, uses) == nil && uses[0].Purse.Taken == 5
	})
	uses[0].Back, uses[0].Purse.Taken, uses[0].Use = escrow.Back{N: 2}, 3, escrow.Use{}
	nowhere := newMembership(p.s, "p", &recorder{}) // follows no store
	err := nowhere.exchange(t.Context(), takingTries, p.standing().Policy, uses)
	if err == nil || !strings.Contains(err.Error(), "no etcd cluster is followed yet") || !uses[0].Away {
		t.Errorf("answered by no store: %+v, %v", uses[0], err)
	}
	got, err := f.client.Get(t.Context(), p.s.keys.BudgetOfKey("p", b.Name(), b.Start, "tenant"))
	if err != nil {
		t.Fatal(err)
	}
	if total, err := escrow.Decode[escrow.Total](got.Kvs[0].Value); err != nil || total.Out != 5 || total.Withheld != "" {
		t.Errorf("%+v, %v; want 5 handed out, and more to have", total, err)
	}
}

// repeater executes each transaction twice once it is on, as a proxy may, and hands on the second
// answer.
type repeater struct {
	clientv3.KV
	on atomic.Bool
}

func (r *repeater) Txn(ctx context.Context) clientv3.Txn { return &twice{r.KV.Txn(ctx), r, ctx, nil} }

type twice struct {
	clientv3.Txn
	r   *repeater
	ctx context.Context
	ops []clientv3.Op
}

func (x *twice) Then(ops ...clientv3.Op) clientv3.Txn {
	x.Txn, x.ops = x.Txn.Then(ops...), ops
	return x
}

func (x *twice) Commit() (*clientv3.TxnResponse, error) {
	r, err := x.Txn.Commit()
	if err != nil || !x.r.on.Load() {
		return r, err
	}
	return x.r.KV.Txn(x.ctx).Then(x.ops...).Commit()
}

// Permits of a key are given back once, also where etcd executes each transaction twice.
func TestKeysAreGivenBackOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := &repeater{KV: f.client}
	f.kv = r
	p, _ := f.follower("100/s,1000000/h")
	b := protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, time.Now().UnixNano())
	uses := []escrow.KeyUse{{Key: "tenant", Budget: b, Use: escrow.Use{Need: 50}, Share: -1}}
	await.Until(t, "permits are taken", func() bool {
		return p.exchange(t.Context(), takingTries, p.standing().Policy, uses) == nil && uses[0].Purse.Taken == 50
	})
	r.on.Store(true)
	uses[0].Back, uses[0].Purse.Taken, uses[0].Use = escrow.Back{N: 10}, 40, escrow.Use{}
	if err := p.exchange(t.Context(), takingTries, p.standing().Policy, uses); err != nil {
		t.Fatal(err)
	}
	got, err := f.client.Get(t.Context(), p.s.keys.BudgetOfKey("p", b.Name(), b.Start, "tenant"))
	if err != nil {
		t.Fatal(err)
	}
	if total := escrow.ReadTotal(got.Kvs[0].Value, p.standing().Cluster); total.Out != 40 || uses[0].Away || uses[0].Back.N != 10 {
		t.Errorf("%+v, away: %v, %+v; want 40 handed out, which the instance may issue, and 10 that were given back", total, uses[0].Away, uses[0].Back)
	}
}

// tenantOf returns a follower that knows the mark, and a window of 100 an hour. What it sends to etcd calls the hook of
// the context before.
func tenantOf(t *testing.T) (*fixture, *membership, protocol.Budget) {
	t.Helper()
	f := setup(t)
	f.kv = hooked{f.client}
	p, _ := f.follower("100/s,1000000/h")
	if err := p.knowMark(t.Context(), p.standing()); err != nil {
		t.Fatal(err)
	}
	return f, p, protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, time.Now().UnixNano())
}

// Permits that were to be given back are known not to be if the connection to etcd ends before the total was read, and
// may be if it ends later.
func TestWhatEtcdWasNotAskedToTakeBack(t *testing.T) {
	t.Parallel()
	f, p, b := tenantOf(t)
	for ends := 1; ends <= 2; ends++ { // before which transaction
		ctx, end := context.WithCancel(t.Context())
		n := 0
		before := func(context.Context) {
			if n++; n == ends {
				end()
			}
		}
		uses := []escrow.KeyUse{{Key: "tenant", Budget: b, Purse: escrow.Purse{Taken: 5}, Back: escrow.Back{N: 3}, Share: -1}}
		if ends == 2 { // there is a total
			f.handedOut(p, b)
		}
		if err := p.exchange(context.WithValue(ctx, hook{}, before), takingTries, 0, uses); err == nil || !uses[0].Away || uses[0].Unsent != (ends == 1) || uses[0].Answered {
			t.Errorf("ended before transaction %d: %v, %+v", ends, err, uses[0])
		}
	}
}

// handedOut writes that 8 permits of a key's window are handed out.
func (f *fixture) handedOut(p *membership, b protocol.Budget) {
	f.t.Helper()
	text, err := escrow.Encode(escrow.Total{Limit: 100, Out: 8, Cluster: p.standing().Cluster})
	if err == nil {
		_, err = f.client.Put(f.t.Context(), p.s.keys.BudgetOfKey("p", b.Name(), b.Start, "tenant"), text)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// However long the reading has taken, etcd has all the time to answer that it takes permits back: if that were cut off,
// they would be lost.
func TestEachTransactionHasAllTheTime(t *testing.T) {
	t.Parallel()
	f, p, b := tenantOf(t)
	f.handedOut(p, b)
	var ends []time.Time
	ctx := context.WithValue(t.Context(), hook{}, func(ctx context.Context) {
		end, _ := ctx.Deadline()
		ends = append(ends, end)
	})
	uses := []escrow.KeyUse{{Key: "tenant", Budget: b, Purse: escrow.Purse{Taken: 5}, Back: escrow.Back{N: 3}, Share: -1}}
	if err := p.exchange(ctx, takingTries, 0, uses); err != nil || uses[0].Away {
		t.Fatalf("%v, %+v", err, uses[0])
	}
	if len(ends) != 2 || !ends[1].After(ends[0]) {
		t.Errorf("a read and a write end at %v: want the write later", ends)
	}
}

// Others write the total before each try: etcd has answered, and nothing was decided. They have not come first where the
// policy is another by then.
func TestOthersComeFirstAtEachTry(t *testing.T) {
	t.Parallel()
	f, p, b := tenantOf(t)
	for _, c := range []struct {
		policy int64
		outrun bool
	}{{p.standing().Policy, true}, {p.standing().Policy - 1, false}} {
		ctx := context.WithValue(t.Context(), hook{}, func(context.Context) {
			if c.outrun {
				f.handedOut(p, b)
			}
		})
		uses := []escrow.KeyUse{{Key: "tenant", Budget: b, Use: escrow.Use{Need: 5}, Share: -1}}
		if err := p.exchange(ctx, takingTries, c.policy, uses); err != nil || !uses[0].Away || !uses[0].Answered || uses[0].Outrun != c.outrun {
			t.Errorf("%v, away %v, answered %v, outrun %v, taken %d", err, uses[0].Away, uses[0].Answered, uses[0].Outrun, uses[0].Purse.Taken)
		}
	}
}

// What is given back is not lost where others write the total before each try: each answer proves that the try was never
// committed.
func TestOthersComeFirstAtEachGiveBack(t *testing.T) {
	t.Parallel()
	_, p, day := tenantOf(t)
	b := protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour, Sliding: true}, time.UTC, day.Start)
	key, others := p.s.keys.BudgetOfKey("p", b.Name(), b.TotalStart(), "tenant"), int64(0)
	ctx := context.WithValue(t.Context(), hook{}, func(context.Context) {
		others++
		text, err := escrow.Encode(escrow.Total{Limit: 100, Out: 8, Cluster: p.standing().Cluster, Writes: others, Newest: b.Part().Number, Parts: []int64{8}, Recent: []uint32{1}})
		if err == nil {
			_, err = p.s.client.Put(t.Context(), key, text)
		}
		if err != nil {
			t.Error(err)
		}
	})
	uses := []escrow.KeyUse{{Key: "tenant", Budget: b, Purse: escrow.Purse{Taken: 5, Part: b.Part()}, Back: escrow.Back{N: 3, Of: b.Part()}, Use: escrow.Use{Look: true}, Share: -1}}
	if err := p.exchange(ctx, takingTries, 0, uses); err != nil || others != takingTries || !uses[0].Away || !uses[0].Unsent || !uses[0].Answered {
		t.Errorf("%v, %d tries, away %v, unsent %v, answered %v", err, others, uses[0].Away, uses[0].Unsent, uses[0].Answered)
	}
}

// An instance that ends does not try to take what it wanted before.
func TestNothingIsTakenAtTheEnd(t *testing.T) {
	t.Parallel()
	_, p, b := tenantOf(t)
	n := 0
	key := &taking{KeyUse: &escrow.KeyUse{Key: "tenant", Budget: b, Use: escrow.Use{Need: 5}, Share: -1}}
	if err := p.transact(context.WithValue(t.Context(), hook{}, func(context.Context) { n++ }), endingTries, 0, []*taking{key}); err != nil {
		t.Fatal(err)
	}
	if n > 2 || key.Purse.Taken > 0 {
		t.Errorf("asked %d times, for %d permits", n, key.Purse.Taken)
	}
}

// What an instance has in hand of another store counts no more, also if the sink does not know yet that
// the store is another one. What was to be given back of it is lost, whether etcd answers or not, and the sink is told how
// much that was.
func TestWhatIsInHandOfAnotherStoreIsDropped(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.kv = hooked{f.client}
	p, _ := f.follower("100/s,1000000/h")
	limit := quota.Limit{Permits: 100, Window: time.Hour, Sliding: true}
	b := protocol.BudgetAt(limit, time.UTC, time.Now().UnixNano())
	back := escrow.Back{N: 4, Of: b.PartAt(b.Start - 1)}
	use := escrow.KeyUse{Key: "tenant", Budget: b, Use: escrow.Use{Used: 3}, Purse: escrow.Purse{Part: b.Part()}, Back: back}
	use.Purse.Read(nil, 0, &escrow.Verdict{Cluster: 1})
	use.Purse.Taken = 9
	uses := make([]escrow.KeyUse, 1)
	for _, look := range []bool{true, false} {
		use.Use.Look = look
		await.Until(t, "etcd answers", func() bool {
			uses[0] = use
			return p.exchange(t.Context(), takingTries, p.standing().Policy, uses) == nil && !uses[0].Away
		})
		want := int64(3)
		if !look { // one more is taken
			want++
		}
		if n := uses[0].Purse.Taken; n != want || uses[0].Back != back {
			t.Errorf("%d permits are taken, want the 3 that were used and %d; %+v was to be given back", n, want-3, uses[0].Back)
		}
	}
	uses[0] = use
	ctx, end := context.WithCancel(t.Context())
	_ = p.exchange(context.WithValue(ctx, hook{}, func(context.Context) { end() }), takingTries, p.standing().Policy, uses)
	if u := &uses[0]; !u.Away || u.Unsent || u.Back != back {
		t.Errorf("no answer: away %v, unsent %v, %+v was to be given back", u.Away, u.Unsent, u.Back)
	}
}
