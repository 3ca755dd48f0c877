//go:build !race

package histories

// slow says that the race detector watches.
const slow = false
