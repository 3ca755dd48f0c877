package envoy

import (
	"maps"
	"slices"
	"sync/atomic"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-limiter/quotient/quota"
)

// metrics shows both services to Prometheus.
type metrics struct {
	ok, over, failed         atomic.Int64 // calls of ShouldRateLimit
	streams, allowed, denied atomic.Int64
	pools                    map[string]*pool
}

// answered counts a call.
func (m *metrics) answered(r *rlsv3.RateLimitResponse, err error) {
	switch {
	case err != nil:
		m.failed.Add(1)
	case r.GetOverallCode() == rlsv3.RateLimitResponse_OK:
		m.ok.Add(1)
	default:
		m.over.Add(1)
	}
}

// reported counts the requests of a report and returns them, at most quota.MaxPermits each.
func (m *metrics) reported(u *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage) (allowed, denied int64) {
	allowed = int64(min(u.GetNumRequestsAllowed(), uint64(quota.MaxPermits)))
	denied = int64(min(u.GetNumRequestsDenied(), uint64(quota.MaxPermits)))
	m.allowed.Add(allowed)
	m.denied.Add(denied)
	return allowed, denied
}

var (
	calls       = prometheus.NewDesc("quotad_envoy_calls_total", "Answers of RateLimitService by code: ok, over_limit, error.", []string{"code"}, nil)
	streams     = prometheus.NewDesc("quotad_envoy_streams", "Open streams of RateLimitQuotaService.", nil, nil)
	requests    = prometheus.NewDesc("quotad_envoy_reported_requests_total", "Requests that Envoys with assignments have reported, by result: allowed, denied.", []string{"result"}, nil)
	assignments = prometheus.NewDesc("quotad_envoy_assignments", "Assignments in force that admit requests.", []string{"provider"}, nil)
	expired     = prometheus.NewDesc("quotad_envoy_assignments_expired_total", "Assignments that ended because they were not renewed, as after the end of an Envoy.", []string{"provider"}, nil)
	short       = prometheus.NewDesc("quotad_envoy_short_windows_total", "Windows in which assignments in force could admit more than the permits set aside, because the share had fallen.", []string{"provider"}, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	send(calls, prometheus.CounterValue, m.ok.Load(), "ok")
	send(calls, prometheus.CounterValue, m.over.Load(), "over_limit")
	send(calls, prometheus.CounterValue, m.failed.Load(), "error")
	send(streams, prometheus.GaugeValue, m.streams.Load())
	send(requests, prometheus.CounterValue, m.allowed.Load(), "allowed")
	send(requests, prometheus.CounterValue, m.denied.Load(), "denied")
	for _, provider := range slices.Sorted(maps.Keys(m.pools)) {
		live, ended, shorts := m.pools[provider].counts()
		send(assignments, prometheus.GaugeValue, live, provider)
		send(expired, prometheus.CounterValue, ended, provider)
		send(short, prometheus.CounterValue, shorts, provider)
	}
}
