//go:build !race

package shipped

// slow says that the race detector watches.
const slow = false
