package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// One server serves all tests that do not stop it; each has a prefix of its own.
var server *etcdtest.Cluster

func TestMain(m *testing.M) {
	var err error
	if server, err = etcdtest.Start(etcdtest.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	// The server's own goroutines are many; ours must be gone.
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, ours := range []string{"coordinator.(*Session)", "coordinator.(*place)"} {
		if i := bytes.Index(stacks, []byte(ours)); i >= 0 && code == 0 {
			fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", stacks[max(0, i-500):min(len(stacks), i+1500)])
			code = 1
		}
	}
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

var quiet = slog.New(slog.DiscardHandler)

// recorder is a sink that remembers what it was told.
type recorder struct {
	mu      sync.Mutex
	log     []string
	self    string
	view    quota.View
	proofs  int
	proof   clock.Instant
	trouble error
	until   int64
	closed  bool
}

func (r *recorder) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

func (r *recorder) Reset(_ clock.Instant, self string, v quota.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self, r.view, r.proofs = self, v, 0
	r.note("reset %d", len(v.Instances))
}

func (r *recorder) Apply(_ clock.Instant, c quota.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Revision <= r.view.Revision {
		r.note("revision %d after %d", c.Revision, r.view.Revision)
	}
	r.view.Revision = c.Revision
	if c.Policy != nil || c.PolicyDeleted {
		r.view.Policy = c.Policy
		r.note("policy")
	}
	for _, i := range c.Put {
		r.view.Instances = slices.DeleteFunc(r.view.Instances, func(o quota.Instance) bool { return o.ID == i.ID })
		r.view.Instances = append(r.view.Instances, i)
		r.note("put")
	}
	for _, id := range c.Deleted {
		r.view.Instances = slices.DeleteFunc(r.view.Instances, func(o quota.Instance) bool { return o.ID == id })
		r.note("deleted")
	}
}

func (r *recorder) Prove(sent clock.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proofs++
	r.proof = sent
}

func (r *recorder) Announce(until int64) { r.mu.Lock(); defer r.mu.Unlock(); r.until = until }
func (r *recorder) Trouble(err error)    { r.mu.Lock(); defer r.mu.Unlock(); r.trouble = err }
func (r *recorder) Close()               { r.mu.Lock(); defer r.mu.Unlock(); r.closed = true }

func (r *recorder) Report(clock.Instant) quota.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return quota.Report{Schema: 1, State: quota.StateActive, Revision: r.view.Revision}
}

// told is what a recorder was told up to now.
type told struct {
	log    string
	self   string
	proof  int64
	proofs int
	until  int64
	closed bool
}

func (r *recorder) told() told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return told{strings.Join(r.log, ","), r.self, r.proof.Mono, r.proofs, r.until, r.closed}
}

// is reports a condition on the recorder under its lock.
func (r *recorder) is(f func(r *recorder) bool) func() bool {
	return func() bool { r.mu.Lock(); defer r.mu.Unlock(); return f(r) }
}

// eventually waits for a condition; 30 s is far more than any of them needs.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s for: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

type fixture struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	admin  *Admin

	sessions []*Session
}

func setup(t *testing.T) *fixture { return setupOn(t, etcdtest.NewClient(t, server)) }

func setupOn(t *testing.T, client *clientv3.Client) *fixture {
	t.Helper()
	f := &fixture{t: t, client: client, prefix: "/" + strings.ReplaceAll(t.Name(), "/", "-") + "/"}
	admin, err := NewAdmin(client, AdminOptions{Prefix: f.prefix, Author: "ann@host"})
	if err != nil {
		t.Fatal(err)
	}
	f.admin = admin
	return f
}

func (f *fixture) set(provider, limits string) Stored {
	f.t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := f.admin.Put(f.t.Context(), provider, quota.Policy{Limits: l}, AnyRevision)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) join(o Options) *Session {
	f.t.Helper()
	o.Prefix, o.Logger = f.prefix, quiet
	s, err := Join(f.t.Context(), f.client, o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.sessions = append(f.sessions, s)
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return s
}

func (f *fixture) subscribe(s *Session, provider string) (*recorder, feed.Subscription) {
	f.t.Helper()
	sub, err := s.Subscribe(provider, func() feed.Sink { return &recorder{} })
	if err != nil {
		f.t.Fatal(err)
	}
	return sub.Sink().(*recorder), sub
}

func proved(r *recorder) bool { return r.proofs > 0 }

func members(n int) func(*recorder) bool {
	return func(r *recorder) bool { return len(r.view.Instances) == n }
}

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
		if joined.Name != "b b/ü" || joined.PID != os.Getpid() || joined.Weight != 1 || joined.Version != Version {
			t.Errorf("b's key says %+v", joined)
		}
		// Announced: not before S + 2e from now, at a window's boundary.
		if d := time.Until(joined.From); d < 2*time.Second || d > 5*time.Second || joined.From.Nanosecond() != 0 {
			t.Errorf("b takes part from %v, in %v", joined.From, d)
		}
		return true
	})()
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
	s.tracker.List(1, 0, nil) // as if the watch had been lost at revision 1
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

