//go:build load

package fleet_test

// foreignKeys is how many instance keys somebody else writes.
const foreignKeys = 100_000
