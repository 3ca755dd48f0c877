// Package consumer is the part of Quotient that applications call: a Limiter
// issues this instance's share of a provider's limit.
//
//	session, err := coordinator.Join(ctx, etcdClient, coordinator.Options{})
//	limiter, err := consumer.Open(ctx, session, "payments/charge", consumer.Options{})
//	err = limiter.Acquire(ctx, 200*time.Millisecond) // nil, or why not
//
// The promise: in every window, the permits that all instances issue for it sum
// to at most the provider's total. A granted permit costs about one reading of
// the monotonic clock and allocates nothing; a caller that must wait costs no
// thread, no polling and no timer, and is served in the order of arrival; one
// that cannot be served in time is told so at once.
//
// There are three ways to ask. Acquire and AcquireN wait for so long as the
// caller says; Take and AcquireFunc do the same and return the Permit; TryAcquire
// and TryTake never wait.
//
// A permit is the right to make one call within its window. Time passes between the
// grant and the call. Where it can be long, ask Permit.Valid when sending.
//
// The package reads no network and links neither etcd nor gRPC: all that it knows
// comes from a Source. Fixed is one for tests and single processes.
package consumer
