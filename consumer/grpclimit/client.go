package grpclimit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/pushback"
)

// Client takes permits for calls that are made. Its methods Unary and Stream are
// interceptors, safe for concurrent use; set the fields before, and do not copy
// it after.
type Client struct {
	// Limiter is the one for all calls.
	Limiter *consumer.Limiter
	// Pick, if set, chooses the limiter of a method, as in "/package.Service/Method";
	// nil lets the call pass without a permit.
	Pick func(method string) *consumer.Limiter
	// Cost, if set, tells how many permits a call of the method takes; 0 or less
	// lets it pass without.
	Cost func(method string) int64
	// MaxWait is how long a call may wait for its permit, besides its context; 0
	// does not wait, consumer.Forever waits as long as the context allows.
	MaxWait time.Duration
	// MaxPause bounds how long a server's error, ResourceExhausted or Unavailable
	// with RetryInfo, may pause the limiter; 0 means 5 minutes, less than 0 that
	// such errors are not heeded.
	MaxPause time.Duration

	pauses pushback.Pauses[*consumer.Limiter]
}

var errNoLimiter = errors.New("grpclimit: there is no limiter: set Limiter or Pick")

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	limiter, err := c.admit(ctx, method)
	if err != nil {
		return err
	}
	err = invoke(ctx, method, req, reply, conn, opts...)
	c.heed(limiter, err)
	return err
}

// Stream is a grpc.StreamClientInterceptor.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	limiter, err := c.admit(ctx, method)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, desc, conn, method, opts...)
	c.heed(limiter, err)
	if err != nil || limiter == nil {
		return s, err
	}
	return &heeding{s, func(err error) { c.heed(limiter, err) }}, nil
}

// admit takes the call's permits and returns their limiter, nil if none are
// needed.
func (c *Client) admit(ctx context.Context, method string) (*consumer.Limiter, error) {
	limiter, err := take(ctx, c.Limiter, c.Pick, costOf(c.Cost, method), method, c.MaxWait)
	if err != nil {
		return nil, &refusal{status.New(codeOf(err), err.Error()), err}
	}
	return limiter, nil
}

func take(ctx context.Context, limiter *consumer.Limiter, pick func(string) *consumer.Limiter, cost int64, method string, maxWait time.Duration) (*consumer.Limiter, error) {
	if pick != nil {
		limiter = pick(method)
	} else if limiter == nil {
		return nil, errNoLimiter
	}
	if limiter == nil || cost <= 0 {
		return nil, nil
	}
	return limiter, limiter.AcquireN(ctx, cost, maxWait)
}

// heed pauses the limiter if a server's error asks for it.
func (c *Client) heed(limiter *consumer.Limiter, err error) {
	if d := retryInfo(err); limiter != nil && d > 0 {
		c.pauses.Ask(limiter, time.Now(), d, c.MaxPause)
	}
}

// heeding is a stream whose end is looked at.
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
