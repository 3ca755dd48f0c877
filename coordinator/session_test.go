package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

func TestInstancesSeeEachOtherAndProveIt(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{Name: "a"}), "p")
	eventually(t, "a's first proof", a.is(proved))
	b, sub := f.subscribe(f.join(Options{Name: "b b/ü"}), "p")
	eventually(t, "a sees b", a.is(members(2)))
	eventually(t, "b sees a", b.is(members(2)))
	eventually(t, "b's first proof", b.is(proved))
	a.is(func(r *recorder) bool {
		joined := r.view.Instances[1]
		if joined.Name != "b b/ü" || joined.Weight != 1 {
			t.Errorf("a sees %+v", joined)
		}
		// Announced: not before S + 2e from now, at a window's boundary.
		if d := time.Until(joined.From); d < 2*time.Second || d > 5*time.Second || joined.From.Nanosecond() != 0 {
			t.Errorf("b takes part from %v, in %v", joined.From, d)
		}
		return true
	})()
	all, err := f.admin.Instances(t.Context(), "p")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d instances: %v", len(all), err)
	}
	if i := all[1].Instance; i.Name != "b b/ü" || i.PID != os.Getpid() || i.Version != Version || i.Attempt != 0 || all[1].Report == nil {
		t.Errorf("b's key says %+v, and its report %v", i, all[1].Report)
	}
	f.set("p", "20/s")
	eventually(t, "both see the new limit", func() bool {
		twenty := func(r *recorder) bool { return r.view.Policy.Limits[0].Permits == 20 }
		return a.is(twenty)() && b.is(twenty)()
	})
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "a sees b go", a.is(members(1)))
	if !b.is(func(r *recorder) bool { return r.closed })() {
		t.Error("b's sink was not closed")
	}
	before := a.told().proof
	eventually(t, "proofs go on", a.is(func(r *recorder) bool { return r.proof.Mono > before }))
	if got := a.told().log; got != "reset 1,put,policy,deleted" {
		t.Errorf("a was told %q", got)
	}
}

func TestProofsComeInAQuietStoreAndInABusyOne(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	eventually(t, "proofs while nothing happens", a.is(func(r *recorder) bool { return r.proofs > 5 }))
	stop, done := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for stop.Err() == nil {
			_, _ = f.client.Put(stop, f.prefix+"noise", "x")
		}
	})
	before := a.told().proofs
	eventually(t, "proofs while other keys change", a.is(func(r *recorder) bool { return r.proofs > before+5 }))
	done()
	wg.Wait()
}

func TestOneSessionServesManyProvidersOverOneStream(t *testing.T) {
	f := setup(t)
	s := f.join(Options{})
	var sinks []*recorder
	for i := range 20 {
		r, _ := f.subscribe(s, fmt.Sprintf("p/%d", i))
		sinks = append(sinks, r)
	}
	for i, r := range sinks {
		eventually(t, fmt.Sprint("a proof for provider ", i), r.is(proved))
	}
	again, sub := f.subscribe(s, "p/3")
	if again != sinks[3] {
		t.Error("a provider that is opened twice has two sinks")
	}
	if err := errors.Join(sub.Close(), sub.Close()); err != nil {
		t.Error(err)
	}
	if again.is(func(r *recorder) bool { return r.closed })() {
		t.Error("closing one of two subscriptions closed the sink")
	}
}

func TestACompactionWhileAwayStartsTheHistoryAnew(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	eventually(t, "a proof", a.is(proved))
	s := f.only(a)
	s.mu.Lock()
	s.tracker.List(s.s.o.Clock.Now(), 1, 0, nil) // as if the watch had been lost at revision 1
	s.rewatch()
	s.mu.Unlock()
	r, err := f.client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Compact(t.Context(), r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new history", a.is(func(r *recorder) bool { return len(r.log) == 2 && r.log[1] == "reset 1" && r.proofs > 0 }))
}

func TestALostLeaseMeansANewIncarnation(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{TTL: 2 * time.Second})
	a, _ := f.subscribe(s, "p")
	eventually(t, "a proof", a.is(proved))
	old := a.told().self
	s.mu.Lock()
	id := s.mu.lease.id
	s.mu.Unlock()
	if _, err := f.client.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new incarnation", a.is(func(r *recorder) bool { return r.self != old && r.proofs > 0 }))
	if log := a.told().log; !strings.HasPrefix(log, "reset 1,deleted,reset 1") {
		t.Errorf("was told %q: the share must be 0 from the deletion on", log)
	}
}

func TestADeletedKeyMeansANewIncarnation(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	eventually(t, "a proof", a.is(proved))
	old := a.told().self
	if _, err := f.client.Delete(t.Context(), f.admin.keys.instance("p", old)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new incarnation", a.is(func(r *recorder) bool { return r.self != old && r.proofs > 0 }))
}

func TestABrokenPolicyLeavesTheLastGoodOneInForce(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	eventually(t, "a proof", a.is(proved))
	key := f.admin.keys.policy("p")
	if _, err := f.client.Put(t.Context(), key, `{"schema":1,"limits":[`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the problem is told", a.is(func(r *recorder) bool {
		return r.trouble != nil && strings.Contains(r.trouble.Error(), "stays in force") && r.view.Policy.Limits[0].Permits == 10
	}))
	if s, err := f.admin.Get(t.Context(), "p"); err != nil || s.Problem == nil {
		t.Errorf("operators are told nothing: %+v, %v", s, err)
	}
	f.set("p", "30/s")
	eventually(t, "it is mended", a.is(func(r *recorder) bool { return r.trouble == nil && r.view.Policy.Limits[0].Permits == 30 }))
}

func TestThreeMembersSurviveTheirLeader(t *testing.T) {
	cluster, client := etcdtest.New(t, etcdtest.Options{Members: 3})
	f := setupOn(t, client)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	eventually(t, "a proof", a.is(proved))
	cluster.Stop(cluster.Leader(t.Context()))
	at := time.Now()
	mark := a.told().proof
	eventually(t, "proofs under the new leader", a.is(func(r *recorder) bool { return r.proof.Mono > mark+int64(time.Second) }))
	t.Logf("proved again %v after the leader was stopped", time.Since(at))
	if log := a.told().log; log != "reset 1" {
		t.Errorf("was told %q: the history must go on", log)
	}
}

func TestAnInstanceFindsBackAfterEtcdWasAway(t *testing.T) {
	cluster, client := etcdtest.New(t, etcdtest.Options{})
	f := setupOn(t, client)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{TTL: 30 * time.Second}), "p")
	eventually(t, "a proof", a.is(proved))
	self := a.told().self
	cluster.Stop(0)
	eventually(t, "the trouble is told", a.is(func(r *recorder) bool { return r.trouble != nil }))
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	mark := a.told().proof
	eventually(t, "proofs again", a.is(func(r *recorder) bool { return r.proof.Mono > mark && r.trouble == nil }))
	if log := a.told().log; log != "reset 1" || a.told().self != self {
		t.Errorf("was told %q: nothing was lost, so the history must go on", log)
	}
}

func TestAHandWrittenInstanceKeyTakesPart(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	eventually(t, "a proof", a.is(proved))
	if _, err := f.client.Put(t.Context(), f.admin.keys.instances("p")+"foreign", "not json"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it takes part, and is told of", a.is(func(r *recorder) bool { return len(r.view.Instances) == 2 && r.trouble != nil }))
	all, err := f.admin.Instances(t.Context(), "p")
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if b, _ := json.Marshal(all[0]); all[0].Problem == nil && all[1].Problem == nil {
		t.Errorf("operators do not see the problem: %s", b)
	}
}
