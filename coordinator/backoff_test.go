package coordinator

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// asker joins a session that can push back.
func (f *fixture) asker(o Options) (*recorder, *membership) {
	f.t.Helper()
	r := &recorder{asks: make(chan protocol.Ask, 1)}
	if _, _, err := f.join(o).Subscribe("p", func() feed.Sink { return r }); err != nil {
		f.t.Fatal(err)
	}
	await.Until(f.t, "a proof", r.is(proved))
	return r, f.only(r)
}

// ask is what a limiter says that was asked for a pause.
func ask(d time.Duration) protocol.Ask {
	now := time.Now()
	return protocol.Ask{At: now, Until: now.Add(d), Why: "429 from api"}
}

// seen reports whether a membership has seen a key of this revision at least.
func seen(p *membership, revision int64) func() bool {
	return p.locked(func() bool { return p.asking.revision >= revision })
}

func held(r *recorder) bool { return r.paused != 0 }
func free(r *recorder) bool { return r.paused == 0 }

func TestABackoffHoldsTheFleetUntilItIsEnded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	a, asking := f.asker(Options{})
	b, other := f.asker(Options{})
	await.Until(t, "both know both", func() bool { return a.is(members(2))() && b.is(members(2))() })
	a.asks <- ask(40 * time.Second)
	await.Until(t, "the other is held back", b.is(held))
	if left, why := b.heldBack(other.s.o.Clock); left > 40*time.Second || why != asking.id+": 429 from api" {
		t.Errorf("held back for %v: %q", left, why)
	}
	s, err := f.admin.Get(t.Context(), "p")
	if err != nil || s.Backoff == nil || len(s.Backoff.Asks) != 1 || s.Backoff.Asks[0].By != asking.id {
		t.Errorf("%+v, %v", s.Backoff, err)
	}
	if ended, err := f.admin.EndBackoff(t.Context(), "p"); !ended || err != nil {
		t.Errorf("ended: %v, %v", ended, err)
	}
	await.Until(t, "both go on", func() bool { return a.is(free)() && b.is(free)() })
	if ended, err := f.admin.EndBackoff(t.Context(), "p"); ended || err != nil {
		t.Errorf("ended twice: %v, %v", ended, err)
	}
	if writes, again := asking.put(ask(30 * time.Second)); writes != 1 || again {
		t.Errorf("on a key that is gone: %d writes, again: %v", writes, again)
	}
	await.Until(t, "the other is held back again", b.is(held))
	c, _ := f.asker(Options{})
	if !c.is(held)() {
		t.Error("one that joins is not held back")
	}
}

// One stray answer does not stop a large fleet; a second one within 2 s does, and so
// does an instance whose calls are refused.
func TestABackoffOfALargerFleetNeedsAQuorum(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	var all []*recorder
	var by []*membership
	for range 4 {
		r, p := f.asker(Options{})
		all, by = append(all, r), append(by, p)
	}
	await.Until(t, "all know all", func() bool {
		for _, r := range all {
			if !r.is(members(4))() {
				return false
			}
		}
		return true
	})
	stray := ask(50 * time.Second)
	all[0].asks <- stray
	await.Until(t, "the key is seen", seen(by[3], 1))
	if !all[3].is(free)() {
		t.Error("one instance holds back four")
	}
	second := stray
	second.Until = stray.At.Add(20 * time.Second)
	all[1].asks <- second
	await.Until(t, "all are held back", all[3].is(held))
	if left, _ := all[3].heldBack(by[3].s.o.Clock); left > 20*time.Second {
		t.Errorf("for %v, longer than both asked for", left)
	}
	stray.Alone = true
	all[0].asks <- stray
	await.Until(t, "for longer", all[3].is(func(r *recorder) bool { return r.paused-by[3].s.o.Clock.Mono() > int64(30*time.Second) }))
}

// Another instance's write in between is found and kept: two writes, and then a pause.
func TestAnAskIsWrittenOnWhatIsThere(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	_, p := f.asker(Options{})
	_, other := f.asker(Options{})
	if writes, again := other.put(ask(10 * time.Second)); writes != 1 || again {
		t.Errorf("%d writes, again: %v", writes, again)
	}
	await.Until(t, "the key is seen", seen(p, 1))
	p.locked(func() bool { p.asking.Backoff, p.asking.revision = protocol.Backoff{}, 1; return true })() // as if it had not seen it yet
	longer := ask(20 * time.Second)
	if writes, again := p.put(longer); writes != 2 || again {
		t.Errorf("%d writes, again: %v", writes, again)
	}
	if s, err := f.admin.Get(t.Context(), "p"); err != nil || len(s.Backoff.Asks) != 2 {
		t.Errorf("%+v, %v", s.Backoff, err)
	}
	await.Until(t, "its own write is seen", p.locked(func() bool { return len(p.asking.Asks) == 2 }))
	if writes, again := p.put(longer); writes != 0 || again {
		t.Errorf("what adds nothing: %d writes, again: %v", writes, again)
	}
}

