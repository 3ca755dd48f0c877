package coordinator

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// heap returns the bytes of live objects, of the embedded etcd too.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLargeKeysAndValuesFillNoMemory: somebody with a consumer's rights writes names
// and values of 1.4 MB. Neither an instance nor an operator keeps any of that.
func TestLargeKeysAndValuesFillNoMemory(t *testing.T) {
	const (
		large = 1400 << 10
		most  = 8 << 20
		n     = 10 // more than may be kept
	)
	f := setup(t)
	f.set("p", "100/s")
	flood := func() {
		t.Helper()
		for i := range n {
			for _, key := range []string{
				f.keys.Instance("p", fmt.Sprint("value", i)),
				f.keys.Report("p", fmt.Sprint("value", i)),
			} {
				if _, err := f.client.Put(t.Context(), key, strings.Repeat("x", large)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.client.Put(t.Context(), f.keys.Instances("p")+fmt.Sprint(i, strings.Repeat("x", large)), "{}"); err != nil {
				t.Fatal(err)
			}
		}
	}
	flood()
	before := heap()
	var log bytes.Buffer // its handler locks it
	s := f.join(Options{TTL: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", a.is(proved))
	if !a.is(members(n + 1))() {
		t.Errorf("an instance with too large a value takes part, and a name that is too long is none: %d instances", len(a.view.Instances))
	}
	if kept := heap() - before; kept > most {
		t.Errorf("the instance keeps %d MB of a listing", kept>>20)
	}
	fleet, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
	if err != nil || len(fleet.Instances) != n+1 {
		t.Fatalf("%d instances, %v", len(fleet.Instances), err)
	}
	if kept := heap() - before; kept > most {
		t.Errorf("the operator keeps %d MB of a fleet", kept>>20)
	}
	if all, err := f.admin.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d policies, %v", len(all), err)
	}
	if kept := heap() - before; kept > most {
		t.Errorf("the operator keeps %d MB of a list", kept>>20)
	}
	for _, s := range fleet.Instances {
		if s.Problem != nil && len(s.Problem.Error()) > 1000 {
			t.Errorf("a problem of %d bytes", len(s.Problem.Error()))
		}
	}
	runtime.KeepAlive(fleet)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "coordinator: register") { // by the third transaction it is
		t.Errorf("it is registered, and logs\n%s", &log)
	}
}

// TestAHistoryThatIsTooLargeBeginsAnew: a watch that has 28 MB to tell at once is
// refused, and the keys are listed in its place, before a second watch is.
func TestAHistoryThatIsTooLargeBeginsAnew(t *testing.T) {
	f := setup(t)
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Timing: quota.Timing{Settle: time.Minute}} // no silence raises a doubt
	if _, err := f.admin.Put(t.Context(), "p", policy); err != nil {
		t.Fatal(err)
	}
	s := f.join(Options{})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", a.is(proved))
	lost := s.deaf() // as if the watch had been lost before
	large := strings.Repeat("x", 1400<<10)
	for range 20 {
		if _, err := f.client.Put(t.Context(), f.prefix+"providers/p/other", large); err != nil {
			t.Fatal(err)
		}
	}
	resets := func() int { return strings.Count(a.told().log, "reset") }
	had, watches := resets(), map[*stream]bool{} // watches of the history that is too large
	lost.end()
	await.Until(t, "a new history, or a second watch", func() bool {
		s.mu.Lock()
		open, from := s.onlyWatch().open, s.onlyWatch().line.From()
		s.mu.Unlock()
		if from > 0 && open != lost {
			watches[open] = true
		}
		return from == 0 || resets() > had || len(watches) > 1
	})
	if len(watches) > 1 {
		t.Fatal("the watch was opened again where it was")
	}
	await.Until(t, "a new history", func() bool { return resets() > had })
	seen := a.told().proofs
	await.Until(t, "it is proved", a.is(func(r *recorder) bool { return r.proofs > seen }))
}

// TestTheBoundOfProviders: the error names the value, the bound and the way out, and
// nothing is written.
func TestTheBoundOfProviders(t *testing.T) {
	s := &Session{keys: layout, ctx: t.Context(), o: settings{Options: Options{Logger: quiet}, Clock: clock.New()}}
	s.begin()
	s.mu.Step(session.Opened{}, session.Instant{}) // nobody follows its line
	open := func(provider string) error {
		_, _, err := s.subscribe(provider, func() feed.Sink { return &recorder{} })
		return err
	}
	for i := range maxProviders {
		if err := open(fmt.Sprint("p/", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("p/0"); err != nil {
		t.Errorf("a provider that is there: %v", err)
	}
	if err := open("q"); err == nil || !strings.Contains(err.Error(), "provider 1001 of this session, the most is 1000: open a second session") {
		t.Errorf("one more: %v", err)
	}
}

// TestTheBoundOfInstances: a provider beyond it is not registered, and says why.
func TestTheBoundOfInstances(t *testing.T) {
	f := setup(t)
	const each = session.MaxCounted
	var puts []clientv3.Op
	names := []string{}
	for i := range session.MaxSessionInstances/each + 1 {
		names = append(names, fmt.Sprintf("p%02d", i))
		for k := range each {
			puts = append(puts, clientv3.OpPut(f.keys.Instance(names[i], fmt.Sprint("other.", k)), `{"schema":1,"name":"a"}`))
		}
	}
	for some := range slices.Chunk(puts, 100) {
		if err := f.write(clientv3.OpTxn(nil, some, nil)); err != nil {
			t.Fatal(err)
		}
	}
	s := f.join(Options{TTL: time.Minute})
	var all []*recorder
	for _, name := range names {
		r, _ := f.subscribe(s, name)
		all = append(all, r)
	}
	refused := func(r *recorder) bool {
		return r.trouble != nil && strings.Contains(r.trouble.Error(), "have 22000 instances in all, the most is 20000: use fewer")
	}
	listed := func(r *recorder) bool { return len(r.log) > 0 }
	n := 0
	for i, r := range all {
		await.Until(t, "it is there, or says why not", r.is(func(r *recorder) bool { return listed(r) || refused(r) }))
		if r.is(listed)() {
			continue
		}
		n++
		got, err := f.client.Get(t.Context(), f.keys.Reports(names[i]), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count != 0 {
			t.Errorf("%s has %d reports, %v", names[i], got.Count, err)
		}
	}
	if n != 1 {
		t.Errorf("%d are refused, want 1", n)
	}
}
