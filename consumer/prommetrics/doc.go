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
