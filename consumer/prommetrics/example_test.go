package prommetrics_test

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/prommetrics"
)

// limiterWithMetrics opens a limiter and a page that Prometheus scrapes.
func limiterWithMetrics(ctx context.Context, session consumer.Source) (*consumer.Limiter, http.Handler, error) {
	registry := prometheus.NewRegistry()
	metrics := prommetrics.New() // one for each session
	registry.MustRegister(metrics)
	limiter, err := metrics.Open(ctx, session, "payments/charge", consumer.Options{})
	if err != nil {
		return nil, nil, err
	}
	return limiter, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// The page is for a server of the application's own, so the example is compiled
// and not run.
func Example() {
	_ = limiterWithMetrics
}
