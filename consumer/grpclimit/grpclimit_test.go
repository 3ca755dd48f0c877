package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/grpclimit"
	"github.com/quotient-limiter/quotient/quota"
)

// service answers every call.
type service struct {
	testpb.UnimplementedTestServiceServer
	calls int
	until chan struct{} // if set, a call lasts until something is sent
}

// last lasts until the call is to end.
func (s *service) last(ctx context.Context) error {
	s.calls++
	if s.until == nil {
		return nil
	}
	select {
	case <-s.until:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (s *service) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, s.last(ctx)
}

func (s *service) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, out testpb.TestService_StreamingOutputCallServer) error {
	if err := s.last(out.Context()); err != nil {
		return err
	}
	return out.Send(&testpb.StreamingOutputCallResponse{})
}

func (*service) StreamingInputCall(in testpb.TestService_StreamingInputCallServer) error {
	return in.SendAndClose(&testpb.StreamingInputCallResponse{})
}

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, limits string) *consumer.Limiter {
	t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := consumer.Open(t.Context(), consumer.Fixed(quota.Policy{Limits: l}), "p",
		consumer.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// connected runs f in fake time with a connection to a server, both with the
// given interceptors; nil for none.
func connected(t *testing.T, c *grpclimit.Client, s *grpclimit.Server, f func(t *testing.T, conn *grpc.ClientConn, s *service)) {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	var serverOptions []grpc.ServerOption
	if s != nil {
		serverOptions = append(serverOptions, grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream))
	}
	server, answers := grpc.NewServer(serverOptions...), &service{}
	testpb.RegisterTestServiceServer(server, answers)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	options := []grpc.DialOption{
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
	if c != nil {
		options = append(options, grpc.WithUnaryInterceptor(c.Unary), grpc.WithStreamInterceptor(c.Stream))
	}
	conn, err := grpc.NewClient("passthrough:test", options...)
	if err != nil {
		t.Fatal(err)
	}
	f(t, conn, answers)
	_ = conn.Close()
	server.Stop()
}

func unary(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := testpb.NewTestServiceClient(conn).EmptyCall(ctx, &testpb.Empty{})
	return err
}

// stream opens a stream and reads it to its end.
func stream(ctx context.Context, conn *grpc.ClientConn) error {
	s, err := testpb.NewTestServiceClient(conn).StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
	if err != nil {
		return err
	}
	for {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

var kinds = map[string]func(context.Context, *grpc.ClientConn) error{"unary": unary, "stream": stream}

func TestClientRefusesWithoutCalling(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connected(t, &grpclimit.Client{Limiter: open(t, "1/s")}, nil, func(t *testing.T, conn *grpc.ClientConn, s *service) {
					if err := call(t.Context(), conn); err != nil {
						t.Fatal(err)
					}
					err := call(t.Context(), conn)
					if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, consumer.ErrLimited) {
						t.Errorf("got %v", err)
					}
					if s.calls != 1 {
						t.Errorf("%d calls arrived", s.calls)
					}
				})
			})
		})
	}
}

// An error of a context stays one, as a status and for errors.Is, on both sides.
func TestContextErrorsAreKept(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check := func(t *testing.T, conn *grpc.ClientConn, local bool) {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Millisecond, cancel)
					err := call(ctx, conn)
					if status.Code(err) != codes.Canceled || local && !errors.Is(err, context.Canceled) {
						t.Errorf("cancelled: %v", err)
					}
					ctx, cancel = context.WithTimeout(t.Context(), 0)
					defer cancel()
					err = call(ctx, conn)
					if status.Code(err) != codes.DeadlineExceeded || local && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("late: %v", err)
					}
				}
				spent := open(t, "0/1m")
				connected(t, &grpclimit.Client{Limiter: spent, MaxWait: consumer.Forever}, nil,
					func(t *testing.T, conn *grpc.ClientConn, _ *service) { check(t, conn, true) })
				connected(t, nil, &grpclimit.Server{Limiter: spent, MaxWait: consumer.Forever},
					func(t *testing.T, conn *grpc.ClientConn, _ *service) { check(t, conn, false) })
			})
		})
	}
}

func TestServerTellsWhenToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "1/s")
		connected(t, nil, &grpclimit.Server{Limiter: limiter}, func(t *testing.T, conn *grpc.ClientConn, s *service) {
			if err := unary(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			time.Sleep(250 * time.Millisecond)
			var trailer metadata.MD
			_, err := testpb.NewTestServiceClient(conn).EmptyCall(t.Context(), &testpb.Empty{}, grpc.Trailer(&trailer))
			if got := status.Convert(err); got.Code() != codes.ResourceExhausted || delayOf(got) != 750*time.Millisecond {
				t.Errorf("got %v, delay %v", got, delayOf(got))
			}
			if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "750" {
				t.Errorf("pushback %v", got)
			}
			if err := stream(t.Context(), conn); delayOf(status.Convert(err)) != 750*time.Millisecond {
				t.Errorf("stream: %v", err)
			}
			_ = limiter.Close()
			if err := unary(t.Context(), conn); status.Code(err) != codes.Unavailable {
				t.Errorf("closed: %v", err)
			}
			if s.calls != 1 {
				t.Errorf("%d calls were served", s.calls)
			}
		})
	})
}

func delayOf(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

// What the server asks for pauses the client's own limiter, capped.
func TestClientHeedsRetryInfo(t *testing.T) {
	for kind, call := range kinds {
		for _, c := range []struct {
			name     string
			maxPause time.Duration
			want     time.Duration
		}{{"heeded", 0, time.Minute}, {"capped", 7 * time.Second, 7 * time.Second}, {"not heeded", -1, 0}} {
			t.Run(kind+" "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					own, theirs := open(t, "1000/100ms"), open(t, "1/1m")
					connected(t, &grpclimit.Client{Limiter: own, MaxPause: c.maxPause}, &grpclimit.Server{Limiter: theirs},
						func(t *testing.T, conn *grpc.ClientConn, _ *service) {
							if err := call(t.Context(), conn); err != nil {
								t.Fatal(err)
							}
							if err := call(t.Context(), conn); status.Code(err) != codes.ResourceExhausted || errors.Is(err, consumer.ErrLimited) {
								t.Fatalf("from the server: %v", err)
							}
							begin := time.Now()
							if err := own.Acquire(t.Context(), consumer.Forever); err != nil || time.Since(begin) != c.want {
								t.Errorf("paused for %v, want %v (%v)", time.Since(begin), c.want, err)
							}
						})
				})
			})
		}
	}
}

func TestCostPickAndHealthChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "5/1m")
		server := &grpclimit.Server{
			Pick: func(method string) *consumer.Limiter {
				if method == testpb.TestService_StreamingOutputCall_FullMethodName {
					return nil
				}
				return limiter
			},
			Cost: func(string) int64 { return 3 },
		}
		connected(t, nil, server, func(t *testing.T, conn *grpc.ClientConn, s *service) {
			for range 9 {
				if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
					t.Fatal(err)
				}
				if err := stream(t.Context(), conn); err != nil {
					t.Fatal(err)
				}
			}
			if err := unary(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			if err := unary(t.Context(), conn); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("got %v", err)
			}
			if used := limiter.Status().Shortest().Used; used != 3 {
				t.Errorf("used %d", used)
			}
			limiter.PauseUntil(time.Now().Add(time.Hour)) // then no limit is used up
			if err := unary(t.Context(), conn); status.Convert(err).Message() != "calls cannot be admitted at present" {
				t.Errorf("paused: %v", err)
			}
		})
	})
}

func TestWithoutALimiterNothingPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connected(t, &grpclimit.Client{}, nil, func(t *testing.T, conn *grpc.ClientConn, s *service) {
			if err := unary(t.Context(), conn); err == nil || s.calls != 0 {
				t.Errorf("got %v, %d calls", err, s.calls)
			}
		})
	})
}

// Permits whose window ends within the margin are not used: a call that may wait is
// sent in the next window, and another one is told when that begins.
func TestMargin(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &grpclimit.Client{Limiter: open(t, "10/s"), Margin: 500 * time.Millisecond}
				begin := time.Now()
				connected(t, client, nil, func(t *testing.T, conn *grpc.ClientConn, _ *service) {
					time.Sleep(900 * time.Millisecond)
					err := call(t.Context(), conn)
					if limited, ok := errors.AsType[consumer.LimitError](err); !ok || limited.RetryAt.Sub(begin) != time.Second || status.Code(err) != codes.ResourceExhausted {
						t.Errorf("got %v", err)
					}
					client.MaxWait = time.Minute
					if err := call(t.Context(), conn); err != nil || time.Since(begin) != time.Second {
						t.Errorf("after %v: %v", time.Since(begin), err)
					}
				})
			})
		})
	}
}
