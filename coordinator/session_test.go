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

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

func TestInstancesSeeEachOtherAndProveIt(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{Name: "a"}), "p")
	await.Until(t, "a's first proof", a.is(proved))
	b, leave := f.subscribe(f.join(Options{Name: "b b/ü"}), "p")
	await.Until(t, "a sees b", a.is(members(2)))
	await.Until(t, "b sees a", b.is(members(2)))
	await.Until(t, "b's first proof", b.is(proved))
	a.is(func(r *recorder) bool {
		joined := r.view.Instances[1]
		if joined.Name != "b b/ü" {
			t.Errorf("a sees %+v", joined)
		}
		// Announced: not before S + 2e from now, at a window's boundary.
		if d := time.Until(joined.From); d < 2*time.Second || d > 5*time.Second || joined.From.Nanosecond() != 0 {
			t.Errorf("b takes part from %v, in %v", joined.From, d)
		}
		return true
	})()
	all, err := f.instances("p")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d instances: %v", len(all), err)
	}
	if i := all[1].Instance; i.Name != "b b/ü" || i.PID != os.Getpid() || i.Version != buildinfo.Version() || i.Attempt != 0 || all[1].Report == nil {
		t.Errorf("b's key says %+v, and its report %v", i, all[1].Report)
	}
	f.set("p", "20/s")
	await.Until(t, "both see the new limit", func() bool {
		twenty := func(r *recorder) bool { return r.view.Policy.Limits[0].Permits == 20 }
		return a.is(twenty)() && b.is(twenty)()
	})
	if err := leave(); err != nil {
		t.Error(err)
	}
	await.Until(t, "a sees b go", a.is(members(1)))
	if !b.is(func(r *recorder) bool { return r.closed })() {
		t.Error("b's sink was not closed")
	}
	before := a.told().proof
	await.Until(t, "proofs go on", a.is(func(r *recorder) bool { return r.proof.Mono > before }))
	if got := a.told().log; got != "reset 1,put,policy,put,deleted" {
		t.Errorf("a was told %q", got)
	}
}

func TestProofsComeInAQuietStoreAndInABusyOne(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "proofs while nothing happens", a.is(func(r *recorder) bool { return r.proofs > 5 }))
	stop, done := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for stop.Err() == nil {
			_, _ = f.client.Put(stop, f.prefix+"noise", "x")
		}
	})
	before := a.told().proofs
	await.Until(t, "proofs while other keys change", a.is(func(r *recorder) bool { return r.proofs > before+5 }))
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
		await.Until(t, fmt.Sprint("a proof for provider ", i), r.is(proved))
	}
	again, leave := f.subscribe(s, "p/3")
	if again != sinks[3] {
		t.Error("a provider that is opened twice has two sinks")
	}
	if err := errors.Join(leave(), leave()); err != nil {
		t.Error(err)
	}
	if again.is(func(r *recorder) bool { return r.closed })() {
		t.Error("closing one of two subscriptions closed the sink")
	}
}

func TestACompactionWhileAwayStartsTheHistoryAnew(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", a.is(proved))
	lost := s.deaf() // as if the watch had been lost here
	f.set("other", "10/s")
	f.set("other", "20/s")
	r, err := f.client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Compact(t.Context(), r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	lost.end()
	await.Until(t, "a new history", a.is(func(r *recorder) bool { return len(r.log) == 2 && r.log[1] == "reset 1" && r.proofs > 0 }))
}

func TestALostLeaseMeansANewIncarnation(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{TTL: 2 * time.Second})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", a.is(proved))
	old := a.told().self
	s.mu.Lock()
	id := clientv3.LeaseID(s.mu.Lease().ID)
	s.mu.Unlock()
	if _, err := f.client.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a new incarnation", a.is(func(r *recorder) bool { return r.self != old && r.proofs > 0 }))
	if log := a.told().log; !strings.HasPrefix(log, "reset 1,deleted,reset 1") {
		t.Errorf("was told %q: the share must be 0 from the deletion on", log)
	}
}

func TestADeletedKeyMeansANewIncarnation(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", a.is(proved))
	old := a.told().self
	if _, err := f.client.Delete(t.Context(), f.keys.Instance("p", old)); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a new incarnation", a.is(func(r *recorder) bool { return r.self != old && r.proofs > 0 }))
}

