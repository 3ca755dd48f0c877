package grpclimit

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotient-limiter/quotient/consumer"
)

// refusal is an error that is a status to gRPC, and its cause to errors.Is.
type refusal struct {
	status *status.Status
	cause  error
}

func (e *refusal) Error() string              { return e.status.Err().Error() }
func (e *refusal) GRPCStatus() *status.Status { return e.status }
func (e *refusal) Unwrap() error              { return e.cause }

// codeOf returns the code for the reason why a limiter did not issue.
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, consumer.ErrLimited), errors.Is(err, consumer.ErrTooLarge), errors.Is(err, consumer.ErrQueueFull):
		return codes.ResourceExhausted
	case errors.Is(err, consumer.ErrInvalid):
		return codes.Internal
	}
	return codes.Unavailable
}

// unknownDelay is told to clients where the limiter knows of no better one.
const unknownDelay = time.Second

// retryDelay returns when a client may try again with a call of that cost, and
// false if it should not: what is too large now will be so then.
func retryDelay(err error, limiter *consumer.Limiter, cost int64, now time.Time) (time.Duration, bool) {
	if code := codeOf(err); code != codes.ResourceExhausted || errors.Is(err, consumer.ErrTooLarge) {
		return 0, false
	}
	if limited, ok := errors.AsType[*consumer.LimitError](err); ok && !limited.RetryAt.IsZero() {
		delay := max(0, limited.RetryAt.Sub(now)) // of one permit
		if d := limiter.DelayN(cost); d < math.MaxInt64 {
			delay = max(delay, d)
		}
		return delay, true
	}
	return unknownDelay, true
}

// toClient is the status that a server sends. It does not tell strangers what
// the error does of the fleet. pushback is for the trailer of that name, in
// milliseconds; less than 0 says not to retry.
func toClient(err error, limiter *consumer.Limiter, cost int64, now time.Time) (s *status.Status, pushback int64) {
	code := codeOf(err)
	s = status.New(code, map[codes.Code]string{
		codes.ResourceExhausted: "too many calls: the limit is used up",
		codes.Unavailable:       "calls cannot be admitted at present",
		codes.Internal:          "the limit is set up wrongly",
	}[code])
	if code == codes.Canceled || code == codes.DeadlineExceeded {
		return status.FromContextError(err), -1
	}
	delay, ok := retryDelay(err, limiter, cost, now)
	if !ok {
		return s, -1
	}
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); err == nil {
		s = detailed
	}
	return s, int64(math.Ceil(delay.Seconds() * 1000))
}

// retryInfo returns how long a server's error asks to wait; 0 if it does not. An
// exhausted resource without RetryInfo may be a message that is too large.
func retryInfo(err error) time.Duration {
	s, ok := status.FromError(err)
	if err == nil || !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// costOf returns how many permits a call takes.
func costOf(cost func(string) int64, method string) int64 {
	switch {
	case strings.HasPrefix(method, "/grpc.health.v1.Health/"):
		return 0
	case cost == nil:
		return 1
	}
	return cost(method)
}
