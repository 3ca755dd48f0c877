package live_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// TestARestoredBackup puts etcd's data back under a running fleet, so that the
// last change of the policy is lost without a word. Every instance must notice
// that the store went backwards, begin anew, and obey the policy that was
// restored: by itself, with what etcd has then.
func TestARestoredBackup(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	cluster, client := etcdtest.New(t, etcdtest.Options{Dir: dir, Processes: false})
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	g := &group{t: t}
	before, err := admin.Put(t.Context(), provider, exact(t, "60/200ms", 500*ms), 0)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Stop(0)
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	var all []*consumer.Limiter
	for range 3 {
		s, err := coordinator.Join(t.Context(), client, coordinator.Options{Logger: quiet, Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		l, err := consumer.Open(t.Context(), s, provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	every := func(what string, is func(st consumer.Status) bool) {
		t.Helper()
		g.await("every instance "+what, func() bool {
			for _, l := range all {
				if !is(l.Status()) {
					return false
				}
			}
			return true
		})
	}
	active := func(total int64) func(consumer.Status) bool {
		return func(st consumer.Status) bool {
			return st.State == quota.StateActive && st.Shortest().Limit.Permits == total && st.Shortest().Share == total/3
		}
	}
	every("is active", active(60))
	if _, err := admin.Put(t.Context(), provider, exact(t, "30/200ms", 500*ms), coordinator.AnyRevision); err != nil {
		t.Fatal(err)
	}
	every("has the change", active(30))
	incarnation := all[0].Status().Incarnation

	cluster.Stop(0)
	if err := os.RemoveAll(filepath.Join(dir, "m0")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "m0"), os.DirFS(filepath.Join(backup, "m0"))); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	every("obeys the policy that was restored", func(st consumer.Status) bool {
		return active(60)(st) && st.PolicyRevision == before.Revision && st.Instances == 3
	})
	t.Logf("active by the restored policy %v after etcd was back", time.Since(began).Round(10*ms))
	if all[0].Status().Incarnation == incarnation {
		t.Error("an instance goes on under a key that the restored store never had")
	}
}
