//go:build race

package shipped

// slow says that the race detector watches, which makes histories some ten times as slow.
const slow = true