func TestAnInstanceHoldsBackNobodyElse(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Backoff: quota.BackoffInstance}
	s, err := f.admin.Put(t.Context(), "p", policy, AnyRevision)
	if err != nil {
		t.Fatal(err)
	}
	a, p := f.asker(Options{})
	if writes, again := p.put(ask(time.Minute)); writes != 0 || again {
		t.Errorf("%d writes", writes)
	}
	// Nor does it heed one that is there.
	value, err := json.Marshal((&protocol.Backoff{}).With(protocol.Ask{By: p.id, At: time.Now(), Until: time.Now().Add(time.Minute)}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Put(t.Context(), f.admin.keys.Backoff("p"), string(value)); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the key is seen", seen(p, s.Revision+1))
	if !a.is(free)() {
		t.Error("it is held back")
	}
}

// Asks count within their bounds: any other is said once, and ignored.
func TestBackoffsOfStrangersAreIgnored(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	a, p := f.asker(Options{})
	now := time.Now()
	value := func(asks ...protocol.Ask) string {
		b, err := json.Marshal(protocol.Backoff{Asks: asks})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	put := func(value string) {
		t.Helper()
		r, err := f.client.Put(t.Context(), f.admin.keys.Backoff("p"), value)
		if err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the key is seen", seen(p, r.Header.Revision))
	}
	for _, text := range []string{
		"", "{", value(protocol.Ask{By: "stranger", At: now, Until: now.Add(time.Minute), Alone: true}),
		`{"schema":1}` + strings.Repeat(" ", protocol.MaxBackoffBytes), value(protocol.Ask{By: p.id, At: now, Until: now, Alone: true}),
	} {
		if put(text); !a.is(free)() {
			t.Errorf("%.80s holds back", text)
		}
	}
	if !p.locked(func() bool { return p.asking.warned != 0 })() {
		t.Error("nothing is said")
	}
	put(value(protocol.Ask{By: p.id, At: now, Until: now.AddDate(100, 0, 0)}))
	if left, _ := a.heldBack(p.s.o.Clock); left <= 0 || left > time.Minute {
		t.Errorf("a pause of a hundred years became %v", left)
	}
}

// A pause is bounded from when it was first seen: the key counts once for each of its
// revisions, however often it is told or listed.
func TestABackoffThatIsToldAgainIsNoLonger(t *testing.T) {
	t.Parallel()
	s := &Session{keys: layout, ctx: t.Context(), o: Options{Clock: clock.New(), Logger: quiet}}
	r := &recorder{}
	p := newMembership(s, "p", r)
	p.id = "a"
	b := (&protocol.Backoff{}).With(protocol.Ask{By: "a", At: time.Now(), Until: time.Now().Add(time.Hour)})
	value, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	list := func(revision int64, backoff ...view.Key) {
		instance := view.Key{Kind: view.Instance, ID: "a", Value: []byte(`{"schema":1,"name":"a","weight":1}`), Revision: 2}
		policy := view.Key{Kind: view.Policy, Value: []byte(`{"schema":1,"limits":[{"permits":1,"window":"1s"}],"backoff":"fleet"}`), Revision: 1}
		p.stage = following
		p.listLocked(listing{revision: revision, cluster: 1}, append(backoff, instance, policy))
	}
	tell := func(mod int64, deleted bool) {
		t.Helper()
		kv := &mvccpb.KeyValue{Key: []byte(layout.Backoff("p")), Value: value, ModRevision: mod}
		if deleted {
			kv.Value = nil
		}
		p.takeLocked([]view.Key{p.parse(kv, deleted)})
	}
	const untold = -1
	for _, step := range []struct {
		what string
		do   func()
		want int64 // 1: held back
	}{
		{"a listing without one", func() { list(4) }, untold},
		{"one that is written", func() { tell(5, false) }, 1},
		{"told again", func() { tell(5, false) }, untold},
		{"listed", func() { list(6, view.Key{Kind: view.Backoff, Value: value, Revision: 5}) }, untold},
		{"listed with another one", func() { list(8, view.Key{Kind: view.Backoff, Value: value, Revision: 7}) }, 1},
		{"an old one", func() { tell(6, false) }, untold},
		{"ended", func() { tell(9, true) }, 0},
		{"told again that it is ended", func() { tell(9, true) }, untold},
		{"another one", func() { tell(10, false) }, 1},
		{"a listing that lacks it", func() { list(12) }, 0},
		{"told again after the listing", func() { tell(10, false) }, untold},
		{"a store that was put back", func() { list(3, view.Key{Kind: view.Backoff, Value: value, Revision: 3}); tell(4, false) }, 1},
	} {
		r.paused = untold
		step.do()
		if got := min(r.paused, 1); got != step.want {
			t.Errorf("%s: told %d, want %d", step.what, got, step.want)
		}
		if left := time.Duration(r.paused - s.o.Clock.Mono()); left > time.Minute {
			t.Errorf("%s: for %v, longer than the policy allows", step.what, left)
		}
	}
}

// Without the right to write the key, an instance says so, and goes on.
func TestABackoffThatMayNotBeWrittenIsReported(t *testing.T) {
	t.Parallel()
	cluster, root := etcdtest.New(t, etcdtest.Options{})
	f := setupOn(t, root)
	consumer, operator := users(t, cluster, root, f.admin.keys)
	admin, err := NewAdmin(operator, AdminOptions{Prefix: f.prefix, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Put(t.Context(), "p", quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}, 0); err != nil {
		t.Fatal(err)
	}
	f.client = consumer
	a, _ := f.asker(Options{})
	a.asks <- ask(time.Minute)
	await.Until(t, "it is told", a.is(func(r *recorder) bool {
		return errors.Is(r.trouble, ErrPermission) && strings.Contains(r.trouble.Error(), "quota-admin roles consumer p")
	}))
	if !a.is(func(r *recorder) bool { return !r.closed && r.paused == 0 })() {
		t.Error("its own pause was touched")
	}
}
