// Package prommetrics shows limiters to Prometheus.
//
//	metrics := prommetrics.New()
//	registry.MustRegister(metrics)
//	limiter, err := metrics.Open(ctx, session, "payments/charge", consumer.Options{})
//
// There is no global registry and no background work: a scrape reads what each limiter
// knows at that moment. A permit costs the same with and without metrics; a wait costs
// one observation of a histogram.
//
// Every metric has the label provider. Prometheus' target labels tell instances apart;
// the rules in deploy/ sum over them. Counters begin at 0 when a limiter is opened.
package prommetrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/measure"
)

// Metrics is a prometheus.Collector of the limiters that were opened through it.
// Its methods are safe for concurrent use. Make one with New.
//
// Use one for each source: a provider is shown once, however often it was
// opened.
type Metrics struct {
	set   measure.Set
	waits *prometheus.HistogramVec
	desc  map[*measure.Metric]*prometheus.Desc
}

// New returns a collector without limiters.
func New() *Metrics {
	m := &Metrics{
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: measure.WaitName, Help: measure.WaitHelp, Buckets: measure.WaitBounds,
			// A native histogram is finer, where the server takes it.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"provider", "result"}),
		desc: map[*measure.Metric]*prometheus.Desc{},
	}
	m.set.Forget = func(provider string) { m.waits.DeletePartialMatch(prometheus.Labels{"provider": provider}) }
	for _, a := range measure.All {
		labels := []string{"provider"}
		if a.Label != "" {
			labels = append(labels, a.Label)
		}
		m.desc[a] = prometheus.NewDesc(a.Name, a.Help, labels, nil)
	}
	return m
}

// Open opens a limiter as consumer.Open does, and shows it until it is closed. The
// options' OnWait is called too.
//
// Open all limiters of a provider through the same Metrics: it counts the waits of those
// that it opened.
func (m *Metrics) Open(ctx context.Context, source consumer.Source, provider string, o consumer.Options) (*consumer.Limiter, error) {
	waits := map[string]prometheus.Observer{}
	for _, result := range measure.WaitResults {
		waits[result] = m.waits.WithLabelValues(provider, result)
	}
	return m.set.Open(ctx, source, provider, o, func(_ context.Context, d time.Duration, result string) {
		waits[result].Observe(d.Seconds())
	})
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.waits.Describe(ch)
	for _, d := range m.desc {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.set.Read(func(a *measure.Metric, provider, label string, v float64) {
		kind, labels := prometheus.GaugeValue, []string{provider}
		if a.Counter() {
			kind = prometheus.CounterValue
		}
		if a.Label != "" {
			labels = append(labels, label)
		}
		ch <- prometheus.MustNewConstMetric(m.desc[a], kind, v, labels...)
	})
	m.waits.Collect(ch)
}

var _ prometheus.Collector = (*Metrics)(nil)
