//go:build race

package simulation

// Slow says that the race detector watches, which makes histories some ten
// times as slow.
const Slow = true