func TestABrokenPolicyLeavesTheLastGoodOneInForce(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", a.is(proved))
	key := f.keys.Policy("p")
	if _, err := f.client.Put(t.Context(), key, `{"schema":1,"limits":[`); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the problem is told", a.is(func(r *recorder) bool {
		return r.trouble != nil && strings.Contains(r.trouble.Error(), "stays in force") && r.view.Policy.Limits[0].Permits == 10
	}))
	if s, err := f.admin.Get(t.Context(), "p"); err != nil || s.Problem == nil {
		t.Errorf("operators are told nothing: %+v, %v", s, err)
	}
	f.set("p", "30/s")
	await.Until(t, "it is mended", a.is(func(r *recorder) bool { return r.trouble == nil && r.view.Policy.Limits[0].Permits == 30 }))
}

// TestANewcomerUnderABrokenPolicyWaitsForAGoodOne: it cannot know the one that the
// others still hold, so it issues nothing and says so, until a good one is set.
func TestANewcomerUnderABrokenPolicyWaitsForAGoodOne(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{Name: "a"})
	a, _ := f.subscribe(s, "p")
	b, _ := f.subscribe(f.join(Options{Name: "b"}), "p")
	await.Until(t, "both are there", func() bool { return a.is(members(2))() && b.is(members(2))() })
	if _, err := f.client.Put(t.Context(), f.keys.Policy("p"), `{"schema":1,"limits":[`); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	id := clientv3.LeaseID(s.mu.Lease().ID)
	s.mu.Unlock()
	old := a.told().self
	if _, err := f.client.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a is there anew, without a policy, and says so", a.is(func(r *recorder) bool {
		return r.self != old && r.view.Policy == nil && r.proofs > 0 && r.trouble != nil && strings.Contains(r.trouble.Error(), "policy")
	}))
	await.Until(t, "b holds the last good one, and counts a", b.is(func(r *recorder) bool {
		return r.view.Policy != nil && r.view.Policy.Limits[0].Permits == 10 && len(r.view.Instances) == 2
	}))
	f.set("p", "30/s")
	for _, r := range []*recorder{a, b} {
		await.Until(t, "both have the good one, and no trouble", r.is(func(r *recorder) bool {
			return r.trouble == nil && r.view.Policy != nil && r.view.Policy.Limits[0].Permits == 30
		}))
	}
}

func TestThreeMembersSurviveTheirLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	t.Parallel()
	cluster, client := etcdtest.New(t, embedded.Options{Members: 3})
	f := setupOn(t, client)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", a.is(proved))
	leader := -1
	await.Until(t, "a leader is known", func() bool {
		leader = cluster.Leader(t.Context())
		return leader >= 0
	})
	cluster.Stop(leader)
	at := time.Now()
	mark := a.told().proof
	await.Until(t, "proofs under the new leader", a.is(func(r *recorder) bool { return r.proof.Mono > mark+int64(time.Second) }))
	t.Logf("proved again %v after the leader was stopped", time.Since(at))
	if log := a.told().log; log != "reset 1" {
		t.Errorf("was told %q: the history must go on", log)
	}
}

func TestAnInstanceFindsBackAfterEtcdWasAway(t *testing.T) {
	t.Parallel()
	cluster, client := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, client)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{TTL: 30 * time.Second}), "p")
	await.Until(t, "a proof", a.is(proved))
	self := a.told().self
	cluster.Stop(0)
	await.Until(t, "the trouble is told", a.is(func(r *recorder) bool { return r.trouble != nil }))
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	mark := a.told().proof
	await.Until(t, "proofs again", a.is(func(r *recorder) bool { return r.proof.Mono > mark && r.trouble == nil }))
	if log := a.told().log; log != "reset 1" || a.told().self != self {
		t.Errorf("was told %q: nothing was lost, so the history must go on", log)
	}
}

func TestAHandWrittenInstanceKeyTakesPart(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", a.is(proved))
	if _, err := f.client.Put(t.Context(), f.keys.Instances("p")+"foreign", "not json"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it takes part, and is told of", a.is(func(r *recorder) bool { return len(r.view.Instances) == 2 && r.trouble != nil }))
	all, err := f.instances("p")
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if b, _ := json.Marshal(all[0]); all[0].Problem == nil && all[1].Problem == nil {
		t.Errorf("operators do not see the problem: %s", b)
	}
}
