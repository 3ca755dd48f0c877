package coordinator

import (
	"net/url"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

// FuzzKeys: a key names a provider or an incarnation only if it is spelled as we
// spell that name, so that no two keys stand for one.
func FuzzKeys(f *testing.F) {
	k := layout
	for _, key := range []string{
		k.Policy("payments/charge"), k.Instance("payments/charge", "worker-7.1a2b.1"), k.Instances("p"), k.Throttle("p"), k.Overrides("p", 7), k.AllOverrides("p") + "+7", "", "/",
		k.Provider("") + "a%2fb/policy", k.Provider("") + "%61/policy", k.Instances("p") + "%zz", k.Instances("p") + "a/b", k.Instances("p") + "\xff",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if p, ok := k.ProviderOf(key); ok && k.Policy(p) != key {
			t.Errorf("%q is taken for the policy of %q, which is %q", key, p, k.Policy(p))
		}
		if id, ok := keys.IncarnationIn(k.Instances("p"), key); ok && k.Instance("p", id) != key {
			t.Errorf("%q is taken for incarnation %q, which is %q", key, id, k.Instance("p", id))
		}
		if bucket, ok := k.BucketOf("p", key); ok && k.Overrides("p", bucket) != key {
			t.Errorf("%q is taken for document %d of overrides, which is %q", key, bucket, k.Overrides("p", bucket))
		}
		if next := k.AfterMany(key); next <= key {
			t.Errorf("a listing goes from %q back to %q", key, next)
		}
	})
}

// FuzzRecord and FuzzInstanceKey feed what operators' tools read beside policies.
// Nothing may panic, what is wrong is told, and what is taken for an instance is
// valid.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"schema":1,"author":"ann@host","time":"2027-01-01T00:00:00Z","old_revision":7,"old":{"schema":1},"new":{"schema":1,"limits":[{"permits":5,"window":"1s"}]}}`))
	f.Add([]byte(`{"schema":1,"time":"9999-12-31T23:59:59Z","new":[]}`))
	f.Add([]byte(`null`))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, value []byte) {
		r := recordOf("key", value, 3)
		if r.Revision != 3 {
			t.Errorf("revision %d", r.Revision)
		}
		if r.Problem != nil && (r.New != nil || !strings.Contains(r.Problem.Error(), `"key"`)) {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzInstanceKey(f *testing.F) {
	f.Add([]byte(`{"schema":1,"name":"worker-7","from":"2027-01-01T00:00:04Z"}`), []byte(`{"state":"active","used":5}`), int64(0))
	f.Add([]byte(`{"schema":1,"until":"0000-01-01T00:00:00Z"}`), []byte(`{"time":"9999-12-31T23:59:59Z","used":9223372036854775807}`), int64(7))
	f.Add([]byte("\xff"), []byte(`[`), int64(7))
	f.Fuzz(func(t *testing.T, value, report []byte, lease int64) {
		s := instanceOf("id", &mvccpb.KeyValue{Key: []byte("key"), Value: value, Lease: lease})
		if err := s.Instance.Validate(); err != nil || s.Instance.ID != "id" {
			t.Errorf("%q is instance %+v, %v", value, s.Instance, err)
		}
		if lease == 0 && s.Problem == nil {
			t.Error("nobody is told of a key without a lease")
		}
		takeReport(&s, &mvccpb.KeyValue{Key: []byte("key"), Value: report})
		if s.Report == nil && s.Problem == nil {
			t.Errorf("nobody is told of report %q", report)
		}
	})
}

// TestNamesComeBack: whatever a provider or an incarnation is called, its key
// tells.
func TestNamesComeBack(t *testing.T) {
	k := layout
	for _, name := range []string{"a", "a/b", "ünï", "100%", "a b", "a%2Fb", "~", "-._", "x+y&z=$@:"} {
		if got, ok := k.ProviderOf(k.Policy(name)); !ok || got != name {
			t.Errorf("provider %q comes back as %q, %v", name, got, ok)
		}
		if got, ok := keys.IncarnationIn(k.Instances("p"), k.Instance("p", name)); !ok || got != name {
			t.Errorf("incarnation %q comes back as %q, %v", name, got, ok)
		}
		if url.PathEscape(name) == "" || quota.ValidateProvider(name) != nil {
			t.Errorf("%q is no name", name)
		}
	}
}
