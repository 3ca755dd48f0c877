// Package prometheus runs a real Prometheus, as its distribution ships it,
// against a running fleet: the scrape, the rules of deploy/, and every query of
// the dashboard. Its tests have the build tag e2e:
//
//	go test -tags e2e ./test/prometheus
package prometheus
