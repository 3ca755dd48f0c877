package grpclimit

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/admit"
)

// Client takes permits for calls that are made. Under a limit in flight a call counts until it has ended, a
// stream until its last message or error was received or its context has ended; its context ends when its
// permit does: see consumer.Permit.Until. Its methods Unary and Stream are
// interceptors, safe for concurrent use; set the fields before, and do not copy
// it after.
type Client struct {
	// Limiter is the one for all calls.
	Limiter *consumer.Limiter
	// Pick, if set, chooses the limiter of a method, such as "/package.Service/Method", or its
	// class and label by consumer.Limiter.Class and Label. With nil the call passes without a
	// permit.
	Pick func(method string) *consumer.Limiter
	// Key, if set, returns the key of a call, such as its account, and "" if it has none: see
	// consumer.Limiter.Key. A pause after a server's error is of all keys.
	Key func(ctx context.Context, method string) string
	// Cost, if set, returns the number of permits of a call. With 0 or less it passes
	// without one.
	Cost func(method string) int64
	// MaxWait bounds the wait of a call for its permit, besides its context. 0 does
	// not wait; consumer.Forever waits as long as the context allows.
	MaxWait time.Duration
	// MaxPause bounds the pause of the limiter after a server's ResourceExhausted or
	// Unavailable with RetryInfo, besides the policy's BackoffMax; 0 adds no bound. A
	// negative value ignores such errors.
	MaxPause time.Duration
	// Margin is the time that a call needs to reach the server. If the window of its
	// permits ends sooner, at the moment of sending, the permits are released and
	// taken again. The second wait counts toward MaxWait. Default 0: no check.
	Margin time.Duration
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	admitted, err := c.admit(ctx, method)
	if err != nil {
		return err
	}
	ctx, done := admitted.Permit.Begin(ctx)
	defer done()
	err = invoke(ctx, method, req, reply, conn, opts...)
	c.heed(admitted.Limiter, method, err)
	return err
}

// Stream is a grpc.StreamClientInterceptor.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	admitted, err := c.admit(ctx, method)
	if err != nil {
		return nil, err
	}
	ctx, done := admitted.Permit.Begin(ctx)
	s, err := open(ctx, desc, conn, method, opts...)
	c.heed(admitted.Limiter, method, err)
	if err != nil {
		done()
	}
	if err != nil || admitted.Limiter == nil {
		return s, err
	}
	if admitted.Permit.InFlight() {
		context.AfterFunc(ctx, done) // of a stream that nobody reads to its end
	}
	return &heeding{s, !desc.ServerStreams, func(err error) {
		done()
		c.heed(admitted.Limiter, method, err)
	}}, nil
}

// admit takes the call's permits; of none if none are needed.
func (c *Client) admit(ctx context.Context, method string) (admit.Admitted, error) {
	admitted, err := admit.Options[string]{
		Package: "grpclimit", Limiter: c.Limiter, Pick: c.Pick, Key: keys(ctx, c.Key), Cost: costs(c.Cost), MaxWait: c.MaxWait, Margin: c.Margin,
	}.Take(ctx, method)
	if err != nil {
		return admitted, &refusal{status.New(codeOf(err), err.Error()), err}
	}
	return admitted, nil
}

// heed pauses the limiter if the server's error asks for that.
func (c *Client) heed(limiter *consumer.Limiter, method string, err error) {
	if d := retryInfo(err); limiter != nil && d > 0 {
		admit.Throttled(limiter, d, c.MaxPause, status.Code(err).String()+" from "+method)
	}
}

// heeding is a stream whose last error can pause the limiter.
type heeding struct {
	grpc.ClientStream
	single bool        // it has one answer
	ended  func(error) // nil for the answer
}

// RecvMsg implements grpc.ClientStream.
func (h *heeding) RecvMsg(m any) error {
	err := h.ClientStream.RecvMsg(m)
	if err != nil || h.single {
		h.ended(err)
	}
	return err
}
