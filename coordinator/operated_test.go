package coordinator

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// These tests are about sessions and operators together.

// Users see each instance with its share and what it reported.
func TestFleetShowsTheInstances(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	recorded, _ := f.subscribe(f.join(Options{Name: "a"}), "p")
	var found admin.Fleet
	await.Until(t, "the instance has reported", func() (ok bool) {
		var err error
		found, err = f.admin.Fleet(t.Context(), "p")
		// The instance learns its own ID by etcd's answer, after others can see what it wrote.
		return err == nil && len(found.Instances) == 1 && found.Instances[0].State != "" && f.only(recorded).current().ID != ""
	})
	inside, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
	if err != nil || inside.Instances[0].Report == nil {
		t.Fatalf("%+v, %v", inside, err)
	}
	if found.Policy.Policy.Limits[0].Permits != 10 || found.Policy.Revision == 0 || found.Revision < found.Policy.Revision {
		t.Errorf("%+v", found)
	}
	i, r := found.Instances[0], inside.Instances[0].Report
	if i.ID != f.only(recorded).current().ID || i.Name != "a" || i.Started.IsZero() || !i.ShareKnown || i.State != r.State || i.Used != r.Used || i.Problem != nil {
		t.Errorf("%+v, and the report is %+v", i, r)
	}
}

func TestObserversMakeInstancesReportEverySecond(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	f.subscribe(f.join(Options{Name: "a"}), "p")
	stop, err := f.admin.Observe(t.Context(), "p", "q")
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "reports although nothing happens", func() bool {
		r, err := f.client.Get(t.Context(), f.keys.Reports("p"), clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Kvs) == 1 && r.Kvs[0].Version >= 5
	})
	count := func() int64 {
		r, err := f.client.Get(t.Context(), f.prefix+"observers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return r.Count
	}
	if count() != 2 {
		t.Errorf("%d observers, want 2", count())
	}
	// As after an outage that the lease did not live through.
	r, err := f.client.Get(t.Context(), f.prefix+"observers/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 2 {
		t.Fatalf("%d observers, %v", len(r.Kvs), err)
	}
	lost := clientv3.LeaseID(r.Kvs[0].Lease)
	if _, err := f.client.Revoke(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "observers that came again", func() bool { return count() == 2 })
	stop()
	if count() != 0 {
		t.Errorf("%d observers are left", count())
	}
	if _, err := f.admin.Observe(t.Context(), "a//b"); err == nil || count() != 0 {
		t.Errorf("%v; %d observers of a provider that cannot be", err, count())
	}
}

// TestInstancesFollowOverrides: listed and told, and a document that cannot be read stays as it
// was and is a problem, also for operators.
func TestInstancesFollowOverrides(t *testing.T) {
	f := setup(t)
	keyed := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}}
	keyed.Keys.Limits = []quota.Limit{{Permits: 80, Window: time.Second}}
	if _, err := f.admin.Put(t.Context(), "p", keyed); err != nil {
		t.Fatal(err)
	}
	change := func(limits string) error {
		var own *protocol.Override // nil deletes it
		if limits != "" {
			var err error
			if own, err = protocol.ParseOverride(limits); err != nil {
				t.Fatal(err)
			}
		}
		_, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", "", func(protocol.KeyOverrides) (map[string]*protocol.Override, error) {
			return map[string]*protocol.Override{"a": own}, nil
		})
		return err
	}
	set := func(limits string) {
		t.Helper()
		if err := change(limits); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want string) func(*recorder) bool {
		return func(r *recorder) bool {
			own, broken := r.view.Override("a")
			return !broken && own.String() == want && r.proofs > 0
		}
	}
	set("5/s")
	a, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "the override is listed", a.is(has("5/s")))
	set("7/s")
	await.Until(t, "the change is told", a.is(has("7/s")))
	key := f.keys.Overrides("p", protocol.OverrideBucket("a"))
	if _, err := f.client.Put(t.Context(), key, `{"schema":1,"keys":{"a":"many"}}`); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the problem is told", a.is(func(r *recorder) bool {
		return r.trouble != nil && strings.Contains(r.trouble.Error(), "overrides of keys") && has("7/s")(r)
	}))
	b, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "one that lists does not know the key's limits", b.is(func(r *recorder) bool {
		_, broken := r.view.Override("a")
		return broken && r.trouble != nil
	}))
	if o, err := feed.Inside(f.admin).Overrides(t.Context(), "p"); err != nil || o.Problem == nil {
		t.Errorf("operators are told nothing: %v", err)
	}
	if err := change("8/s"); err == nil || !strings.Contains(err.Error(), "delete that key of etcd first") {
		t.Errorf("%v: a document that cannot be read was written over", err)
	}
	if _, err := f.client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	set("9/s owners=2")
	await.Until(t, "it is mended", a.is(func(r *recorder) bool { return r.trouble == nil && has("9/s owners=2")(r) }))
	await.Until(t, "it is mended there", b.is(func(r *recorder) bool { return r.trouble == nil && has("9/s owners=2")(r) }))
	set("")
	await.Until(t, "the deletion is told", a.is(has("")))
}
