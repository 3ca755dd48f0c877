package envoy

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// A rule takes the label of its calls from an entry, beside their key. An empty value is no
// label, and one that no label can have is an error.
func TestLabelsOfDescriptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := quota.Policy{Limits: policyOf(t, "10/s").Limits}
		p.Keys.Limits = p.Limits
		l, err := consumer.Open(t.Context(), consumer.Fixed(p), "p", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			rule  descriptorRule
			value string
			ok    bool
		}{
			{descriptorRule{LabelFrom: "route"}, "pay", true},
			{descriptorRule{LabelFrom: "route", KeyFrom: "account"}, "pay", true},
			{descriptorRule{LabelFrom: "route"}, "", true},
			{descriptorRule{LabelFrom: "route"}, strings.Repeat("x", 65), false},
			{descriptorRule{KeyFrom: "account"}, "pay", true},
		} {
			entries := []*commonv3.RateLimitDescriptor_Entry{{Key: "account", Value: "a"}, {Key: "route", Value: c.value}}
			from, key, err := c.rule.from(l, entries)
			if (err == nil) != c.ok || c.ok && (key == "a") != (c.rule.KeyFrom != "") {
				t.Errorf("%+v, %q: key %q, %v", c.rule, c.value, key, err)
			}
			if err == nil {
				if _, err := from.Take(t.Context(), 1, 0); err != nil {
					t.Error(err)
				}
			}
		}
		if st := l.Status(); st.Issued != 4 || !maps.Equal(st.IssuedByLabel, map[string]int64{"pay": 2, "other": 0}) {
			t.Errorf("issued %d, by label %v", st.Issued, st.IssuedByLabel)
		}
	})
}
