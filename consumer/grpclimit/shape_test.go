package grpclimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/grpclimit"
	"github.com/quotient-limiter/quotient/quota"
)

// A client is told to come back when there will be as many permits as its call
// costs, under every shape; and then it is served.
func TestRetryInfoIsForTheWholeCost(t *testing.T) {
	for name, c := range map[string]struct {
		policy   quota.Policy
		from, to time.Duration // of the delay: slots begin anywhere
	}{
		"fixed":   {quota.Policy{}, 8 * time.Second, 8 * time.Second},
		"sliding": {quota.Policy{Release: quota.Release{Shape: quota.ShapeSliding}}, 10020 * time.Millisecond, 10040 * time.Millisecond},
		"bucket":  {quota.Policy{Release: quota.Release{Shape: quota.ShapeBucket}}, 1670 * time.Millisecond, 1692 * time.Millisecond}, // one of 6 in 10.02 s, from the slot's end on
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.policy.Limits = []quota.Limit{{Permits: 6, Window: 10 * time.Second}}
				limiter, err := consumer.Open(t.Context(), consumer.Fixed(c.policy), "p", consumer.Options{Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				server := &grpclimit.Server{Limiter: limiter, Cost: func(string) int64 { return 2 }}
				connected(t, nil, server, func(t *testing.T, conn *grpc.ClientConn, _ *service) {
					for range 2 {
						if err := unary(t.Context(), conn); err != nil {
							t.Fatal(err)
						}
					}
					limiter.TryTake(1).N() // one is left, of two
					var trailer metadata.MD
					_, err := testpb.NewTestServiceClient(conn).EmptyCall(t.Context(), &testpb.Empty{}, grpc.Trailer(&trailer))
					delay := time.Duration(0)
					for _, d := range status.Convert(err).Details() {
						if info, ok := d.(*errdetails.RetryInfo); ok {
							delay = info.GetRetryDelay().AsDuration()
						}
					}
					if delay < c.from || delay > c.to {
						t.Errorf("told to come back after %v, want %v to %v (%v)", delay, c.from, c.to, trailer)
					}
					time.Sleep(delay)
					if err := unary(t.Context(), conn); err != nil {
						t.Errorf("after that: %v", err)
					}
				})
			})
		})
	}
}
