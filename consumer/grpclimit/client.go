package grpclimit

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/admit"
)

// Client takes permits for calls that are made. Its methods Unary and Stream are
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
	limiter, err := c.admit(ctx, method)
	if err != nil {
		return err
	}
	err = invoke(ctx, method, req, reply, conn, opts...)
	c.heed(limiter, method, err)
	return err
}

// Stream is a grpc.StreamClientInterceptor.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	limiter, err := c.admit(ctx, method)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, desc, conn, method, opts...)
	c.heed(limiter, method, err)
	if err != nil || limiter == nil {
		return s, err
	}
	return &heeding{s, func(err error) { c.heed(limiter, method, err) }}, nil
}

// admit takes the call's permits and returns their limiter, nil if none are
// needed.
func (c *Client) admit(ctx context.Context, method string) (*consumer.Limiter, error) {
	admitted, err := admit.Options[string]{
		Package: "grpclimit", Limiter: c.Limiter, Pick: c.Pick, Key: keys(ctx, c.Key), Cost: costs(c.Cost), MaxWait: c.MaxWait, Margin: c.Margin,
	}.Take(ctx, method)
	if err != nil {
		return nil, &refusal{status.New(codeOf(err), err.Error()), err}
	}
	return admitted.Limiter, nil
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
	ended func(error)
}

// RecvMsg implements grpc.ClientStream.
func (h *heeding) RecvMsg(m any) error {
	err := h.ClientStream.RecvMsg(m)
	if err != nil {
		h.ended(err)
	}
	return err
}
