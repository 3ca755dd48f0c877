//go:build load

package live_test

// foreignKeys is how many instance keys somebody else writes.
const foreignKeys = 20_000
