package envoy

import (
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics shows the service to Prometheus.
type metrics struct {
	ok, over, failed prometheus.Counter // calls of ShouldRateLimit
}

func newMetrics(r prometheus.Registerer) *metrics {
	calls := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_envoy_calls_total", Help: "Answers of RateLimitService by code: ok, over_limit, error.",
	}, []string{"code"})
	return &metrics{calls.WithLabelValues("ok"), calls.WithLabelValues("over_limit"), calls.WithLabelValues("error")}
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
