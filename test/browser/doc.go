// Package browser holds tests of quota-admin's dashboard, against a real etcd and real
// instances, and of the page that loadgen --html writes, in Debian's Chromium. It is a
// module of its own, so that nobody else gets the library that drives the browser.
//
// They need build tag e2e and chromium in the path. `make screenshots` keeps what they
// see.
package browser
