//go:build e2e && linux

package faults

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	window  = time.Second
	workers = 3 // hosts
	each    = 2 // instances on each
	fleet   = workers * each
	// leaseTTL is the default of coordinator.Options.TTL: so long a killed instance stays in view.
	leaseTTL = 5 * time.Second
)

// world is the hosts and servers that all scenarios share.
type world struct {
	store         // of three members
	single  store // of one
	t       *testing.T
	log     io.Writer
	fabric  *fabric
	workers []*host
	times   *timeServers
	witness *witness
}

// store is a cluster of etcd and what this process uses it by.
type store struct {
	etcd   *cluster
	client *clientv3.Client
	admin  *admin.Client
}

func (w *world) newStore(t *testing.T, first byte, members int) (s store) {
	t.Helper()
	s.etcd = newCluster(t, w.fabric, w.log, first, members)
	var err error
	if s.client, err = clientv3.New(clientv3.Config{Endpoints: s.etcd.endpoints(), DialTimeout: 2 * time.Second, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close() })
	if s.admin, err = admin.New(s.client, admin.Options{Author: "e2e"}); err != nil {
		t.Fatal(err)
	}
	return s
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log, err := os.Create(filepath.Join(os.TempDir(), "quotient-e2e.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the processes' log is %s", log.Name())
	t.Cleanup(func() { _ = log.Close() })
	w := &world{t: t, log: log, fabric: &fabric{ports: map[[4]byte]*port{}}}
	t.Cleanup(w.fabric.close)
	// This process has an address too, to set policies and to ask who leads.
	own := [4]byte{10, 77, 0, 1}
	if err := w.fabric.attach("", own); err != nil {
		t.Fatal(err)
	}
	command(t, "ip", "addr", "add", "10.77.0.1/24", "dev", "wire")
	command(t, "ip", "link", "set", "wire", "up")
	w.store, w.single = w.newStore(t, 11, 3), w.newStore(t, 16, 1)
	for i := range workers {
		w.workers = append(w.workers, newHost(t, w.fabric, fmt.Sprintf("worker%d", i+1), byte(21+i)))
	}
	w.times = newTimeServers(t, w.fabric, log)
	w.witness = newWitness(t)
	return w
}

// scenario is one fault and what is promised of it.
type scenario struct {
	name   string
	limit  int64 // per window; 0 means 5000
	outage quota.Outage
	single bool          // etcd has one member
	guard  time.Duration // above 0: it covers the clocks and the way to the provider, and arrivals are judged
	// configure changes an instance's configuration.
	configure func(w *world, c *instanceConfig)
	// prepare is done before instances start.
	prepare func(r *run)
	// fault does its harm, and returns when it is over. nil: there is none.
	fault func(r *run)
	// calm is how long nothing happens before the fault; default 3 windows.
	calm time.Duration
	// most is the largest ratio of permits to the limit that is promised: 1 is
	// exact. 0: nothing is promised, it is measured.
	most float64
	// least is the least utilisation of settled windows; 0 means full. keeps is that of every
	// window from the fault's beginning until the recovery; rejoins, above 0, that of those which end
	// after etcd was started again, where instances whose keys are gone join anew.
	least, keeps, rejoins float64
	// within is how soon after the fault windows must be full; 0 means recoverWithin.
	within time.Duration
}

// run is a scenario that runs.
type run struct {
	*world
	scenario
	policy    quota.Policy
	provider  *process
	instances []*process
	configs   []instanceConfig
	socket    string
	restarted int64 // when a fault began to start etcd again, in Unix nanoseconds, if the scenario has rejoins
}

// launch starts instance i, which may have been there before: it is another
// incarnation then.
func (r *run) launch(i int) {
	r.instances[i] = r.workers[i/each].run("instance", r.configs[i], r.log)
}

// kill kills instance i, and says so: its trace ends without it having closed.
func (r *run) kill(i int) {
	r.instances[i].Kill()
	if err := trace.Killed(r.configs[i].Trace, r.instances[i].PID); err != nil {
		r.t.Error(err)
	}
}

// close has instance i end in good order.
func (r *run) close(i int) {
	if err := r.instances[i].Close(10 * time.Second); err != nil { // it was killed
		r.t.Log(err)
		r.kill(i)
	}
}

func (r *run) awaitReady(which ...int) {
	r.t.Helper()
	for _, i := range which {
		if err := r.instances[i].await(30 * time.Second); err != nil {
			r.t.Fatalf("instance %d: %v", i+1, err)
		}
	}
}

// all are the numbers of the instances on hosts.
func all(hosts ...int) (which []int) {
	for _, h := range hosts {
		for i := range each {
			which = append(which, h*each+i)
		}
	}
	return which
}

// run plays a scenario and measures it.
func (w *world) run(t *testing.T, s scenario) result {
	t.Helper()
	fmt.Fprintf(w.log, "\n=== %s\n", s.name)
	if s.within == 0 {
		s.within = recoverWithin
	}
	if s.single {
		one := *w
		one.store, w = w.single, &one
	}
	if s.limit == 0 {
		s.limit = 5000
	}
	if s.calm == 0 {
		s.calm = 3 * window
	}
	if s.least == 0 {
		s.least = full
	}
	w.setTest(t)
	r := &run{world: w, scenario: s, instances: make([]*process, fleet), socket: filepath.Join(t.TempDir(), "provider")}
	r.policy = quota.Policy{Limits: []quota.Limit{{Permits: s.limit, Window: window}}, Outage: s.outage, Timing: quota.Timing{Guard: s.guard}}
	provider := "e2e/" + filepath.Base(t.Name())
	if _, err := w.admin.Put(t.Context(), provider, r.policy); err != nil {
		t.Fatal(err)
	}
	for i := range fleet {
		c := instanceConfig{Name: fmt.Sprintf("w%d-%d", i/each+1, i%each+1), ID: int64(i + 1), Endpoints: w.etcd.endpoints(), Provider: provider, Socket: r.socket, Chunk: max(1, s.limit/1000/fleet)}
		if s.configure != nil {
			s.configure(w, &c)
		}
		r.configs = append(r.configs, c)
	}
	traces := t.TempDir()
	for i := range r.configs {
		r.configs[i].Trace = traces
	}
	if s.prepare != nil {
		s.prepare(r)
	}
	r.provider = w.workers[0].run("provider", providerConfig{Socket: r.socket, Window: window}, w.log)
	if err := r.provider.await(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for i := range fleet {
		r.launch(i)
	}
	r.awaitReady(0, 1, 2, 3, 4, 5)
	active := time.Now().UnixNano()
	wait(s.calm)
	var fault span
	if s.fault != nil {
		fault.from = time.Now().UnixNano()
		s.fault(r)
		fault.to = time.Now().UnixNano()
		wait(recoverWithin + 2*window)
	} else {
		wait(5 * window)
	}
	end := time.Now().UnixNano()
	rec := r.end()
	m := measure(rec, s.limit, active, fault, r.restarted, end)
	m.name, m.outage, m.still = s.name, string(s.outage), w.witness.told(span{active - int64(5*time.Second), end})
	if s.fault != nil {
		m.fault = "yes"
	}
	m.check(s, rec)
	m.judge(trace.JudgeDir(traces))
	t.Log(m.trace)
	return m
}

// setTest gives what fails from now on to a scenario's own test.
func (w *world) setTest(t *testing.T) {
	w.t, w.etcd.t, w.single.etcd.t = t, t, t
	for _, h := range slices.Concat(w.etcd.hosts, w.single.etcd.hosts, w.workers) {
		h.t = t
	}
}

// end ends the instances, and then the provider, which writes its record.
func (r *run) end() *record {
	r.t.Helper()
	var all sync.WaitGroup
	for _, p := range r.instances {
		all.Go(func() { _ = p.Close(10 * time.Second) })
	}
	all.Wait()
	if err := r.provider.Close(10 * time.Second); err != nil || r.provider.record == nil {
		r.t.Fatalf("the provider's record: %v", err)
	}
	return r.provider.record
}

// judge takes in what the traces say: whether each window was within the bound that is
// proved, whatever the sum; where the policies and clocks promise one.
func (m *result) judge(r *trace.Report) {
	if m.trace = r.String(); r.Over > 0 || r.Problem != "" || r.Held == 0 {
		m.failed = append(m.failed, m.trace)
	}
}

// check holds the numbers against the promise.
func (m *result) check(s scenario, rec *record) {
	fail := func(format string, args ...any) { m.failed = append(m.failed, fmt.Sprintf(format, args...)) }
	switch {
	case s.most == 1:
		m.promise = "never over"
		if m.over > 0 {
			fail("%d windows over the limit, the worst by %.3f", m.over, m.ratio)
		}
	case s.most > 0:
		m.promise = fmt.Sprintf("at most %.2f times", s.most)
		if m.ratio > s.most {
			fail("a window with %.3f times the limit, at most %.3f are promised", m.ratio, s.most)
		}
	default:
		m.promise = "none"
	}
	if s.guard > 0 {
		m.promise += ", on the provider's clock too"
		if m.arrivedOver > 0 {
			fail("%d windows of the provider's clock over the limit, the worst by %.3f", m.arrivedOver, m.arrivedRatio)
		}
	}
	if s.most == 0 {
		return
	}
	slow := func(format string, args ...any) { m.slow = append(m.slow, fmt.Sprintf(format, args...)) }
	if !(m.settled >= s.least) {
		slow("settled utilisation %.3f, less than %.2f", m.settled, s.least)
	}
	if m.fault != "" && (m.recovered < 0 || m.recovered > s.within) {
		slow("recovered after %v, more than %v", m.recovered, s.within)
	}
	kept := m.dip
	if s.rejoins > 0 {
		kept = m.away
	}
	if m.fault != "" && kept < s.keeps {
		slow("a window with %.2f of the limit during the fault, less than %.2f", kept, s.keeps)
	}
	if m.dip < s.rejoins {
		slow("a window with %.2f of the limit while instances join anew, less than %.2f", m.dip, s.rejoins)
	}
}
