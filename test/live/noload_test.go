//go:build !load

package live_test

// foreignKeys is how many instance keys somebody else writes; with -tags load they
// are fifty times as many, and take minutes.
const foreignKeys = 2_000
