package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/grpclimit"
)

// canBegin fails the test unless so many calls can begin.
func canBegin(t *testing.T, l *consumer.Limiter, want int64) {
	t.Helper()
	synctest.Wait()
	p := l.TryTake(100)
	if p.N() != want {
		t.Errorf("%d calls can begin, want %d", p.N(), want)
	}
	p.Done()
}

// A call counts until it has ended, a stream until it was read to its end, or its context has ended.
func TestClientCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "1 inflight hold=8s")
		connected(t, &grpclimit.Client{Limiter: limiter}, nil, func(t *testing.T, conn *grpc.ClientConn, _ *service) {
			for range 3 {
				for kind, call := range kinds {
					if err := call(t.Context(), conn); err != nil {
						t.Error(kind, err)
					}
					canBegin(t, limiter, 1)
				}
			}
			client := testpb.NewTestServiceClient(conn)
			begin := func(ctx context.Context) testpb.TestService_StreamingOutputCallClient {
				s, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
				if err == nil {
					_, err = s.Recv()
				}
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			ctx, cancel := context.WithCancel(t.Context())
			begin(ctx)
			canBegin(t, limiter, 0)
			if err := unary(t.Context(), conn); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
			cancel()
			canBegin(t, limiter, 1)

			began := time.Now()
			s := begin(t.Context()) // nobody reads its end
			<-s.Context().Done()
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it ended after %v", took)
			}
			canBegin(t, limiter, 1)

			in, err := client.StreamingInputCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			canBegin(t, limiter, 0)
			if _, err := in.CloseAndRecv(); err != nil { // its only answer
				t.Error(err)
			}
			canBegin(t, limiter, 1)
		})
	})
}

// A server's call counts while its handler runs, and its context ends with its permit.
func TestServerCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "1 inflight hold=8s")
		connected(t, nil, &grpclimit.Server{Limiter: limiter}, func(t *testing.T, conn *grpc.ClientConn, s *service) {
			s.until = make(chan struct{})
			for kind, call := range kinds {
				ended := make(chan error)
				go func() { ended <- call(t.Context(), conn) }()
				canBegin(t, limiter, 0)
				if err := call(t.Context(), conn); status.Code(err) != codes.ResourceExhausted {
					t.Error(kind, err)
				}
				s.until <- struct{}{}
				if err := <-ended; err != nil {
					t.Error(kind, err)
				}
				canBegin(t, limiter, 1)
				began := time.Now()
				err := call(t.Context(), conn)
				if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded || took < 8*time.Second || took > 10*time.Second {
					t.Errorf("%s: %v after %v", kind, err, took)
				}
				canBegin(t, limiter, 1)
			}
		})
	})
}
