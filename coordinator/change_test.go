package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestSeveralPoliciesAreSetTogetherOrNotAtAll(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	changes := []Change{{"a", limit(1), 0}, {"b", limit(2), 0}, {"c", limit(3), AnyRevision}}
	all, err := f.admin.PutAll(ctx, changes)
	if err != nil || len(all) != 3 || all[0].Revision != all[2].Revision || all[1].Provider != "b" {
		t.Fatal(all, err)
	}
	for _, p := range []string{"a", "b", "c"} {
		if r, err := f.admin.History(ctx, p); err != nil || len(r) != 1 || r[0].Revision != all[0].Revision {
			t.Errorf("%s: history %+v, %v", p, r, err)
		}
	}
	var conflict *ConflictError
	changes = []Change{{"a", limit(10), all[0].Revision}, {"b", limit(20), all[0].Revision - 1}, {"c", limit(30), AnyRevision}}
	if _, err := f.admin.PutAll(ctx, changes); !errors.As(err, &conflict) || conflict.Provider != "b" || conflict.Have != all[0].Revision {
		t.Errorf("%v, want a conflict of b", err)
	}
	for what, changes := range map[string][]Change{
		"b: limits[0].permits": {{"a", limit(10), AnyRevision}, {"b", limit(-1), AnyRevision}},
		"two changes of a":     {{"a", limit(10), AnyRevision}, {"a", limit(11), AnyRevision}},
		"one transaction":      make([]Change, MaxTogether+1),
	} {
		if _, err := f.admin.PutAll(ctx, changes); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if s, err := f.admin.Get(ctx, "a"); err != nil || s.Policy.Limits[0].Permits != 1 {
		t.Errorf("a refused change left %+v, %v", s, err)
	}
	if all, err := f.admin.PutAll(ctx, nil); err != nil || all != nil {
		t.Errorf("nothing to change: %v, %v", all, err)
	}
}

// TestAConflictBetweenReadAndWriteIsFound has two writers prepare at once: the
// second transaction must name the policy that the first one changed.
func TestAConflictBetweenReadAndWriteIsFound(t *testing.T) {
	f := setup(t)
	var prepared [2][]*write
	for i := range prepared {
		for _, p := range []string{"a", "b"} {
			w, err := f.admin.prepare(t.Context(), Change{p, limit(int64(i + 1)), AnyRevision})
			if err != nil {
				t.Fatal(err)
			}
			prepared[i] = append(prepared[i], w)
		}
	}
	revision, err := f.admin.commit(t.Context(), prepared[0][1])
	if err != nil {
		t.Fatal(err)
	}
	var conflict *ConflictError
	if _, err := f.admin.commit(t.Context(), prepared[1]...); !errors.As(err, &conflict) || conflict.Provider != "b" || conflict.Have != revision || conflict.Want != 0 {
		t.Errorf("%v, want a conflict of b", err)
	}
}

// TestMostTogetherFitsEtcd sends as much as one transaction may have.
func TestMostTogetherFitsEtcd(t *testing.T) {
	f := setup(t)
	var changes []Change
	for i := range MaxTogether {
		changes = append(changes, Change{fmt.Sprintf("p%d", i), limit(1), 0})
	}
	if _, err := f.admin.PutAll(t.Context(), changes); err != nil {
		t.Error(err)
	}
}

func TestObserversMakeInstancesReportEverySecond(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	f.subscribe(f.join(Options{Name: "a"}), "p")
	stop, err := f.admin.Observe(t.Context(), "p", "q")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "reports although nothing happens", func() bool {
		r, err := f.client.Get(t.Context(), f.admin.keys.reports("p"), clientv3.WithPrefix())
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
	eventually(t, "observers that came again", func() bool { return count() == 2 })
	stop()
	if count() != 0 {
		t.Errorf("%d observers are left", count())
	}
	if _, err := f.admin.Observe(t.Context(), "a//b"); err == nil || count() != 0 {
		t.Errorf("%v; %d observers of a provider that cannot be", err, count())
	}
}
