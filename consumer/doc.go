// Package consumer is the part of Quotient that applications call: a Limiter
// issues this instance's share of a provider's limit.
//
//	session, err := coordinator.Join(ctx, etcdClient, coordinator.Options{})
//	limiter, err := consumer.Open(ctx, session, "payments/charge", consumer.Options{})
//	err = limiter.Acquire(ctx, 200*time.Millisecond) // nil, or why not
//
// The promise: in every window, the permits that all instances issue for it sum to at
// most the provider's total. A granted permit costs about one reading of the monotonic
// clock and allocates nothing. A waiting caller costs no thread, no polling and no timer.
// Callers are served in the order of arrival. A caller that cannot be served in time is
// refused immediately.
//
// There are two families of calls. For one call to the provider: TryAcquire never waits,
// Acquire waits for at most a given time, and Wait as long as its context allows. For
// permits that are counted, checked, settled or released: TryTake, Take, TakeFunc, which
// needs no goroutine, and TakeAll, which takes from several limiters.
//
// A permit is the right to make one call within its window. If the time between the grant
// and the call can be long, check Permit.Valid when sending.
//
// The package uses no network and links neither etcd nor gRPC: a Source provides its
// knowledge. Fixed is a Source for tests and single processes.
package consumer
