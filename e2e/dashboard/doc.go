// Package dashboard holds tests of quota-admin's dashboard in a real browser,
// Debian's Chromium, against a real etcd and real instances. They are a module of
// their own, so that nobody else gets the library that drives the browser.
//
// They need build tag e2e and chromium in the path:
//
//	go test -tags e2e ./...
//
// `make screenshots` keeps what the tests see.
package dashboard
