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
