package protocol_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func TestNamesOfKeys(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a": "", strings.Repeat("x", 256): "", "käse / 5 %": "", "..": "",
		"":                       "is empty",
		strings.Repeat("x", 257): "has 257 bytes, more than the most, 256",
		"a\nb":                   "has a control character",
		"a\u0085b":               "has a control character",
		"a\x80":                  "is not valid UTF-8",
	} {
		err := protocol.ValidateKey(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

func TestNamesOfLabels(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a": "", strings.Repeat("x", 64): "", "käse / 5 %": "",
		"":                      "is empty",
		strings.Repeat("x", 65): "has 65 bytes, more than the most, 64",
		"a\nb":                  "has a control character",
	} {
		err := protocol.ValidateLabel(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "label ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// The policy of keys has their limits and the provider's rules, and divides equally.
// An instance that ends waits for the edge of windows that are shared, not for that of an hour.
func TestLongLimitsOfKeysDelayNoEnd(t *testing.T) {
	t.Parallel()
	p := quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: 2 * time.Second}}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 5000, Window: time.Hour}}}}.WithDefaults()
	if w := protocol.LongestWindow(&p); w != 2*time.Second {
		t.Errorf("%v, want 2s", w)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestOfKeys(t *testing.T) {
	t.Parallel()
	p := quota.Policy{
		Limits: []quota.Limit{{Permits: 100, Window: time.Second}},
		Mode:   quota.ModePause, Next: []quota.LimitChange{{}}, Requires: []string{"x"},
	}
	if protocol.OfKeys(&p) != nil || protocol.OfKeys(nil) != nil {
		t.Error("keys without limits have a policy")
	}
	p.Keys.Limits = []quota.Limit{{Permits: 3, Window: 5 * time.Second}}
	k := protocol.OfKeys(&p)
	if k.Limits[0].Permits != 3 || k.Next != nil || k.Mode != quota.ModePause || len(k.Requires) != 1 {
		t.Errorf("%+v", k)
	}
	if protocol.LongestWindow(&p) != 5*time.Second {
		t.Error("a newcomer would begin within a window of keys")
	}
}
