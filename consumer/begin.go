package consumer

import (
	"context"
	"fmt"
	"time"
)

// InFlight reports whether the permit is of a limit in flight: its calls count until Done.
func (p Permit) InFlight() bool { return p.grant.InFlight() && p.issued > 0 }

// Begin returns a context for the permit's calls, and the function to call when they have ended. Under a
// limit in flight the context ends at Until, by the limiter's clock, with context.DeadlineExceeded; the
// function ends the context and is Done. Under other limits they are ctx and a function that does nothing,
// so that a program need not know the limit:
//
//	ctx, done := permit.Begin(ctx)
//	defer done()
func (p Permit) Begin(ctx context.Context) (_ context.Context, done func()) {
	if !p.InFlight() {
		return ctx, func() {}
	}
	k := p.of.core
	left := time.Duration(p.grant.End - k.clock.Latest(k.clock.Now()))
	why := fmt.Errorf("consumer: %s: the call has lasted for as long as the limit's hold allows: %w", k.provider, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, left, why)
	return ctx, func() {
		cancel()
		p.Done()
	}
}
