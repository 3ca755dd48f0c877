package grpclimit

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/admit"
)

// Server takes permits for calls that arrive. Under a limit in flight a call counts until its handler has
// returned; its context ends when its permit does: see consumer.Permit.Until. The methods Unary and Stream are
// interceptors, safe for concurrent use; set the fields before.
//
// A call without a permit ends with ResourceExhausted, RetryInfo and the trailer
// grpc-retry-pushback-ms. It is Unavailable while the limiter admits no call at all
// (no policy, closed, stale under the rule stop), or has too many keys in use. It is
// InvalidArgument if the key has a name that no key can have.
type Server struct {
	// Limiter is the one for all calls.
	Limiter *consumer.Limiter
	// Pick, if set, chooses the limiter of a method, such as "/package.Service/Method", or its
	// class and label by consumer.Limiter.Class and Label. With nil the call passes without a
	// permit.
	Pick func(method string) *consumer.Limiter
	// Key, if set, returns the key of a call, such as an account in the metadata of ctx, and ""
	// if it has none: see consumer.Limiter.Key.
	Key func(ctx context.Context, method string) string
	// Cost, if set, returns the number of permits of a call. With 0 or less it passes
	// without one.
	Cost func(method string) int64
	// MaxWait bounds the wait of a call for its permit, besides its context. 0 does
	// not wait; consumer.Forever waits as long as the context allows.
	MaxWait time.Duration
}

// Unary is a grpc.UnaryServerInterceptor.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	permit, err := s.admit(ctx, info.FullMethod, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
	if err != nil {
		return nil, err
	}
	ctx, done := permit.Begin(ctx)
	defer done()
	return handle(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	permit, err := s.admit(stream.Context(), info.FullMethod, stream.SetTrailer)
	if err != nil {
		return err
	}
	if permit.InFlight() {
		ctx, done := permit.Begin(stream.Context())
		defer done()
		stream = &bounded{stream, ctx}
	}
	return handle(srv, stream)
}

// bounded is a stream whose context ends when its permit does.
type bounded struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

// Context implements grpc.ServerStream.
func (b *bounded) Context() context.Context { return b.ctx }

func (s *Server) admit(ctx context.Context, method string, trailer func(metadata.MD)) (consumer.Permit, error) {
	admitted, err := admit.Options[string]{Package: "grpclimit", Limiter: s.Limiter, Pick: s.Pick, Key: keys(ctx, s.Key), Cost: costs(s.Cost), MaxWait: s.MaxWait}.Take(ctx, method)
	if err == nil {
		return admitted.Permit, nil
	}
	answer, pushback := toClient(err)
	trailer(metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(pushback, 10)))
	return admitted.Permit, &refusal{answer, err}
}
