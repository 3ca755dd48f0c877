package live_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// gauge returns the value of one of the server's metrics.
func gauge(t *testing.T, c *embedded.Cluster, name string) (value float64) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Endpoints()[0]+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			if _, err := fmt.Sscan(text, &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("the server has no metric %s", name)
	return 0
}

// Not parallel to the others: it counts the streams of a server, and servers in
// one process share their metrics.
func TestOneHundredProvidersInOneSession(t *testing.T) {
	const providers = 100
	cluster, client := etcdtest.New(t, embedded.Options{})
	prefix := "/many/"
	operator, err := admin.New(client, admin.Options{Prefix: prefix, Author: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return fmt.Sprintf("many/%d", i) }
	for i := range providers {
		if _, err := operator.PutIf(t.Context(), name(i), exact(t, "20/500ms", time.Second), 0); err != nil {
			t.Fatal(err)
		}
	}
	streams := gauge(t, cluster, "etcd_debugging_mvcc_watch_stream_total")
	watchers := gauge(t, cluster, "etcd_debugging_mvcc_watcher_total")
	session, err := coordinator.Join(t.Context(), client, coordinator.Options{Prefix: prefix, Logger: quiet, Lazy: true, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	var all []*consumer.Limiter
	for i := range providers {
		l, err := consumer.Open(t.Context(), session, name(i), consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	for _, l := range all {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, st := l.TryTake(30).N(), l.Status(); n > 20 || st.Instances != 1 {
			t.Errorf("%s: %d permits of 20, among %d", st.Provider, n, st.Instances)
		}
	}
	// A watch that hung on a busy machine was opened again, and the old one goes when its
	// end reaches etcd.
	await.Until(t, "there is one watch of all providers, and one of all asks, each on a stream of its own", func() bool {
		return gauge(t, cluster, "etcd_debugging_mvcc_watcher_total")-watchers == 2 &&
			gauge(t, cluster, "etcd_debugging_mvcc_watch_stream_total")-streams == 2
	})
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("%d leases for one session, %v", len(leases.Leases), err)
	}
	checkLeased(t, client, prefix, leases.Leases[0].ID, providers)
	// A watch that is opened does not disturb the proofs of the others for long.
	for _, l := range all {
		if err := l.Ready(t.Context()); err != nil {
			t.Errorf("%s is %s: %s", l.Status().Provider, l.Status().State, l.Status().Problem)
		}
	}
	_ = session.Close() // where etcd takes its time the lease ends by itself
	for _, keys := range []string{"reports/", "observers/"} {
		await.Until(t, "no key is left under "+keys, func() bool {
			r, err := client.Get(t.Context(), prefix+keys, clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && r.Count == 0
		})
	}
}

// checkLeased checks that each provider has one instance and that all of them,
// and all reports, hang on one lease.
func checkLeased(t *testing.T, client *clientv3.Client, prefix string, lease clientv3.LeaseID, providers int) {
	t.Helper()
	r, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	instances := 0
	for _, kv := range r.Kvs {
		key := string(kv.Key)
		instance := strings.Contains(key, "/instances/")
		if instance {
			instances++
		}
		if (instance || strings.HasPrefix(key, prefix+"reports/")) && clientv3.LeaseID(kv.Lease) != lease {
			t.Errorf("%s has lease %x, want %x", key, kv.Lease, lease)
		}
	}
	if instances != providers {
		t.Errorf("%d instances of %d providers", instances, providers)
	}
}
