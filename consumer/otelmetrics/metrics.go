// Package otelmetrics shows limiters to OpenTelemetry, by the names, units and attributes
// of prommetrics' metrics and labels:
//
//	metrics, err := otelmetrics.New(meterProvider)
//	limiter, err := metrics.Open(ctx, session, "payments/charge", consumer.Options{})
//
// So the rules and dashboards in deploy/ apply where these metrics go to Prometheus.
// A collection reads what each limiter knows at that moment. A wait is recorded with the
// caller's context, so that its trace can be an exemplar.
package otelmetrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/measure"
)

// Metrics shows the limiters that were opened through it. Its methods are safe for
// concurrent use. Make one with New.
//
// Use one for each source: a provider is shown once, however often it was opened.
type Metrics struct {
	set         measure.Set
	waits       metric.Float64Histogram
	instruments map[*measure.Metric]metric.Float64Observable
	callback    metric.Registration
}

// New returns metrics without limiters, whose instruments are of the provider. The error
// is the provider's, if it refuses an instrument.
func New(provider metric.MeterProvider) (*Metrics, error) {
	meter := provider.Meter("github.com/quotient-limiter/quotient/consumer/otelmetrics")
	m := &Metrics{instruments: map[*measure.Metric]metric.Float64Observable{}}
	var err error
	m.waits, err = meter.Float64Histogram(measure.WaitName, metric.WithUnit("s"), metric.WithDescription(measure.WaitHelp),
		metric.WithExplicitBucketBoundaries(measure.WaitBounds...))
	if err != nil {
		return nil, err
	}
	var all []metric.Observable
	for _, a := range measure.All {
		unit, help := metric.WithUnit(a.Unit), metric.WithDescription(a.Help)
		if a.Counter() {
			m.instruments[a], err = meter.Float64ObservableCounter(a.Name, unit, help)
		} else {
			m.instruments[a], err = meter.Float64ObservableGauge(a.Name, unit, help)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m.instruments[a])
	}
	m.callback, err = meter.RegisterCallback(m.observe, all...)
	return m, err
}

// Open opens a limiter as consumer.Open does, and shows it until it is closed. The
// options' OnWait is called too.
//
// Open all limiters of a provider through the same Metrics: it counts the waits of those
// that it opened.
func (m *Metrics) Open(ctx context.Context, source consumer.Source, provider string, o consumer.Options) (*consumer.Limiter, error) {
	results := map[string]metric.MeasurementOption{}
	for _, result := range measure.WaitResults {
		results[result] = metric.WithAttributeSet(attribute.NewSet(attribute.String("provider", provider), attribute.String("result", result)))
	}
	return m.set.Open(ctx, source, provider, o, func(ctx context.Context, d time.Duration, result string) {
		m.waits.Record(ctx, d.Seconds(), results[result])
	})
}

// Close stops showing all limiters. It does not close them.
func (m *Metrics) Close() error {
	return m.callback.Unregister()
}

func (m *Metrics) observe(_ context.Context, o metric.Observer) error {
	m.set.Read(func(a *measure.Metric, provider, label string, v float64) {
		attributes := []attribute.KeyValue{attribute.String("provider", provider)}
		if a.Label != "" {
			attributes = append(attributes, attribute.String(a.Label, label))
		}
		o.ObserveFloat64(m.instruments[a], v, metric.WithAttributes(attributes...))
	})
	return nil
}
