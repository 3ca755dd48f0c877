package coordinator

import (
	"net/url"
	"testing"

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