// only returns the place behind a recorder.
func (f *fixture) only(r *recorder) *place {
	f.t.Helper()
	for _, s := range f.sessions {
		for _, p := range s.all() {
			if p.sink == feed.Sink(r) {
				return p
			}
		}
	}
	f.t.Fatal("no place has this sink")
	return nil
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

func TestReportsAreWrittenUnderTheLease(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{Name: "a"})
	a, _ := f.subscribe(s, "p")
	eventually(t, "a report", func() bool {
		all, err := f.admin.Instances(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == 1 && all[0].Report != nil && all[0].Report.State == quota.StateActive && all[0].Instance.ID == a.told().self
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := f.client.Get(t.Context(), f.prefix+"reports/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 0 {
		t.Errorf("%d reports are left, %v", len(r.Kvs), err)
	}
}

func TestReportsAreFew(t *testing.T) {
	r := func(used int64, state quota.State) *quota.Report { return &quota.Report{Used: used, State: state} }
	with := func(used int64, instances int) *quota.Report {
		return &quota.Report{Used: used, State: quota.StateActive, Instances: instances}
	}
	long := func(used int64) *quota.Report {
		return &quota.Report{Used: used, State: quota.StateStale, Instances: 2, Window: 4 * time.Second}
	}
	var l reporting
	const s = int64(time.Second)
	for _, step := range []struct {
		at     int64
		report *quota.Report
		want   bool
	}{
		{s, r(0, quota.StateJoining), true},
		{2 * s, r(0, quota.StateJoining), false},
		{3 * s, r(0, quota.StateActive), true},       // the state
		{4 * s, r(1000, quota.StateActive), false},   // the rate, but too soon
		{8 * s, r(5000, quota.StateActive), true},    // the rate
		{14 * s, r(11100, quota.StateActive), false}, // about the same rate
		{37 * s, r(34000, quota.StateActive), false},
		{38 * s, r(35000, quota.StateActive), true}, // 30 s
		{40 * s, with(37000, 2), false},             // the instances, but too soon
		{43 * s, with(40000, 2), true},
		{45 * s, long(42000), true},  // the state
		{51 * s, long(52000), false}, // the rate, but too few windows
		{65 * s, long(76000), true},
	} {
		due, rate := l.due(step.report, step.at)
		if due != step.want {
			t.Errorf("at %ds: due %v, want %v", step.at/s, due, step.want)
		}
		if due {
			l.last, l.at, l.rate = *step.report, step.at, rate
		}
	}
	l.watchd = true
	if due, _ := l.due(long(76000), 66*s); !due {
		t.Error("somebody looks, and nothing is reported")
	}
}

func TestJoinWithoutEtcdFailsSoonAndSaysWhy(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	start := time.Now()
	_, err = Join(t.Context(), client, Options{Logger: quiet})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want ErrUnreachable with the endpoint", err)
	}
	if d := time.Since(start); d > 8*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestJoinRefusesBadOptions(t *testing.T) {
	f := setup(t)
	for _, o := range []Options{{TTL: time.Second}, {TTL: time.Hour}, {Probe: time.Millisecond}, {Weight: -1}, {Name: strings.Repeat("x", 200)}, {Prefix: "no-slash"}, {NTP: []string{"a", "a"}}, {NTP: []string{"a:b:c"}}, {NTPInterval: time.Hour}} {
		if s, err := Join(t.Context(), f.client, o); err == nil {
			t.Errorf("%+v was taken", o)
			_ = s.Close()
		}
	}
}

func TestOldServersAreRefused(t *testing.T) {
	for version, good := range map[string]bool{
		"3.4.38": false, "3.5.21": false, "3.5.22": true, "3.5.30": true, "3.6.0": false, "3.6.1": false,
		"3.6.2": true, "3.6.2-rc.0": true, "3.7.0": true, "4.0.0": true, "what": false,
	} {
		err := checkVersionsOf(t.Context(), []string{"e"}, func(context.Context, string) (string, error) { return version, nil })
		if (err == nil) != good {
			t.Errorf("version %s: %v", version, err)
		}
		if err != nil && !strings.Contains(err.Error(), version) {
			t.Errorf("%v does not name the version", err)
		}
	}
	one := func(_ context.Context, e string) (string, error) {
		if e == "down" {
			return "", errors.New("down")
		}
		return "3.7.3", nil
	}
	if err := checkVersionsOf(t.Context(), []string{"down", "up"}, one); err != nil {
		t.Errorf("one of two members is down: %v", err)
	}
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
