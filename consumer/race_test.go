//go:build race

package consumer

// interruptions is how often each of TestTryTakeLosesNoPermits' callers takes. The race
// detector needs few: it looks at the order of accesses, not at what is lost.
const interruptions = 5_000
