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
	"github.com/quotient-limiter/quotient/consumer/internal/admit"
	"github.com/quotient-limiter/quotient/internal/ratefields"
)

// refusal is an error that is a status to gRPC, and its cause to errors.Is.
type refusal struct {
	status *status.Status
	cause  error
}

func (e *refusal) Error() string              { return e.status.Err().Error() }
func (e *refusal) GRPCStatus() *status.Status { return e.status }
func (e *refusal) Unwrap() error              { return e.cause }

// codeOf returns the code for an error of a limiter.
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case admit.Exhausted(err):
		return codes.ResourceExhausted
	case errors.Is(err, admit.ErrKey):
		return codes.InvalidArgument
	case errors.Is(err, consumer.ErrInvalid):
		return codes.Internal
	}
	return codes.Unavailable
}

// toClient returns the status that a server sends. Unlike the error, it says nothing
// of the fleet. pushback is for the trailer of that name, in milliseconds; less than 0
// means that the client should not retry.
func toClient(err error) (s *status.Status, pushback int64) {
	code := codeOf(err)
	s = status.New(code, map[codes.Code]string{
		codes.ResourceExhausted: "too many calls: the limit is used up",
		codes.Unavailable:       "calls cannot be admitted at present",
		codes.InvalidArgument:   "the call's key has a name that no key can have",
		codes.Internal:          "the limit is set up wrongly",
	}[code])
	if limited, _ := errors.AsType[consumer.LimitError](err); limited.Key != "" {
		s = status.New(code, "too many calls: the limit of the call's key is used up")
	}
	if code == codes.ResourceExhausted && !ratefields.CauseOf(err).Limit {
		s = status.New(code, "calls cannot be admitted at present")
	}
	if code == codes.Canceled || code == codes.DeadlineExceeded {
		return status.FromContextError(err), -1
	}
	if code != codes.ResourceExhausted || errors.Is(err, consumer.ErrTooLarge) {
		return s, -1 // too large now is too large later
	}
	delay := ratefields.RetryAfter(err, time.Now())
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); err == nil {
		s = detailed
	}
	return s, int64(math.Ceil(delay.Seconds() * 1000))
}

// retryInfo returns the wait that a server's error asks for, or 0. ResourceExhausted
// without RetryInfo can be a message that is too large.
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

// costs returns a function that tells how many permits a call takes.
func costs(cost func(string) int64) func(string) int64 {
	return func(method string) int64 {
		if strings.HasPrefix(method, "/grpc.health.v1.Health/") {
			return 0
		}
		return admit.Cost(cost, method)
	}
}

// keys returns a function that tells the key of a call; nil if calls have none.
func keys(ctx context.Context, key func(context.Context, string) string) func(string) string {
	if key == nil {
		return nil
	}
	return func(method string) string { return key(ctx, method) }
}
