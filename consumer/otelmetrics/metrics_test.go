package otelmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/otelmetrics"
	"github.com/quotient-limiter/quotient/consumer/prommetrics"
	"github.com/quotient-limiter/quotient/quota"
)

// opener is a Metrics of either package.
type opener interface {
	Open(ctx context.Context, source consumer.Source, provider string, o consumer.Options) (*consumer.Limiter, error)
}

// play opens a limiter and lets it issue, refuse, owe, wait and pause. It takes 2 s
// of a bubble's time.
func play(t *testing.T, m opener) *consumer.Limiter {
	t.Helper()
	limits, err := quota.ParseLimits("3/s,100/d")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	l, err := m.Open(ctx, consumer.Fixed(quota.Policy{Limits: limits}), "payments/charge", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l.Label("reindex").TryTake(2).N()
	_, _ = l.Take(ctx, 2, 0)
	if _, err := l.Take(ctx, 3, consumer.Forever); err != nil { // waits for the next second
		t.Fatal(err)
	}
	c, cancel := context.WithCancel(ctx)
	time.AfterFunc(5*time.Millisecond, cancel)
	_ = l.Acquire(c, consumer.Forever)
	time.Sleep(2*time.Second - time.Since(time.Unix(time.Now().Unix(), 0)))
	if err := l.TryTake(1).Settle(5); err != nil {
		t.Fatal(err)
	}
	l.Throttled(30*time.Second, "429")
	return l
}

// point is one value as text: name, type, unit and attributes, in one form for both.
func point(name, kind, unit string, labels map[string]string, value any) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return fmt.Sprintf("%s %s %s {%s} %v", name, kind, unit, strings.Join(pairs, ","), value)
}

// unitOf returns the unit that a name of Prometheus ends with.
func unitOf(name string) string {
	switch {
	case strings.HasSuffix(strings.TrimSuffix(name, "_total"), "_seconds"):
		return "s"
	case strings.HasPrefix(name, "quotient_permits_"), strings.HasSuffix(name, "_permits"):
		return "{permit}"
	}
	return map[string]string{"quotient_waiters": "{caller}", "quotient_waiters_by_class": "{caller}", "quotient_keys_in_use": "{key}", "quotient_key_permits_refused_total": "{permit}", "quotient_key_permits_lent_total": "{permit}", "quotient_key_permits_borrowed_total": "{permit}", "quotient_key_asks_total": "{ask}", "quotient_calls_impossible_total": "{call}", "quotient_calls_forgotten_total": "{call}", "quotient_asks_total": "{ask}", "quotient_fruitless_windows_total": "{window}", "quotient_first_loans_total": "{window}", "quotient_instances": "{instance}", "quotient_state_changes_total": "{change}"}[name]
}

func fromPrometheus(t *testing.T, g prometheus.Gatherer) (points []string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			var kind string
			var value any
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				kind, value = "counter", m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				kind, value = "gauge", m.GetGauge().GetValue()
			default:
				var buckets []uint64
				for i, b := range m.GetHistogram().GetBucket() {
					n := b.GetCumulativeCount()
					if i > 0 {
						n -= m.GetHistogram().GetBucket()[i-1].GetCumulativeCount()
					}
					buckets = append(buckets, n)
				}
				if len(buckets) == 15 { // without the last, which has no bound
					buckets = append(buckets, m.GetHistogram().GetSampleCount()-m.GetHistogram().GetBucket()[14].GetCumulativeCount())
				}
				kind, value = "histogram", fmt.Sprint(m.GetHistogram().GetSampleSum(), buckets)
				if m.GetHistogram().GetSampleCount() == 0 {
					continue // prommetrics begins at 0, OpenTelemetry with the first wait
				}
			}
			points = append(points, point(f.GetName(), kind, unitOf(f.GetName())+" "+f.GetHelp(), labels, value))
		}
	}
	slices.Sort(points)
	return points
}

