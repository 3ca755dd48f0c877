package envoy

import (
	"testing"
	"testing/synctest"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// A rule gives the calls of its descriptor a class: permits kept for critical calls are for
// them. Descriptors of one provider take from it once, by the class of the first.
func TestClassesOfDescriptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rules = `
descriptors:
- {domain: edge, entries: [{key: route, value: pay}], provider: api, class: critical}
- {domain: edge, entries: [{key: route}], provider: api}
`
		policy := policyOf(t, "10/s")
		policy.Release = quota.Release{Critical: 50}
		_, conn := serveOf(t, rules, map[string]quota.Policy{"api": policy})
		client := rlsv3.NewRateLimitServiceClient(conn)
		for _, c := range []struct{ descriptors, codes string }{
			{"route=x,5", "OK [OK]"},
			{"route=x", "OVER_LIMIT [OVER_LIMIT]"},
			{"route=pay,2", "OK [OK]"},
			{"route=pay,1 route=x,1", "OK [OK OK]"},
			{"route=x,1 route=pay,1", "OVER_LIMIT [OVER_LIMIT OVER_LIMIT]"},
			{"route=pay", "OK [OK]"},
			{"route=pay", "OVER_LIMIT [OVER_LIMIT]"},
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
