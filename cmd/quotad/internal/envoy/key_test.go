package envoy

import (
	"strings"
	"testing"
	"testing/synctest"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// A rule takes the key from the value of an entry. Each value has its own limit, and a value
// that no key can have is refused: it must not pass without a key.
func TestKeysOfDescriptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rules = `
descriptors:
- {domain: edge, entries: [{key: route, value: all}], provider: api}
- {domain: edge, entries: [{key: route}, {key: account}], provider: api, key_from: account}
`
		policy := policyOf(t, "8/s")
		policy.Keys = quota.Keys{Limits: policyOf(t, "2/s").Limits, Most: 10}
		_, conn := serveOf(t, rules, map[string]quota.Policy{"api": policy})
		client := rlsv3.NewRateLimitServiceClient(conn)
		for _, c := range []struct{ descriptors, codes, fields string }{
			{"route=x,account=a", "OK [OK]", `"default-1s";r=7;t=1, "default-key-1s";r=1;t=1`},
			{"route=y,account=a", "OK [OK]", `"default-1s";r=6;t=1, "default-key-1s";r=0;t=1`},
			{"route=x,account=a", "OVER_LIMIT [OVER_LIMIT]", `"default-1s";r=6;t=1, "default-key-1s";r=0;t=1`},
			{"route=x,account=b,1 route=y,account=b,1", "OK [OK OK]", `"default-1s";r=4;t=1, "default-key-1s";r=0;t=1|"default-1s";r=4;t=1, "default-key-1s";r=0;t=1`},
			{"route=x,account=b route=x,account=c", "OVER_LIMIT [OVER_LIMIT OK]", `"default-1s";r=4;t=1, "default-key-1s";r=0;t=1|"default-1s";r=4;t=1, "default-key-1s";r=2;t=1`},
			{"route=all route=x,account=c", "OK [OK OK]", `"default-1s";r=2;t=1|"default-1s";r=2;t=1, "default-key-1s";r=1;t=1`},
			{"route=x,account=", "OVER_LIMIT [OVER_LIMIT]", ""}, // no limit decided
			{"route=x,account=" + strings.Repeat("x", 257), "OVER_LIMIT [OVER_LIMIT]", ""},
			{"route=x,account=c,0", "OK [OK]", `"default-1s";r=2;t=1, "default-key-1s";r=1;t=1`},
		} {
			r, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors(c.descriptors)})
			if err != nil {
				t.Fatal(c.descriptors, err)
			}
			if got := codesOf(r); got != c.codes || field(r, "Ratelimit") != c.fields {
				t.Errorf("%.40s: %s and\n%s, not %s and\n%s", c.descriptors, got, field(r, "Ratelimit"), c.codes, c.fields)
			}
		}
	})
}

// Envoy does not say when a request has ended: what counts calls that are under way is refused, and keeps nothing.
func TestALimitInFlightIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rules = `
descriptors:
- {domain: edge, entries: [{key: route, value: calls}], provider: calls}
- {domain: edge, entries: [{key: route}], provider: api}
`
		_, conn := serveOf(t, rules, map[string]quota.Policy{"api": policyOf(t, "8/s"), "calls": policyOf(t, "2 inflight hold=10m")})
		client := rlsv3.NewRateLimitServiceClient(conn)
		for _, c := range []struct{ descriptors, codes string }{
			{"route=calls", "OVER_LIMIT [OVER_LIMIT]"}, {"route=calls route=x", "OVER_LIMIT [OVER_LIMIT OVER_LIMIT]"}, {"route=x,8", "OK [OK]"},
		} {
			r, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors(c.descriptors)})
			if err != nil {
				t.Fatal(c.descriptors, err)
			}
			if got := codesOf(r); got != c.codes {
				t.Errorf("%s: %s, not %s", c.descriptors, got, c.codes)
			}
		}
	})
}
