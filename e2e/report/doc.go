// Package report opens the page that loadgen --html writes in a real browser,
// Debian's Chromium. It is a module of its own, so that nobody else gets the
// library that drives the browser.
//
// It needs build tag e2e and chromium in the path; SCREENSHOTS names a folder to
// keep what the test sees:
//
//	SCREENSHOTS=/tmp go test -tags e2e .
package report
