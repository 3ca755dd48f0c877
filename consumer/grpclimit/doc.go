// Package grpclimit puts limiters into gRPC, as interceptors for clients and
// servers.
//
//	limits := &grpclimit.Client{Limiter: limiter, MaxWait: time.Second}
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(limits.Unary), grpc.WithStreamInterceptor(limits.Stream))
//
// A call or a stream takes one permit when it begins. Health checks (grpc.health.v1) take
// none. Errors are statuses and unwrap to their cause: a call without a permit is
// ResourceExhausted and consumer.ErrLimited, one whose context ended is Canceled or
// DeadlineExceeded and the context's error.
//
// Interceptors run once for a call, however often gRPC's own retry policy attempts it:
// leave retries to the code around the call.
package grpclimit
