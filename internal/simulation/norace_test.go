//go:build !race

package simulation

// Slow says that the race detector watches.
const Slow = false
