package feed

import "context"

type turnKey struct{}

// WithTurn has a call for a key enter before it takes the provider's permits, when it has the
// key's, and leave after. So callers can be put in an order of their own for the provider, and
// one that waits for a key holds up no other.
func WithTurn(ctx context.Context, enter func(context.Context) (leave func())) context.Context {
	return context.WithValue(ctx, turnKey{}, enter)
}

// Turn returns the function of WithTurn; nil if there is none.
func Turn(ctx context.Context) func(context.Context) (leave func()) {
	enter, _ := ctx.Value(turnKey{}).(func(context.Context) func())
	return enter
}
