package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// each returns an edit that sets the policies in order; 0 leaves one as it is.
func each(permits ...int64) func([]Stored) ([]*quota.Policy, error) {
	return func([]Stored) (all []*quota.Policy, _ error) {
		for _, n := range permits {
			if n == 0 {
				all = append(all, nil)
				continue
			}
			all = append(all, new(limit(n)))
		}
		return all, nil
	}
}

func TestSeveralPoliciesAreSetTogetherOrNotAtAll(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	names := []string{"a", "b", "c"}
	all, err := f.admin.Update(ctx, names, each(1, 2, 3))
	if err != nil || len(all) != 3 || all[0].Revision != all[2].Revision || all[1].Provider != "b" {
		t.Fatal(all, err)
	}
	for _, p := range names {
		if r, err := f.admin.History(ctx, p); err != nil || len(r) != 1 || r[0].Revision != all[0].Revision {
			t.Errorf("%s: history %+v, %v", p, r, err)
		}
	}
	// The second of two writers that read the same names what the first changed.
	var conflict *ConflictError
	_, err = f.admin.Update(ctx, names, func(old []Stored) ([]*quota.Policy, error) {
		if old[1].Revision != all[0].Revision || old[1].Policy.Limits[0].Permits != 2 {
			t.Errorf("edits %+v", old[1])
		}
		f.set("b", "20/s")
		return each(10, 20, 30)(old)
	})
	if !errors.As(err, &conflict) || conflict.Provider != "b" || conflict.Want != all[0].Revision || conflict.Have <= conflict.Want {
		t.Errorf("%v, want a conflict of b", err)
	}
	var many []string
	for i := range maxTogether + 1 {
		many = append(many, fmt.Sprintf("many%d", i))
	}
	for what, try := range map[string]func() error{
		"b: limits[0].permits": func() error { _, err := f.admin.Update(ctx, names[:2], each(10, -1)); return err },
		"two changes of a":     func() error { _, err := f.admin.Update(ctx, []string{"a", "a"}, each(1, 1)); return err },
		"1 policies of 2 providers": func() error {
			_, err := f.admin.Update(ctx, names[:2], func([]Stored) ([]*quota.Policy, error) { return make([]*quota.Policy, 1), nil })
			return err
		},
		"3 policies of 2 providers": func() error {
			_, err := f.admin.Update(ctx, names[:2], func([]Stored) ([]*quota.Policy, error) { return make([]*quota.Policy, 3), nil })
			return err
		},
		"one transaction": func() error {
			_, err := f.admin.Update(ctx, many, each(slices.Repeat([]int64{1}, len(many))...))
			return err
		},
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if s, err := f.admin.Get(ctx, "a"); err != nil || s.Policy.Limits[0].Permits != 1 {
		t.Errorf("a refused change left %+v, %v", s, err)
	}
	if got, err := f.admin.Update(ctx, names, each(0, 0, 0)); err != nil || got[0].Revision != all[0].Revision {
		t.Errorf("nothing to change: %v, %v", got, err)
	}
	if got, err := f.admin.Update(ctx, nil, each()); err != nil || len(got) != 0 {
		t.Errorf("nobody to change: %v, %v", got, err)
	}
}

// TestMostTogetherFitsEtcd sends as much as one transaction may have.
func TestMostTogetherFitsEtcd(t *testing.T) {
	f := setup(t)
	var names []string
	for i := range maxTogether {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	if _, err := f.admin.Update(t.Context(), names, each(slices.Repeat([]int64{1}, maxTogether)...)); err != nil {
		t.Error(err)
	}
}

// requests counts what a client asks of etcd.
type requests struct {
	clientv3.KV
	n int
}

func (r *requests) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r.n++
	return r.KV.Get(ctx, key, o...)
}

func (r *requests) Txn(ctx context.Context) clientv3.Txn {
	r.n++
	return r.KV.Txn(ctx)
}

// TestAChangeIsTwoRequests: one reads, one writes, whatever the history holds; so
// no housekeeping holds up the answer.
func TestAChangeIsTwoRequests(t *testing.T) {
	f := setup(t)
	count := &requests{KV: f.admin.kv}
	f.admin.kv = count
	for i := range maxRecords + 2 {
		count.n = 0
		if _, err := f.admin.Put(t.Context(), "p", limit(int64(i))); err != nil || count.n != 2 {
			t.Fatalf("change %d: %d requests, %v; want 2", i, count.n, err)
		}
	}
}
