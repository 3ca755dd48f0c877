package envoy

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, server, conn := serve(t, rules, map[string]string{"payments/charge": "2/m", "search": "800/s"})
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if err := testutil.CollectAndCompare(server.quotas.metrics, strings.NewReader(want), names(want)...); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		for _, d := range []string{"route=charge", "route=charge", "route=charge", "route=charge,1000000000001"} {
			_, _ = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors(d)})
		}
		expect("after four calls", `
# HELP quotad_envoy_calls_total Answers of RateLimitService by code: ok, over_limit, error.
# TYPE quotad_envoy_calls_total counter
quotad_envoy_calls_total{code="error"} 1
quotad_envoy_calls_total{code="ok"} 2
quotad_envoy_calls_total{code="over_limit"} 1
`)
		ctx, leave := context.WithCancel(t.Context())
		s := open(ctx, t, conn, "search")
		time.Sleep(10 * time.Second)
		_ = s.Send(report("edge", "search", 101))
		_ = s.Send(report("edge", "unknown", 7)) // it has no rule: not counted
		steady := `
# HELP quotad_envoy_assignments Assignments in force that admit requests.
# TYPE quotad_envoy_assignments gauge
quotad_envoy_assignments{provider="search"} 1
quotad_envoy_assignments{provider="slow"} 0
# HELP quotad_envoy_assignments_expired_total Assignments that ended because they were not renewed, as after the end of an Envoy.
# TYPE quotad_envoy_assignments_expired_total counter
quotad_envoy_assignments_expired_total{provider="search"} 0
quotad_envoy_assignments_expired_total{provider="slow"} 0
# HELP quotad_envoy_reported_requests_total Requests that Envoys with assignments have reported, by result: allowed, denied.
# TYPE quotad_envoy_reported_requests_total counter
quotad_envoy_reported_requests_total{result="allowed"} 50
quotad_envoy_reported_requests_total{result="denied"} 52
# HELP quotad_envoy_short_windows_total Windows in which assignments in force could admit more than the permits set aside, because the share had fallen.
# TYPE quotad_envoy_short_windows_total counter
quotad_envoy_short_windows_total{provider="search"} 0
quotad_envoy_short_windows_total{provider="slow"} 0
# HELP quotad_envoy_streams Open streams of RateLimitQuotaService.
# TYPE quotad_envoy_streams gauge
quotad_envoy_streams 1
`
		expect("with an Envoy", steady)
		if err := f.sources["search"].Set(policyOf(t, "100/s")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		fallen := strings.Replace(steady, `short_windows_total{provider="search"} 0`, `short_windows_total{provider="search"} 2`, 1)
		expect("after a fall", fallen)
		leave()
		time.Sleep(ttl + 3*slack)
		expect("without it", strings.NewReplacer(`streams 1`, `streams 0`, `assignments{provider="search"} 1`, `assignments{provider="search"} 0`,
			`expired_total{provider="search"} 0`, `expired_total{provider="search"} 1`).Replace(fallen))
	})
}

// An assignment that ends within a window is not in force in the rest of it, and is counted
// once as expired.
func TestAssignmentsEndWithinAWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, server, conn := serve(t, rules, map[string]string{"search": "9000/m"})
		ctx, leave := context.WithCancel(t.Context())
		open(ctx, t, conn, "search")
		expect := func(wantLive, wantExpired float64) {
			t.Helper()
			if live, expired := server.quotas.pools["search"].counts(); live != wantLive || expired != wantExpired {
				t.Errorf("%v in force and %v expired, not %v and %v", live, expired, wantLive, wantExpired)
			}
		}
		time.Sleep(10 * time.Second)
		leave()
		expect(1, 0)
		time.Sleep(ttl + slack)
		expect(0, 1)
		time.Sleep(time.Minute) // the next window has begun
		expect(0, 1)
	})
}

// names returns the metrics of a text.
func names(text string) (all []string) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" {
			all = append(all, fields[2])
		}
	}
	return all
}
