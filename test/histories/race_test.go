//go:build race

package histories

// slow says that the race detector watches, which makes histories some ten times as slow.
const slow = true
