//go:build !race

package fleet_test

// slow says that the race detector makes everything take ten times as long.
const slow = false
