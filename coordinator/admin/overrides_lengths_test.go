package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// TestOverridesHaveFewWindows: each instance counts each key in the windows of all overrides, so
// their lengths are bounded.
func TestOverridesHaveFewWindows(t *testing.T) {
	f := setup(t)
	setKeyed(f)
	all := map[string]*protocol.Override{}
	for n := range protocol.MaxOverrideWindows {
		all[fmt.Sprint("key-", n)] = &protocol.Override{Limits: []quota.Limit{{Permits: 1, Window: time.Second + time.Duration(n)*time.Millisecond}}}
	}
	if _, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", "", to(all)); err != nil {
		t.Fatal(err)
	}
	_, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", "", to(keyLimits("another", "1/m")))
	if err == nil || !strings.Contains(err.Error(), "windows of 17 lengths: at most 16") {
		t.Errorf("an override with one length more: %v", err)
	}
	if _, err := feed.Inside(f.admin).SetOverrides(t.Context(), "p", "", to(keyLimits("another", "1/s"))); err != nil {
		t.Errorf("an override with a length of others: %v", err)
	}
}
