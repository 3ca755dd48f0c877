package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

var (
	instances = flag.String("instances", "", "sizes of the fleets of BenchmarkScale, with commas; none if empty")
	perClient = flag.Int("per-client", 1, "sessions of BenchmarkScale that share a client of etcd; 1 is what a process of its own has")
	limiters  = flag.Int("limiters", 1, "limiters that share each session, as in a process that hands permits out to others; -instances counts sessions")
	ttl       = flag.Duration("ttl", 0, "of the instances' leases; 0 is the default of sessions")
	settle    = flag.Duration("settle", 0, "the policy's settle time; 0 is the default of policies")
	freshness = flag.Duration("freshness", 0, "the policy's freshness; 0 is the default of policies")
)

const patience = 2 * time.Minute // bounds every wait for the fleet

// reading is what etcd has done, by its own counters.
type reading struct {
	cpu      float64 // seconds
	sent     float64 // bytes to clients
	puts     float64
	database float64 // bytes of the file, now
	resident float64 // bytes of memory, now
}

func readEtcd(endpoint string) (r reading, err error) {
	resp, err := http.Get(endpoint + "/metrics") //nolint:noctx // our own etcd
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return r, err
	}
	for name, to := range map[string]*float64{
		"process_cpu_seconds_total":                 &r.cpu,
		"etcd_network_client_grpc_sent_bytes_total": &r.sent,
		"etcd_mvcc_put_total":                       &r.puts,
		"etcd_mvcc_db_total_size_in_bytes":          &r.database,
		"process_resident_memory_bytes":             &r.resident,
	} {
		f := families[name]
		if f == nil || len(f.Metric) != 1 {
			return r, fmt.Errorf("etcd tells no %s", name)
		}
		*to = f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetGauge().GetValue()
	}
	return r, nil
}

// etcdUses returns what etcd uses while f runs.
func etcdUses(endpoint string, f func() error) (reading, error) {
	before, err := readEtcd(endpoint)
	if err != nil {
		return before, err
	}
	if err := f(); err != nil {
		return before, err
	}
	used, err := readEtcd(endpoint)
	used.cpu, used.sent, used.puts = used.cpu-before.cpu, used.sent-before.sent, used.puts-before.puts
	return used, err
}

// BenchmarkScale measures what coordination costs as a fleet grows: real sessions and
// limiters in child processes, on an etcd in a process of its own, which does not sync
// its disk. All instances join at once, nothing happens for a while, and limits are
// set. Fleet and etcd share one machine, which bounds the size.
func BenchmarkScale(b *testing.B) {
	if *instances == "" {
		b.Skip("-instances names no size")
	}
	for text := range strings.SplitSeq(*instances, ",") {
		b.Run("instances="+text, func(b *testing.B) {
			n, err := strconv.Atoi(text)
			must(b, err)
			measureScale(b, n)
			b.ReportMetric(0, "ns/op")
		})
	}
}

func measureScale(b *testing.B, n int) {
	// etcd's own timers are those of a real one.
	etcd, client := etcdtest.New(b, embedded.Options{Processes: true, Slow: true})
	endpoint := etcd.Endpoints()[0]
	operator, err := admin.New(client, admin.Options{Author: "bench"})
	must(b, err)
	set := func(extra int) int64 {
		policy := limit(int64(100*n+extra), time.Second)
		policy.Settle, policy.Freshness = *settle, *freshness
		stored, err := operator.Put(b.Context(), scaleProvider, policy)
		must(b, err)
		return stored.Revision
	}
	set(0)
	began := time.Now()
	var workers *fleet
	var joined answer
	storm, err := etcdUses(endpoint, func() (err error) {
		workers = startWorkers(b, n, etcd.Endpoints())
		joined, err = workers.await()
		return err
	})
	must(b, err)
	b.ReportMetric(time.Unix(0, joined.At).Sub(began).Seconds(), "join-s")
	b.ReportMetric(storm.cpu, "join-etcd-cpu-s")
	b.ReportMetric(storm.sent/1e6, "join-etcd-sent-MB")
	b.ReportMetric(joined.CPU.Seconds(), "join-fleet-cpu-s")

	letPass(whole(8*time.Second, 0)) // for the first reports
	use := func() answer {
		a, err := workers.applied(0)
		must(b, err)
		return a
	}
	before := use()
	watched := whole(30*time.Second, time.Second)
	idle, err := etcdUses(endpoint, func() error { letPass(watched); return nil })
	must(b, err)
	after := use()
	s := watched.Seconds()
	b.ReportMetric(idle.cpu/s, "idle-etcd-processors")
	b.ReportMetric(idle.resident/1e6, "idle-etcd-MB")
	b.ReportMetric(idle.database/1e6, "idle-etcd-database-MB")
	b.ReportMetric(idle.sent/s/1e3, "idle-etcd-sent-kB/s")
	b.ReportMetric(idle.puts/s, "idle-etcd-writes/s")
	b.ReportMetric((after.CPU-before.CPU).Seconds()/s/float64(n), "idle-processors/instance")
	b.ReportMetric(float64(after.Memory)/1e6/float64(n), "MB/instance")

	var last []float64
	changes := whole(20, 2) // one a second
	for i := range changes {
		began := time.Now()
		revision := set(i + 1)
		applied, err := workers.applied(revision)
		must(b, err)
		last = append(last, time.Unix(0, applied.At).Sub(began).Seconds()*1e3)
		letPass(time.Second - time.Since(began))
	}
	slices.Sort(last)
	b.ReportMetric(last[changes/2], "set-p50-ms")
	b.ReportMetric(last[changes-1], "set-max-ms")
}

