//go:build e2e && linux

package faults

import (
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// total is the limit of every provider here, and half of it that after a cut.
const total = 1_000_000

// crowd is how many limiters a fleet has at most: its size times its lanes. A
// change of one provider is told to each of the fleet; with a provider for each
// of 20 samples, 300 instances had not heard of each other after two minutes; with
// 1,200, each lane measured the work of the others.
const crowd = 400

// table is how many members of a fleet share a client, and so a connection.
const table = 16

// fleetOf is so many instances, each with a session of its own, of the providers
// of all lanes. They share this process.
type fleetOf struct {
	t         *testing.T
	size      int
	endpoints []string
	admin     *admin.Client
	members   []*guest
	took      latencies

	mu       sync.Mutex
	newest   map[string]int64 // revision, by provider
	writings map[string]int   // revisions that touched it
}

// count counts the revisions that touch a provider's keys.
func (f *fleetOf) count(client *clientv3.Client) {
	f.newest, f.writings = map[string]int64{}, map[string]int{}
	for r := range client.Watch(f.t.Context(), "/", clientv3.WithPrefix()) {
		f.mu.Lock()
		for _, e := range r.Events {
			_, rest, _ := strings.Cut(string(e.Kv.Key), "latency%2F")
			of, _, _ := strings.Cut(rest, "/")
			reports := strings.Contains(string(e.Kv.Key), "/reports/") // come anyway
			if !reports && f.newest[of] < e.Kv.ModRevision {
				f.newest[of] = e.Kv.ModRevision
				f.writings[of]++
			}
		}
		f.mu.Unlock()
	}
}

// guest is a process, as far as etcd can tell.
type guest struct {
	session  *coordinator.Session
	limiters []*consumer.Limiter
}

var quiet = slog.New(slog.DiscardHandler)

func (f *fleetOf) dial() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: f.endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// invite makes a guest that is an instance of the providers.
func (f *fleetOf) invite(client *clientv3.Client, providers ...string) (*guest, error) {
	s, err := join(f.t.Context(), client, coordinator.Options{Logger: quiet})
	if err != nil {
		return nil, err
	}
	g := &guest{session: s}
	for _, p := range providers {
		l, err := consumer.Open(f.t.Context(), s, p, consumer.Options{Logger: quiet})
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		g.limiters = append(g.limiters, l)
	}
	return g, nil
}

// gather lets the whole fleet join, some at a time: the next one begins when the
// one before it is in the view. All at once they would be hundreds of processes
// that start on one machine, which has to tell each of all the others.
func (f *fleetOf) gather(providers []string) {
	f.t.Helper()
	clients := make([]*clientv3.Client, (f.size+table-1)/table)
	for i := range clients {
		var err error
		if clients[i], err = f.dial(); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = clients[i].Close() })
	}
	f.members = make([]*guest, f.size)
	f.t.Cleanup(func() { f.together(func(i int) error { return f.members[i].session.Close() }) })
	f.together(func(i int) (err error) {
		if f.members[i], err = f.invite(clients[i/table], providers...); err != nil {
			return err
		}
		for _, l := range f.members[i].limiters {
			for l.Status().Instances == 0 {
				wait(sweepEvery)
			}
		}
		return nil
	})
}

// together does something for every member, some at a time.
func (f *fleetOf) together(do func(i int) error) {
	f.t.Helper()
	var group errgroup.Group
	group.SetLimit(4)
	for i := range f.members {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

// TestLatencies measures how soon changes take effect, for fleets of the sizes
// in E2E_SIZES, with at least E2E_SAMPLES samples of each kind, and writes the
// table to the file that E2E_TABLE names. It asserts no times.
func TestLatencies(t *testing.T) {
	sizes := os.Getenv("E2E_SIZES")
	if sizes == "" {
		sizes = "10"
	}
	samples := 20
	if text := os.Getenv("E2E_SAMPLES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("E2E_SAMPLES: %q is no number of samples", text)
		}
		samples = n
	}
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			t.Fatalf("E2E_SIZES: %q is no size of a fleet", text)
		}
		t.Run(text, func(t *testing.T) { measureLatencies(t, n, samples) })
	}
}

// measureLatencies starts one fleet and takes all samples of it: each lane those
// of its provider one after the other, the lanes beside each other.
func measureLatencies(t *testing.T, size, samples int) {
	cluster, client := etcdtest.New(t, embedded.Options{Slow: true, Processes: true})
	operator, err := admin.New(client, admin.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleetOf{t: t, size: size, endpoints: cluster.Endpoints(), admin: operator}
	lanes := max(1, min(samples, 4, crowd/size)) // of 20, each waited for the others at a window's start
	rounds := (samples + lanes - 1) / lanes
	go f.count(client)
	var providers []string
	all := make([]*lane, lanes)
	for i := range all {
		all[i] = &lane{fleetOf: f, provider: "latency/" + strconv.Itoa(i), seen: make([]seen, size)}
		providers = append(providers, all[i].provider)
		if err := all[i].set(total); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	f.gather(providers)
	t.Logf("%d instances of %d providers have joined after %.1f s", size, lanes, time.Since(began).Seconds())
	for i, l := range all {
		for _, g := range f.members {
			l.limiters = append(l.limiters, g.limiters[i])
		}
		if err := l.settle(total, size); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("they have settled after %.1f s", time.Since(began).Seconds())
	var playing sync.WaitGroup
	for i, l := range all {
		playing.Go(func() {
			defer l.spend()()
			for round := range rounds {
				// All samples together meet a window at every part of it, in the middle of
				// equal slots, or their median would be off by half of one.
				part := window * time.Duration(2*(round*lanes+i)+1) / time.Duration(2*rounds*lanes)
				if err := l.play(part); err != nil {
					t.Errorf("%s: %v", l.provider, err)
					return
				}
			}
		})
	}
	playing.Wait()
	if t.Failed() {
		return
	}
	t.Log("\n" + latencyHead() + f.took.line(size))
	for by, n := range f.took.wrote {
		slices.Sort(n)
		t.Logf("%s: etcd wrote the provider's keys %d times (median), %d at most", by, n[len(n)/2], n[len(n)-1])
	}
	if file := os.Getenv("E2E_TABLE"); file != "" {
		if err := f.took.write(file, size); err != nil {
			t.Fatal(err)
		}
	}
}

// set puts a total in force.
func (l *lane) set(permits int64) error {
	policy := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: window}}, Outage: quota.OutageStop}
	_, err := l.admin.Put(l.t.Context(), l.provider, policy)
	return err
}
