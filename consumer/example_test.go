package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// newLimiter makes a limiter of 2 permits a minute without etcd. In production
// the source is a *coordinator.Session.
func newLimiter() *consumer.Limiter {
	source := consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 2, Window: time.Minute}}, Release: quota.Release{Shape: quota.ShapeBucket}})
	limiter, err := consumer.Open(context.Background(), source, "payments/charge", consumer.Options{})
	if err != nil {
		panic(err)
	}
	return limiter
}

// Wait as long as it takes: for work that must be done, and can be late.
func ExampleLimiter_Acquire_forever() {
	limiter := newLimiter()
	defer limiter.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := limiter.Acquire(ctx, consumer.Forever)
	fmt.Println(err)
	// Output: <nil>
}

// Wait for so long and no longer: for a caller who is waiting too. Who cannot
// be served in time is told at once, and when to try again.
func ExampleLimiter_Acquire_atMost() {
	limiter := newLimiter()
	defer limiter.Close()
	ctx := context.Background()
	for range 3 {
		err := limiter.Acquire(ctx, 20*time.Microsecond)
		if limited, ok := errors.AsType[consumer.LimitError](err); ok {
			fmt.Println("refused:", limited.Reason, "of", limited.Share)
			continue
		}
		fmt.Println("granted")
	}
	// Output:
	// granted
	// granted
	// refused: share spent of 2
}

// Do not wait at all: for work that may be dropped.
func ExampleLimiter_TryAcquire() {
	limiter := newLimiter()
	defer limiter.Close()
	fmt.Println(limiter.TryAcquire(), limiter.TryAcquire(), limiter.TryAcquire())
	// Output: true true false
}

// Ask without a goroutine that waits: the function is called when the permit is
// there, or when it is certain that none will come in time.
func ExampleLimiter_TakeFunc() {
	limiter := newLimiter()
	defer limiter.Close()
	done := make(chan struct{})
	limiter.TakeFunc(1, time.Second, func(p consumer.Permit, err error) {
		fmt.Println(p.N(), p.Until().Sub(p.Start()), err)
		close(done)
	})
	<-done
	// Output: 1 1m0s <nil>
}

// A batch takes what there is, and comes back for the rest.
func ExampleLimiter_TryTake() {
	limiter := newLimiter()
	defer limiter.Close()
	fmt.Println(limiter.TryTake(500).N(), limiter.TryTake(500).N())
	// Output: 2 0
}

// The calls of one limiter have classes: a handle for each needs no Close of its own.
func ExampleLimiter_Class() {
	limiter := newLimiter()
	defer limiter.Close()
	pay, report := limiter.Class(consumer.Critical), limiter.Class(consumer.Sheddable)
	fmt.Println(report.TryAcquire(), pay.TryAcquire(), report.TryAcquire())
	st := limiter.Status()
	fmt.Println(st.IssuedBy[consumer.Critical], st.IssuedBy[consumer.Sheddable], st.RefusedOf[consumer.Sheddable])
	// Output:
	// true true false
	// 1 1 1
}

// A label shows operators who spends a limit.
func ExampleLimiter_Label() {
	limiter := newLimiter()
	defer limiter.Close()
	reindex := limiter.Label("reindex")
	fmt.Println(reindex.TryAcquire(), limiter.TryAcquire(), reindex.TryAcquire())
	st := limiter.Status()
	fmt.Println(st.IssuedByLabel["reindex"], st.RefusedByLabel["reindex"], st.Issued)
	// Output:
	// true true false
	// 1 1 2
}

// A permit that was not used goes to somebody else.
func ExamplePermit_Release() {
	limiter := newLimiter()
	defer limiter.Close()
	p, _ := limiter.Take(context.Background(), 2, 0)
	fmt.Println(limiter.TryAcquire(), p.Release(), limiter.TryAcquire())
	// Output: false true true
}

// An account has a limit of its own, beside that of the provider.
func ExampleLimiter_Key() {
	source := consumer.Fixed(quota.Policy{
		Limits: []quota.Limit{{Permits: 15_000, Window: time.Minute}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 2, Window: time.Minute}}},
	})
	limiter, err := consumer.Open(context.Background(), source, "github", consumer.Options{})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	call := func(installation string) error {
		return limiter.Key(installation).Acquire(context.Background(), 2*time.Second)
	}
	fmt.Println(call("4711"), call("4711"), limiter.Key("4711").TryAcquire())
	fmt.Println(call("4712"))
	// Output:
	// <nil> <nil> false
	// <nil>
}

func ExampleKey_Owner() {
	source := consumer.Fixed(quota.Policy{
		Limits: []quota.Limit{{Permits: 15000, Window: time.Second}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 80, Window: time.Second}}, Owners: 1},
	})
	limiter, err := consumer.Open(context.Background(), source, "github", consumer.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	route := func(installation string) string {
		owner, self := limiter.Key(installation).Owner()
		if self {
			return "serve it here"
		}
		return "send it to " + owner // the name with which that instance joined
	}
	fmt.Println(route("installation-4711"))
	// Output: serve it here
}
