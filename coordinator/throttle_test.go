package coordinator

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// asker joins a session that can push back.
func (f *fixture) asker(o Options) (*recorder, *membership) {
	f.t.Helper()
	r := &recorder{asks: make(chan protocol.Ask, 1)}
	if _, _, err := f.join(o).subscribe("p", func() feed.Sink { return r }); err != nil {
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
	return p.locked(func() bool { _, seen := p.Throttle(); return seen >= revision })
}

func held(r *recorder) bool { return r.pause() != protocol.Ask{} }
func free(r *recorder) bool { return !held(r) }

func TestABackoffHoldsTheFleetUntilItIsEnded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	a, asking := f.asker(Options{})
	b, _ := f.asker(Options{})
	await.Until(t, "both know both", func() bool { return a.is(members(2))() && b.is(members(2))() })
	a.asks <- ask(40 * time.Second)
	await.Until(t, "the other is held back", b.is(held))
	if left, why := b.heldBack(); left > 40*time.Second || why != asking.current().ID+": 429 from api (said by 1 of 2 instances)" {
		t.Errorf("held back for %v: %q", left, why)
	}
	s, err := feed.Inside(f.admin).Throttle(t.Context(), "p")
	if err != nil || s == nil || len(s.Asks) != 1 || s.Asks[0].By != asking.current().ID {
		t.Errorf("%+v, %v", s, err)
	}
	if ended, err := f.admin.Resume(t.Context(), "p"); !ended || err != nil {
		t.Errorf("ended: %v, %v", ended, err)
	}
	await.Until(t, "both go on", func() bool { return a.is(free)() && b.is(free)() })
	if ended, err := f.admin.Resume(t.Context(), "p"); ended || err != nil {
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
	if left, _ := all[3].heldBack(); left > 20*time.Second {
		t.Errorf("for %v, longer than both asked for", left)
	}
	stray.Alone = true
	all[0].asks <- stray
	await.Until(t, "for longer", all[3].is(func(r *recorder) bool { return time.Until(r.pause().Until) > 30*time.Second }))
}

// Another instance's write in between is found and kept: two writes, and then a pause.
func TestAnAskIsWrittenOnWhatIsThere(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	_, p := f.asker(Options{})
	_, other := f.asker(Options{})
	id := other.current().ID
	await.Until(t, "it knows the other", p.locked(func() bool { return p.Has(id) }))
	p.s.mu.Lock()
	w, _ := p.writerLocked()
	policy := p.Policy()
	p.s.mu.Unlock()
	if writes, again := other.put(ask(10 * time.Second)); writes != 1 || again {
		t.Errorf("%d writes, again: %v", writes, again)
	}
	longer := ask(20 * time.Second)
	if writes, again := p.putOn(w, protocol.Throttle{}, policy, longer); writes != 2 || again { // as if it had not seen it yet
		t.Errorf("%d writes, again: %v", writes, again)
	}
	if s, err := feed.Inside(f.admin).Throttle(t.Context(), "p"); err != nil || len(s.Asks) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	await.Until(t, "its own write is seen", p.locked(func() bool { t, _ := p.Throttle(); return len(t.Asks) == 2 }))
	if writes, again := p.put(longer); writes != 0 || again {
		t.Errorf("what adds nothing: %d writes, again: %v", writes, again)
	}
}

func TestAnInstanceHoldsBackNobodyElse(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Throttling: quota.Throttling{Backoff: quota.BackoffInstance}}
	if _, err := f.admin.Put(t.Context(), "p", policy); err != nil {
		t.Fatal(err)
	}
	_, p := f.asker(Options{})
	if writes, again := p.put(ask(time.Minute)); writes != 0 || again {
		t.Errorf("%d writes", writes)
	}
}

// Asks count within their bounds: what is malformed is a problem, and ignored. The next ask
// replaces it, and makes room of strangers.
func TestBackoffsOfStrangersAreIgnored(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	a, p := f.asker(Options{})
	now := time.Now()
	value := func(asks ...protocol.Ask) string {
		b, err := json.Marshal(protocol.Throttle{Asks: asks})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	put := func(value string) {
		t.Helper()
		r, err := f.client.Put(t.Context(), f.keys.Throttle("p"), value)
		if err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the key is seen", seen(p, r.Header.Revision))
	}
	stranger := value(protocol.Ask{By: "stranger", At: now, Until: now.Add(time.Minute), Alone: true})
	for text, bad := range map[string]bool{
		"": true, "{": true, `{"schema":1}` + strings.Repeat(" ", protocol.MaxThrottleBytes): true,
		stranger: false, value(protocol.Ask{By: p.current().ID, At: now, Until: now, Alone: true}): false,
	} {
		if put(text); !a.is(free)() {
			t.Errorf("%.80s holds back", text)
		}
		if got := a.is(func(r *recorder) bool { return r.trouble != nil && r.view.Throttle != nil })(); got != bad {
			t.Errorf("%.80s is a problem: %v", text, got)
		}
	}
	put(value(protocol.Ask{By: p.current().ID, At: now, Until: now.AddDate(100, 0, 0)}))
	if left, _ := a.heldBack(); left <= 0 || left > time.Minute {
		t.Errorf("a pause of a hundred years became %v", left)
	}
	for _, text := range []string{"{", stranger} {
		put(text)
		if writes, again := p.put(ask(time.Minute)); writes != 1 || again {
			t.Errorf("on %.80s: %d writes, again: %v", text, writes, again)
		}
		await.Until(t, "only its own counts", p.locked(func() bool { t, _ := p.Throttle(); return len(t.Asks) == 1 && t.Asks[0].By == p.Own().ID }))
	}
}

// Without the right to write the key, an instance says so, and goes on.
func TestABackoffThatMayNotBeWrittenIsReported(t *testing.T) {
	t.Parallel()
	f, _ := setupAsConsumer(t, quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}})
	a, _ := f.asker(Options{})
	a.asks <- ask(time.Minute)
	await.Until(t, "it is told", a.is(func(r *recorder) bool {
		return errors.Is(r.trouble, ErrPermission) && strings.Contains(r.trouble.Error(), "quota-admin roles consumer p")
	}))
	if !a.is(func(r *recorder) bool { return !r.closed && free(r) })() {
		t.Error("its own pause was touched")
	}
}
