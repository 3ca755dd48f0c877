package grpclimit

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/quotient-limiter/quotient/consumer"
)

// Server takes permits for calls that arrive. Its methods Unary and Stream are
// interceptors, safe for concurrent use; set the fields before.
//
// A call without a permit ends with ResourceExhausted, with RetryInfo and the
// trailer grpc-retry-pushback-ms. While the limiter cannot admit anybody for a
// reason that is not the client's (no policy, closed, stale under the rule stop)
// it is Unavailable.
type Server struct {
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
}

// Unary is a grpc.UnaryServerInterceptor.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := s.admit(ctx, info.FullMethod, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) }); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := s.admit(stream.Context(), info.FullMethod, stream.SetTrailer); err != nil {
		return err
	}
	return handle(srv, stream)
}

func (s *Server) admit(ctx context.Context, method string, trailer func(metadata.MD)) error {
	cost := costOf(s.Cost, method)
	limiter, err := take(ctx, s.Limiter, s.Pick, cost, method, s.MaxWait)
	if err == nil {
		return nil
	}
	answer, pushback := toClient(err, limiter, cost, time.Now())
	trailer(metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(pushback, 10)))
	return &refusal{answer, err}
}
