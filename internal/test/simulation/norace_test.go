//go:build !race

package simulation

// slow says that the race detector watches.
const slow = false
