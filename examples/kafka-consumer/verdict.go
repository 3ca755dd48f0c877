package main

import (
	"fmt"
	"io"
	"time"

	"github.com/quotient-limiter/quotient/examples/kafka-consumer/provider"
)

// result is what a demonstration has seen.
type result struct {
	produced int64
	provider provider.Totals
	dead     int64 // different dead letters
	deadMore int64 // written again
	late     int64 // permits that were not used
	took     time.Duration
	window   time.Duration
}

// lost is the number of records that were neither processed nor put with the
// dead letters.
func (r *result) lost() int64 { return r.produced - r.provider.Processed - r.dead }

// held is whether all that is promised was kept: nothing lost, and the provider
// never over its limit by its own clock.
func (r *result) held() bool { return r.lost() == 0 && r.provider.Over == 0 && r.produced > 0 }

func (r *result) write(w io.Writer) {
	p := r.provider
	verdict := "HELD"
	if !r.held() {
		verdict = "NOT HELD"
	}
	fmt.Fprintf(w, `
produced               %d
processed              %d (at least once)
  again                %d (duplicates)
dead letters           %d (and %d again)
lost                   %d
provider's worst %-5v %d of %d records; %d windows over
calls                  %d, of which %d records were answered 429, and %d rejected
permits not used       %d, because their window was nearly over
time                   %v
%s: %d of %d records lost, the provider never got more than %d of %d records in %v
`, r.produced, p.Processed, p.Repeated, r.dead, r.deadMore, r.lost(), r.window, p.Worst.Records, p.Limit, p.Over,
		p.Calls, p.Refused, p.Rejected, r.late, r.took.Round(100*time.Millisecond),
		verdict, r.lost(), r.produced, p.Worst.Records, p.Limit, r.window)
}
