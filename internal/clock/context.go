package clock

import "context"

type contextKey struct{}

// With returns a context with which coordinator.Join uses the clock c. It is for this
// module's programs and tests, which set clocks apart.
func With(ctx context.Context, c *Clock) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// Of returns the context's clock, or a new one.
func Of(ctx context.Context) *Clock {
	if c, ok := ctx.Value(contextKey{}).(*Clock); ok {
		return c
	}
	return New()
}
