//go:build !race

package consumer

// interruptions is how often each of TestTryTakeLosesNoPermits' callers takes: so often that
// some calls are interrupted at the one place that matters.
const interruptions = 150_000