// BenchmarkEtcd measures what the calls cost etcd that sessions are made of. 100
// connections call as fast as they can. Keys and values are as long as those of
// instances.
func BenchmarkEtcd(b *testing.B) {
	const instanceKey, reportKey = "/quotient/v1/providers/bench/instances/worker-%d.694d9a1b2c3d4e5f.1", "/quotient/v1/reports/bench/worker-%d.694d9a1b2c3d4e5f.1"
	instanceValue, reportValue := strings.Repeat("x", 180), strings.Repeat("x", 420)
	etcd, _ := etcdtest.New(b, embedded.Options{Processes: true, Slow: true})
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(b.Context()))
	defer cancel()
	var clients []*clientv3.Client
	var leases []clientv3.LeaseID
	var idle, events []clientv3.WatchChan
	for range whole(100, 4) {
		c := etcdtest.NewClient(b, etcd)
		lease, err := c.Grant(ctx, 3600)
		must(b, err)
		clients, leases = append(clients, c), append(leases, lease.ID)
		idle = append(idle, c.Watch(ctx, "/nothing/", clientv3.WithPrefix(), clientv3.WithCreatedNotify()))
		events = append(events, c.Watch(ctx, "/quotient/v1/providers/bench/instances/", clientv3.WithPrefix(), clientv3.WithCreatedNotify()))
	}
	for _, w := range slices.Concat(idle, events) {
		if r := <-w; !r.Created {
			b.Fatal("a watch was not created")
		}
	}
	seen := make([]int, len(clients)) // events that have come and were not counted
	_, err := clients[0].Put(ctx, "/probed/"+instanceKey, instanceValue)
	must(b, err)
	for _, m := range []struct {
		name string
		call func(client, i int) error
	}{
		{"lease kept alive", func(c, _ int) error {
			_, err := clients[c].KeepAliveOnce(ctx, leases[c])
			return err
		}},
		{"probe: linearizable read of a key", func(c, _ int) error {
			_, err := clients[c].Get(ctx, "/probed/"+instanceKey, clientv3.WithKeysOnly())
			return err
		}},
		{"progress of a watch", func(c, _ int) error {
			if err := clients[c].RequestProgress(ctx); err != nil {
				return err
			}
			if r := <-idle[c]; !r.IsProgressNotify() {
				return errors.New("another answer than progress")
			}
			return nil
		}},
		{"report: a transaction that writes 420 bytes", func(c, _ int) error {
			own := fmt.Sprintf(reportKey, c)
			_, err := clients[c].Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(own+"x"), "=", 0)).Then(clientv3.OpPut(own, reportValue)).Commit()
			return err
		}},
		// What the write costs is small beside its events.
		{"join or leave, to one watcher", func(c, i int) error {
			if c == 0 {
				if _, err := clients[0].Put(ctx, fmt.Sprintf(instanceKey, i), instanceValue); err != nil {
					return err
				}
			}
			for ; seen[c] == 0; seen[c] = len((<-events[c]).Events) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			seen[c]--
			return nil
		}},
	} {
		b.Run("call="+m.name, func(b *testing.B) {
			each := max(1, b.N/len(clients))
			used, err := etcdUses(etcd.Endpoints()[0], func() error {
				var all errgroup.Group
				for c := range clients {
					all.Go(func() error {
						for i := range each {
							if err := m.call(c, i); err != nil {
								return err
							}
						}
						return nil
					})
				}
				return all.Wait()
			})
			must(b, err)
			calls := float64(each * len(clients))
			b.ReportMetric(used.cpu*1e6/calls, "etcd-cpu-µs/op")
			b.ReportMetric(used.sent/calls, "sent-B/op")
		})
	}
}
