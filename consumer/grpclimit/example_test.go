package grpclimit_test

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/grpclimit"
)

// A client whose calls wait for their permits, a batch for as many as it has
// parts.
func dial(limiter *consumer.Limiter, target string) (*grpc.ClientConn, error) {
	limits := &grpclimit.Client{
		Limiter: limiter,
		MaxWait: time.Second,
		Cost: func(method string) int64 {
			if method == "/payments.v1.Payments/ChargeBatch" {
				return 10
			}
			return 1
		},
	}
	return grpc.NewClient(target,
		grpc.WithUnaryInterceptor(limits.Unary),
		grpc.WithStreamInterceptor(limits.Stream),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// A server that refuses at once, with RetryInfo.
func serve(limiter *consumer.Limiter) *grpc.Server {
	limits := &grpclimit.Server{Limiter: limiter}
	return grpc.NewServer(
		grpc.UnaryInterceptor(limits.Unary),
		grpc.StreamInterceptor(limits.Stream))
}

// The examples need a service and its peer, so they are compiled and not run.
func Example() {
	_, _ = dial, serve
}
