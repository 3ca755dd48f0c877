// Package report holds a test of the page that loadgen --html writes, in a real
// browser.
//
// It needs build tag e2e and chromium in the path.
package report