func attributes(s attribute.Set) map[string]string {
	m := map[string]string{}
	for _, a := range s.ToSlice() {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

func fromOTel(t *testing.T, r *sdk.ManualReader) (points []string) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(kind string, set attribute.Set, value any) {
				points = append(points, point(m.Name, kind, m.Unit+" "+m.Description, attributes(set), value))
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				if !data.IsMonotonic || data.Temporality != metricdata.CumulativeTemporality {
					t.Errorf("%s: %+v", m.Name, data)
				}
				for _, p := range data.DataPoints {
					add("counter", p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add("gauge", p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add("histogram", p.Attributes, fmt.Sprint(p.Sum, p.BucketCounts))
				}
			default:
				t.Errorf("%s is %T", m.Name, data)
			}
		}
	}
	slices.Sort(points)
	return points
}

// Every metric has the name, type, unit, attributes and value of prommetrics', as the SDK
// reads them, and as its exporter shows them to Prometheus.
func TestTheMetricsArePrommetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown := prommetrics.New()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(shown)

		reader, exported := sdk.NewManualReader(), prometheus.NewPedanticRegistry()
		exporter, err := otelprom.New(otelprom.WithRegisterer(exported), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := otelmetrics.New(sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithReader(exporter)))
		if err != nil {
			t.Fatal(err)
		}
		first := play(t, shown)
		want := fromPrometheus(t, registry)
		second := play(t, metrics)
		// Two lives at other times differ in nothing but the end of the day, which is the same day.
		if diff := cmp.Diff(want, fromOTel(t, reader)); diff != "" {
			t.Errorf("by the SDK's reader (-prommetrics +otelmetrics):\n%s", diff)
		}
		if diff := cmp.Diff(want, fromPrometheus(t, exported)); diff != "" {
			t.Errorf("by the SDK's exporter for Prometheus (-prommetrics +otelmetrics):\n%s", diff)
		}
		described := make(chan *prometheus.Desc, 100)
		shown.Describe(described)
		close(described)
		var missing []string
		for d := range described {
			name := strings.Split(d.String(), `"`)[1]
			if !slices.ContainsFunc(want, func(p string) bool { return strings.HasPrefix(p, name+" ") }) {
				missing = append(missing, name)
			}
		}
		slices.Sort(missing)
		// There is no limit in flight here, and a fixed source measures no clock.
		if diff := cmp.Diff([]string{"quotient_calls_in_flight", "quotient_clock_error_seconds"}, missing); diff != "" {
			t.Errorf("not compared (-want +got):\n%s", diff)
		}

		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range fromOTel(t, reader) {
			if !strings.HasPrefix(p, "quotient_wait_seconds ") { // the SDK keeps a histogram
				t.Errorf("after the limiter's Close: %s", p)
			}
		}
	})
}

func TestCloseShowsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		metrics, err := otelmetrics.New(sdk.NewMeterProvider(sdk.WithReader(reader)))
		if err != nil {
			t.Fatal(err)
		}
		defer play(t, metrics).Close()
		if n := len(fromOTel(t, reader)); n == 0 {
			t.Error("nothing is shown")
		}
		if err := metrics.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range fromOTel(t, reader) {
			if !strings.HasPrefix(p, "quotient_wait_seconds ") {
				t.Errorf("after Close: %s", p)
			}
		}
	})
}

// A provider of meters that refuses an instrument fails New.
func TestNewFailsWithTheMeter(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"quotient_wait_seconds", "quotient_permits_issued_total", "quotient_waiters"} {
		if _, err := otelmetrics.New(refusing{name: name}); err == nil || err.Error() != "no "+name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// refusing is a provider of meters that refuse the instrument of a name.
type refusing struct {
	noop.MeterProvider
	name string
}

type refusingMeter struct {
	noop.Meter
	name string
}

func (r refusing) Meter(string, ...metric.MeterOption) metric.Meter {
	return refusingMeter{name: r.name}
}

func (r refusingMeter) refuse(name string) error {
	if name == r.name {
		return errors.New("no " + name)
	}
	return nil
}

func (r refusingMeter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return noop.Float64Histogram{}, r.refuse(name)
}

func (r refusingMeter) Float64ObservableCounter(name string, _ ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	return noop.Float64ObservableCounter{}, r.refuse(name)
}

func (r refusingMeter) Float64ObservableGauge(name string, _ ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, r.refuse(name)
}
