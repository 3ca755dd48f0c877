//go:build race

package share_test

// slow says that the race detector watches.
const slow = true
