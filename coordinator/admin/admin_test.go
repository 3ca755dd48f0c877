package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func limit(permits int64) quota.Policy {
	return quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}
}

func TestPoliciesAreSetByCompareAndSet(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	if _, err := f.admin.Get(ctx, "a/b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	first, err := f.admin.PutIf(ctx, "a/b", limit(10), 0)
	if err != nil {
		t.Fatal(err)
	}
	var conflict *ConflictError
	if _, err := f.admin.PutIf(ctx, "a/b", limit(11), 0); !errors.As(err, &conflict) || conflict.Have != first.Revision {
		t.Errorf("%v, want a conflict with revision %d", err, first.Revision)
	}
	second, err := f.admin.PutIf(ctx, "a/b", limit(20), first.Revision)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.admin.Get(ctx, "a/b")
	if err != nil || got.Revision != second.Revision || got.Policy.Limits[0].Permits != 20 || got.Policy.Author != "ann@host" || got.Policy.Time.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := f.admin.DeleteIf(ctx, "a/b", "over", first.Revision); !errors.As(err, &conflict) {
		t.Errorf("%v, want a conflict", err)
	}
	if old, err := f.admin.Delete(ctx, "a/b", "over"); err != nil || old.Policy.Limits[0].Permits != 20 {
		t.Errorf("deleted %+v, %v", old, err)
	}
	if _, err := f.admin.Delete(ctx, "a/b", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	records, err := f.admin.History(ctx, "a/b")
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records, %v; want 3", len(records), err)
	}
	if r := records[0]; r.New != nil || r.Old.Limits[0].Permits != 20 || r.Reason != "over" || r.OldRevision != second.Revision {
		t.Errorf("newest record %+v", r)
	}
	if r := records[1]; r.Old.Limits[0].Permits != 10 || r.New.Limits[0].Permits != 20 || r.Revision != second.Revision {
		t.Errorf("second record %+v", r)
	}
}

func TestNoProvidersKeysLieUnderAnothers(t *testing.T) {
	f := setup(t)
	names := []string{"a", "a/b", "a/policy", "a/instances/x", "ü %2F", "a%2Fb"}
	for i, n := range names {
		if _, err := f.admin.PutIf(t.Context(), n, limit(int64(i)), 0); err != nil {
			t.Fatalf("%q: %v", n, err)
		}
	}
	all, err := f.admin.List(t.Context())
	if err != nil || len(all) != len(names) {
		t.Fatalf("%d policies listed, %v; want %d", len(all), err, len(names))
	}
	for i, n := range names {
		if s, err := f.admin.Get(t.Context(), n); err != nil || s.Policy.Limits[0].Permits != int64(i) {
			t.Errorf("%q: %+v, %v", n, s, err)
		}
		if v, err := f.admin.Fleet(t.Context(), n); err != nil || len(v.Instances) != 0 {
			t.Errorf("%q has %d instances, %v", n, len(v.Instances), err)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", "..", "a\x00", strings.Repeat("x", 201)} {
		if _, err := f.admin.PutIf(t.Context(), bad, limit(1), 0); err == nil {
			t.Errorf("provider %q was taken", bad)
		}
		if _, err := f.admin.Fleet(t.Context(), bad); err == nil {
			t.Errorf("provider %q was looked at", bad)
		}
	}
}

func TestAnInvalidPolicyChangesNothing(t *testing.T) {
	f := setup(t)
	p := limit(10)
	p.Freshness = 2900 * time.Millisecond
	if _, err := f.admin.Put(t.Context(), "p", p); err == nil || !strings.Contains(err.Error(), "settle") {
		t.Errorf("%v, want the timing rule", err)
	}
	p = limit(10)
	p.Reason = strings.Repeat("x", 2000)
	if _, err := f.admin.Put(t.Context(), "p", p); err == nil {
		t.Error("a huge reason was taken")
	}
	if records, err := f.admin.History(t.Context(), "p"); err != nil || len(records) != 0 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func TestSettleIsNotLoweredUnderTheFreshnessInForce(t *testing.T) {
	f := setup(t)
	put := func(settle, freshness time.Duration) error {
		p := limit(10)
		p.Settle, p.Freshness = settle, freshness
		_, err := f.admin.Put(t.Context(), "p", p)
		return err
	}
	const s = time.Second
	if err := put(10*s, 9*s); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		var field *quota.FieldError
		if !errors.As(err, &field) || field.Field != "settle" || !strings.Contains(err.Error(), "freshness of 9s") {
			t.Errorf("%s: %v, want it refused because of the freshness", what, err)
		}
	}
	refused("both at once", put(3*s, 2500*time.Millisecond))
	if err := put(10*s, 2500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	refused("a moment later", put(3*s, 2500*time.Millisecond))
	if _, err := f.admin.Delete(t.Context(), "p", ""); err != nil {
		t.Fatal(err)
	}
	refused("after a deletion", put(3*s, 2500*time.Millisecond))
	if err := put(9500*time.Millisecond, 2500*time.Millisecond); err != nil {
		t.Errorf("long enough: %v", err)
	}
}

// TestEtcdMeasuresHowLongAFreshnessCounts: whatever operators' clocks say, a settle
// time is not lowered before etcd's lease on the policy before it has ended.
func TestEtcdMeasuresHowLongAFreshnessCounts(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	put := func(settle, freshness time.Duration) error {
		p := limit(10)
		p.Settle, p.Freshness = settle, freshness
		_, err := f.admin.Put(ctx, "p", p)
		return err
	}
	const s = time.Second
	if err := errors.Join(put(60*s, 50*s), put(60*s, 2*s)); err != nil {
		t.Fatal(err)
	}
	// The second operator's clock is two minutes slow.
	r, err := f.client.Get(ctx, f.admin.keys.History("p"), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		var w wireRecord
		if err := json.Unmarshal(kv.Value, &w); err != nil {
			t.Fatal(err)
		}
		w.Time = w.Time.Add(-2 * time.Minute)
		b, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.client.Put(ctx, string(kv.Key), string(b)); err != nil {
			t.Fatal(err)
		}
	}
	var field *quota.FieldError
	if err := put(3*s, 2*s); !errors.As(err, &field) || field.Field != "settle" {
		t.Fatalf("%v, want it refused", err)
	}
	kept, err := f.client.Get(ctx, f.admin.keys.Superseded("p"), clientv3.WithPrefix())
	if err != nil || len(kept.Kvs) != 1 || kept.Kvs[0].Lease == 0 {
		t.Fatalf("%v, %v: want one policy, with a lease", kept, err)
	}
	lease := clientv3.LeaseID(kept.Kvs[0].Lease)
	ttl, err := f.client.TimeToLive(ctx, lease)
	if need := quota.MinSettleFor(50*s, quota.DefaultClockError, s); err != nil || time.Duration(ttl.GrantedTTL)*s < need {
		t.Errorf("the lease lasts %d s, %v; want %v or longer", ttl.GrantedTTL, err, need)
	}
	if _, err := f.client.Revoke(ctx, lease); err != nil { // as when its time has come
		t.Fatal(err)
	}
	if err := put(3*s, 2*s); err != nil {
		t.Errorf("the lease has ended: %v", err)
	}
}

// TestAWriterThatDiedLeavesItsLeaseToTheNext: the policy that it replaced counts
// until etcd has measured the time.
func TestAWriterThatDiedLeavesItsLeaseToTheNext(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	old, next := limit(10), limit(10)
	old.Settle, old.Freshness = 60*time.Second, 50*time.Second
	next.Settle, next.Freshness = 60*time.Second, 2*time.Second
	if _, err := f.admin.PutIf(ctx, "p", old, 0); err != nil {
		t.Fatal(err)
	}
	found, err := f.admin.read(ctx, []string{"p"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.prepare(found[0], &next, ""); err != nil {
		t.Fatal(err)
	}
	found[0].keep = nil // it dies after the commit
	if _, err := f.admin.commit(ctx, found[0]); err != nil {
		t.Fatal(err)
	}
	leases := func() (leases []int64) {
		r, err := f.client.Get(ctx, f.admin.keys.Superseded("p"), clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			leases = append(leases, kv.Lease)
		}
		return leases
	}
	if got := leases(); len(got) != 1 || got[0] != 0 {
		t.Fatalf("leases %x, want one key without", got)
	}
	lower := next
	lower.Settle = 3 * time.Second
	if _, err := f.admin.Put(ctx, "p", lower); err == nil {
		t.Fatal("lowered, and nobody has measured the time")
	}
	if _, err := f.admin.Put(ctx, "p", next); err != nil {
		t.Fatal(err)
	}
	if got := leases(); len(got) != 1 || got[0] == 0 {
		t.Errorf("leases %x, want one key with a lease", got)
	}
}

// TestOnlyLoweredTimesAreKept: most changes cost no lease.
func TestOnlyLoweredTimesAreKept(t *testing.T) {
	of := func(freshness, clockError, window time.Duration) quota.Policy {
		p := quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: window}}, Timing: quota.Timing{Freshness: freshness, ClockError: clockError}}
		return p.WithDefaults()
	}
	const s = time.Second
	before := superseded{policy: of(2*s, s/10, s)}
	for _, c := range []struct {
		next quota.Policy
		want bool
	}{
		{of(2*s, s/10, s), true}, {of(3*s, s/5, 2*s), true},
		{of(s, s/10, s), false}, {of(2*s, s/20, s), false}, {of(2*s, s/10, s/2), false},
	} {
		if got := before.covered(&c.next); got != c.want {
			t.Errorf("freshness %v, clock error %v, window %v: %v", c.next.Freshness, c.next.ClockError, protocol.LongestWindow(&c.next), got)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	f := setup(t)
	for i := range maxRecords + 10 {
		if _, err := f.admin.Put(t.Context(), "p", limit(int64(i))); err != nil {
			t.Fatal(err)
		}
	}
	r, err := f.client.Get(t.Context(), f.admin.keys.History("p"), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || r.Count != maxRecords {
		t.Errorf("%d records are kept, %v; want %d", r.Count, err, maxRecords)
	}
	records, err := f.admin.History(t.Context(), "p")
	if err != nil || len(records) != maxRecords || records[0].New.Limits[0].Permits != maxRecords+9 {
		t.Errorf("%d records, newest %+v, %v", len(records), records[0], err)
	}
}

func TestListIsPaged(t *testing.T) {
	f := setup(t)
	const n = etcdcall.PageKeys/2 + 20 // each with an instance's key, so that more than a page is read
	for i := range n {
		if _, err := f.admin.PutIf(t.Context(), fmt.Sprintf("p%04d", i), limit(int64(i)), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.client.Put(t.Context(), f.admin.keys.Instance(fmt.Sprintf("p%04d", i), "i"), "{}"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.admin.List(t.Context())
	if err != nil || len(all) != n {
		t.Fatalf("%d policies, %v; want %d", len(all), err, n)
	}
	for i, s := range all {
		if s.Policy.Limits[0].Permits != int64(i) {
			t.Fatalf("policy %d is %+v", i, s)
		}
	}
}

func TestErrorsOfEtcdAreTold(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin, err := New(client, Options{Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func(ctx context.Context) error{
		"get":     func(ctx context.Context) error { _, err := admin.Get(ctx, "p"); return err },
		"list":    func(ctx context.Context) error { _, err := admin.List(ctx); return err },
		"history": func(ctx context.Context) error { _, err := admin.History(ctx, "p"); return err },
		"fleet":   func(ctx context.Context) error { _, err := admin.Fleet(ctx, "p"); return err },
		"put":     func(ctx context.Context) error { _, err := admin.PutIf(ctx, "p", limit(1), 0); return err },
	} {
		if err := f(t.Context()); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v, want ErrUnreachable", what, err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f(cancelled); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	for _, o := range []Options{{Prefix: "x"}, {Timeout: -1}} {
		if _, err := New(client, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
