package envoy

import (
	"sync/atomic"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/quotient-limiter/quotient/quota"
)

// metrics shows both services to Prometheus.
type metrics struct {
	*prometheus.Registry
	ok, over, failed prometheus.Counter // calls of ShouldRateLimit
	allowed, denied  prometheus.Counter // requests that were reported
	streams          atomic.Int64
}

func newMetrics() *metrics {
	m := &metrics{Registry: prometheus.NewRegistry()}
	show := promauto.With(m)
	calls := show.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_envoy_calls_total", Help: "Answers of RateLimitService by code: ok, over_limit, error.",
	}, []string{"code"})
	m.ok, m.over, m.failed = calls.WithLabelValues("ok"), calls.WithLabelValues("over_limit"), calls.WithLabelValues("error")
	requests := show.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_envoy_reported_requests_total", Help: "Requests that Envoys with assignments have reported, by result: allowed, denied.",
	}, []string{"result"})
	m.allowed, m.denied = requests.WithLabelValues("allowed"), requests.WithLabelValues("denied")
	show.NewGaugeFunc(prometheus.GaugeOpts{Name: "quotad_envoy_streams", Help: "Open streams of RateLimitQuotaService."},
		func() float64 { return float64(m.streams.Load()) })
	return m
}

// show shows a pool.
func (m *metrics) show(p *pool) {
	show, labels := promauto.With(m), prometheus.Labels{"provider": p.provider}
	show.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quotad_envoy_assignments", Help: "Assignments in force that admit requests.", ConstLabels: labels,
	}, func() float64 { live, _ := p.counts(); return live })
	show.NewCounterFunc(prometheus.CounterOpts{
		Name: "quotad_envoy_assignments_expired_total", Help: "Assignments that ended because they were not renewed, as after the end of an Envoy.", ConstLabels: labels,
	}, func() float64 { _, expired := p.counts(); return expired })
	p.shorts = show.NewCounter(prometheus.CounterOpts{
		Name: "quotad_envoy_short_windows_total", Help: "Windows in which assignments in force could admit more than the permits set aside, because the share had fallen.", ConstLabels: labels,
	})
}

// answered counts a call.
func (m *metrics) answered(r *rlsv3.RateLimitResponse, err error) {
	switch {
	case err != nil:
		m.failed.Inc()
	case r.GetOverallCode() == rlsv3.RateLimitResponse_OK:
		m.ok.Inc()
	default:
		m.over.Inc()
	}
}

// reported counts the requests of a report and returns them, at most quota.MaxPermits each.
func (m *metrics) reported(u *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage) (requests float64) {
	allowed := float64(min(u.GetNumRequestsAllowed(), uint64(quota.MaxPermits)))
	denied := float64(min(u.GetNumRequestsDenied(), uint64(quota.MaxPermits)))
	m.allowed.Add(allowed)
	m.denied.Add(denied)
	return allowed + denied
}
