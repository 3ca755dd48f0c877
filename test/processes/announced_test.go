//go:build e2e

package processes

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// workerRole is that of a process that is a worker.
const workerRole = "worker"

// worker is a process with several instances, each with a session of its own.
type worker struct {
	Endpoints []string
	Provider  string
	Number    int
	Instances int
}

// counts are an instance's permits, by the start of their window.
type counts map[int64]int64

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	child.Be(workerRole, worker.work)
	child.Be(callerRole, caller.work)
	child.Be(tenantsRole, tenants.work)
	os.Exit(m.Run())
}

var quiet = slog.New(slog.DiscardHandler)

func dial(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: etcdlog.New(quiet)})
}

// report is what a worker tells: that all instances are active, and at last what they
// used.
type report struct {
	Ready bool
	Used  []use
}

// work takes whatever the instances may take until the orders end.
func (w worker) work(orders <-chan struct{}, tell func(report)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := dial(w.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	used := make([]use, w.Instances)
	var all, ready sync.WaitGroup
	for i := range used {
		s, err := coordinator.Join(ctx, client, coordinator.Options{Name: fmt.Sprintf("worker-%d-%d", w.Number, i), Logger: quiet, Lazy: true})
		if err != nil {
			return err
		}
		defer s.Close()
		l, err := consumer.Open(ctx, s, w.Provider, consumer.Options{Logger: quiet})
		if err != nil {
			return err
		}
		ready.Add(1)
		all.Go(func() {
			err := l.Ready(ctx)
			ready.Done()
			if err == nil {
				used[i] = take(ctx, l)
			}
		})
	}
	go func() {
		ready.Wait()
		tell(report{Ready: true})
	}()
	<-orders
	cancel()
	all.Wait()
	tell(report{Used: used})
	return nil
}

// use is what an instance got of its windows, by their starts.
type use struct {
	Taken counts
	Spent map[int64]bool // it was refused a permit well within the window: it had taken all
}

// take takes every permit as it comes.
func take(ctx context.Context, l *consumer.Limiter) use {
	u := use{counts{}, map[int64]bool{}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for {
			asked := time.Now()
			p, err := l.Take(ctx, 1, 0)
			if err != nil {
				start := asked.Truncate(window)
				if asked.Sub(start) > window/10 && time.Since(start) < window*9/10 {
					u.Spent[start.UnixNano()] = true
				}
				break
			}
			u.Taken[p.Start().UnixNano()]++
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return u
}

const (
	provider  = "payments/charge"
	processes = 4
	each      = 24 // instances of a process
	fleet     = processes * each
	rounds    = 20
	window    = 500 * time.Millisecond
)

// startWorkers returns when all instances are active. stop returns what each used.
func startWorkers(t *testing.T, endpoints []string) (stop func() []use) {
	t.Helper()
	ready := make(chan struct{}, processes)
	used := make([][]use, processes)
	var all []*child.Process
	for n := range processes {
		p, err := child.Start(workerRole, worker{Endpoints: endpoints, Provider: provider, Number: n, Instances: each}, func(r report) {
			if used[n] = r.Used; r.Ready {
				ready <- struct{}{}
			}
		}, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		all = append(all, p)
	}
	for range processes {
		<-ready
	}
	return func() []use {
		for _, p := range all {
			if err := p.Close(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		return slices.Concat(used...)
	}
}

// tool builds quota-admin and returns a function that runs it, and reports whether the
// change was made: one that is announced too late is refused.
func tool(t *testing.T, endpoints []string) func(args ...string) bool {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "quota-admin")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/quota-admin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return func(args ...string) bool {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "QUOTIENT_ENDPOINTS="+strings.Join(endpoints, ","))
		out, err := cmd.CombinedOutput()
		late := strings.Contains(string(out), "is too near: announce a change")
		if err != nil && !late {
			t.Fatalf("quota-admin %v: %v\n%s", args, err, out)
		}
		return err == nil
	}
}

// TestAnAnnouncedLimitIsInForceInOneWindowEverywhere announces 20 changes, up and
// down, to 96 instances in 4 processes, by the tool. Every instance must issue
// its old share in every window before, and its new share from the first window
// on that starts at the announced time or later; or less only in a window in which it
// was not refused any, since this machine did not let its process run.
func TestAnAnnouncedLimitIsInForceInOneWindowEverywhere(t *testing.T) {
	cluster, _ := etcdtest.New(t, embedded.Options{Slow: true})
	admin := tool(t, cluster.Endpoints())
	share := func(round int) int64 { return 10 + 10*int64(round%2) } // of each instance
	limit := func(round int) string { return strconv.FormatInt(share(round)*fleet, 10) + "/" + window.String() }
	admin("set", provider, limit(0), "--lend", "off") // shares are told apart by what is issued
	stop := startWorkers(t, cluster.Endpoints())
	// Settled: the last joiner's From has come.
	wait(t, time.Now().Add(5*time.Second))
	var flips []time.Time
	for round := 1; round <= rounds; round++ {
		var at time.Time
		for lead := 4 * time.Second; ; lead *= 2 { // a busy machine may take long to run the tool
			// Not always at a boundary: the first window after it counts.
			at = time.Now().Add(lead).Truncate(window).Add(time.Duration(round%3) * 50 * time.Millisecond)
			if admin("set", provider, limit(round), "--lend", "off", "--at", at.UTC().Format(time.RFC3339Nano), "--reason", fmt.Sprintf("round %d", round)) {
				break
			}
		}
		if r := at.Truncate(window); r.Before(at) {
			at = r.Add(window)
		}
		flips = append(flips, at)
		wait(t, at.Add(3*window))
	}
	all := stop()
	if len(all) != fleet {
		t.Fatalf("%d instances, want %d", len(all), fleet)
	}
	good, windows, whole := 0, 0, 0
	for i, at := range flips {
		round, fine := i+1, true
		for start := at.Add(-3 * window); start.Before(at.Add(2 * window)); start = start.Add(window) {
			want := share(round - 1)
			if !start.Before(at) {
				want = share(round)
			}
			for n, u := range all {
				got := u.Taken[start.UnixNano()]
				if got > want || got < want && u.Spent[start.UnixNano()] {
					t.Errorf("round %d: instance %d issued %d permits in the window %v after the change, want %d", round, n, got, start.Sub(at), want)
					fine = false
				}
				windows++
				if got == want {
					whole++
				}
			}
		}
		if fine {
			good++
		}
	}
	t.Logf("%d of %d changes were in force in the same window on all %d instances in %d processes; %d of %d shares were issued whole, the others were not asked for", good, rounds, fleet, processes, whole, windows)
	if whole < windows/2 {
		t.Error("that shows too little: this machine is too busy")
	}
}

func wait(t *testing.T, until time.Time) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(time.Until(until)):
	}
}
