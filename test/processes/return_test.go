//go:build e2e && linux

package processes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// tenantsRole is that of a process with one session and many providers.
const tenantsRole = "tenants"

type tenants struct {
	Endpoints []string
	Number    int
	Providers int
}

func (w tenants) name(i int) string { return fmt.Sprintf("tenant/%04d", i) }

// standing is what a process says of its limiters.
type standing struct{ Active bool }

// work opens a limiter of every provider and tells ten times a second whether all are active.
// While the first that was not is not, it looks at no other: to look at a thousand takes more
// processor time than to have them active again.
func (w tenants) work(orders <-chan struct{}, tell func(standing)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := dial(w.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := coordinator.Join(ctx, client, coordinator.Options{Name: fmt.Sprintf("tenants-%d", w.Number), Logger: quiet, Lazy: true})
	if err != nil {
		return err
	}
	defer s.Close()
	var all []*consumer.Limiter
	for i := range w.Providers {
		l, err := consumer.Open(ctx, s, w.name(i), consumer.Options{Logger: quiet})
		if err != nil {
			return err
		}
		all = append(all, l)
	}
	inactive := func(l *consumer.Limiter) bool { return l.Status().State != quota.StateActive }
	first := 0 // that was not active at the last look
	for look := time.NewTicker(100 * time.Millisecond); ; {
		active := false
		if !inactive(all[first]) {
			first = slices.IndexFunc(all, inactive)
			active, first = first < 0, max(0, first)
		}
		tell(standing{active})
		select {
		case <-orders:
			return nil
		case <-look.C:
		}
	}
}

// soon is within what time everybody has a share again after a fault has gone.
const soon = 10 * time.Second

// TestAWholeFleetReturns starts a fleet at once, takes etcd away, its leader, and a process.
// Under the outage rule stop nobody issues anything without etcd. Each time all limiters of
// all providers must be active again soon. E2E_PROVIDERS lists the numbers of providers.
func TestAWholeFleetReturns(t *testing.T) {
	for size := range strings.SplitSeq(cmp.Or(os.Getenv("E2E_PROVIDERS"), "100"), ",") {
		providers, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(size, func(t *testing.T) { fleetReturns(t, providers) })
	}
}

func fleetReturns(t *testing.T, providers int) {
	const processes = 3
	etcd, client := etcdtest.New(t, embedded.Options{Members: 3, Processes: true, Slow: true})
	w := tenants{Endpoints: etcd.Endpoints(), Providers: providers}
	operator, err := admin.New(client, admin.Options{Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range providers {
		names = append(names, w.name(i))
	}
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}, Outage: quota.OutageStop}
	for some := range slices.Chunk(names, 32) {
		if _, err := operator.Update(t.Context(), some, func(old []admin.Stored) ([]*quota.Policy, error) {
			return slices.Repeat([]*quota.Policy{&policy}, len(old)), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	var active [processes]atomic.Bool
	var all [processes]*child.Process
	// back waits until everybody is active, and says how long that took.
	back := func(fault string, gone time.Time) {
		t.Helper()
		await.Until(t, "all are active "+fault, func() bool {
			for i := range active {
				if !active[i].Load() {
					return false
				}
			}
			return true
		})
		took := time.Since(gone)
		if t.Logf("%d processes with %d providers each are active %v %s", processes, providers, took.Round(100*time.Millisecond), fault); took > soon {
			t.Errorf("that is more than %v", soon)
		}
	}
	// away waits until a process is without a share: the fault is felt.
	away := func(process int) {
		t.Helper()
		await.Until(t, fmt.Sprintf("process %d feels the fault", process), func() bool { return !active[process].Load() })
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	began := time.Now()
	for i := range all {
		w.Number = i
		all[i], err = child.Start(tenantsRole, w, func(s standing) { active[i].Store(s.Active) }, func(err error) { t.Error(err) })
		must(err)
		t.Cleanup(all[i].Kill)
	}
	back("after their start", began)

	for i := range 3 {
		must(etcd.Pause(i))
	}
	wait(t, time.Now().Add(30*time.Second))
	for i := range all {
		away(i)
	}
	for i := range 3 {
		must(etcd.Resume(i))
	}
	back("after etcd was away for 30 s", time.Now())

	leader := -1
	await.Until(t, "a leader is known", func() bool {
		leader = etcd.Leader(t.Context())
		return leader >= 0
	})
	must(etcd.Kill(leader))
	wait(t, time.Now().Add(5*time.Second))
	must(etcd.Restart(leader))
	back("after etcd's leader was lost for 5 s", time.Now())

	must(all[0].Pause())
	wait(t, time.Now().Add(10*time.Second))
	active[0].Store(false) // what it says now
	must(all[0].Resume())
	back("after a process was stopped for 10 s", time.Now())

	for _, p := range all {
		must(p.Close(time.Minute))
	}
}
