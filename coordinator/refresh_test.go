package coordinator

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Whatever is written in between, an earlier answer changes nothing but the cost.
func TestEarlierAnswerChangesNothing(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	put := func(key, value string) func() {
		return func() {
			if _, err := f.client.Put(t.Context(), f.prefix+key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(key string) func() {
		return func() {
			if _, err := f.client.Delete(t.Context(), f.prefix+key); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := func(used int) string {
		text, err := json.Marshal(map[string]any{"schema": 1, "state": "active", "used": used})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var last protocol.Fleet
	for i, step := range []func(){
		func() {},
		put("providers/p/instances/a", `{"schema":1,"name":"a"}`),
		put("reports/p/a", report(1)),
		func() {},
		put("reports/p/a", report(2)),
		put("providers/p/instances/b", "broken"),
		put("reports/p/b", "broken"),
		func() {},
		put("reports/p/b", report(3)),
		put("providers/p/instances/a", `{"schema":1,"name":"a","weight":7}`),
		remove("reports/p/a"),
		remove("providers/p/instances/b"),
		put("providers/p/instances/b", `{"schema":1,"name":"again"}`),
		remove("providers/p/policy"),
	} {
		step()
		next, err := feed.Inside(f.admin).Fleet(t.Context(), "p", &last)
		if err != nil {
			t.Fatal(err)
		}
		want, err := feed.Inside(f.admin).Fleet(t.Context(), "p", nil)
		if err != nil {
			t.Fatal(err)
		}
		// Shares depend on the window that runs.
		ignore := []cmp.Option{
			cmpopts.IgnoreFields(protocol.InstanceStatus{}, "Share", "ShareKnown"),
			cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) && (a == nil) == (b == nil) }),
		}
		if diff := cmp.Diff(want, next, ignore...); diff != "" {
			t.Errorf("after step %d: -without an earlier answer +with one\n%s", i, diff)
		}
		last = next
	}
	if _, err := feed.Inside(f.admin).Fleet(t.Context(), "a//b", nil); err == nil {
		t.Errorf("a provider that cannot be: %v", err)
	}
}
