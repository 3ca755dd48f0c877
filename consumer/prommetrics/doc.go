// Package prommetrics shows limiters to Prometheus.
//
//	metrics := prommetrics.New()
//	registry.MustRegister(metrics)
//	limiter, err := metrics.Open(ctx, session, "payments/charge", consumer.Options{})
//
// There is no global registry and no background work: a scrape reads what each
// limiter knows at that moment. A permit costs the same with and without; a
// caller that had to wait pays for one observation of a histogram.
//
// Every metric has the label provider. What differs between instances differs by
// the labels that Prometheus gives each of its targets; the rules in deploy/ sum
// over them. Counters begin at 0 when a limiter is opened.
package prommetrics
