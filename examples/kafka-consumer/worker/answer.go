package worker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Call makes one call to the provider that carries the given records, at least
// one and at most Config.Batch. Each of them has cost a permit. It must return
// soon after ctx ends, and is called by several workers at once.
//
// A call may be repeated for a record that was processed already: after a crash,
// or when an answer was lost. A provider that takes an idempotency key is best
// given topic, partition and offset.
type Call func(ctx context.Context, records []*kgo.Record) Answer

// Answer is what came of a call. The zero value: every record was processed.
type Answer struct {
	// Err says that the call as a whole failed, for a reason that is not its
	// records' (no connection, no answer in time, 503): all are tried again,
	// later and without end.
	Err error
	// Rejected are the records, by index, that the provider refused for their
	// own sake. Each is tried again alone, Config.Attempts times in all, and then
	// goes to the dead letters. The others were processed. Only without Err.
	Rejected []int
	// Reason is why they were rejected; it goes with a dead letter.
	Reason string
	// RetryAfter, with an Err, is how long the provider wants to be left alone:
	// the limiter is drained for that long.
	RetryAfter time.Duration
}

// backoff is the time until a failed record is tried for the n-th time again:
// 100 ms, doubled each time, 10 s at most.
func backoff(n int) time.Duration {
	const first, most = 100 * time.Millisecond, 10 * time.Second
	return min(first<<min(max(n-1, 0), 10), most)
}
