package coordinator_test

import (
	"context"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
)

// work is an application: one session for the process, one limiter for each
// provider, and a share that is handed over at the end.
func work(ctx context.Context, jobs <-chan int, call func(int)) error {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"127.0.0.1:2379"}, DialTimeout: 5 * time.Second,
		Logger: coordinator.NewClientLogger(slog.Default()),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := coordinator.Join(ctx, client, coordinator.Options{}) // one per process
	if err != nil {
		return err
	}
	defer session.Leave(context.Background()) //nolint:errcheck // hands its share over without loss
	limiter, err := consumer.Open(ctx, session, "payments/charge", consumer.Options{})
	if err != nil {
		return err
	}
	for job := range jobs {
		if err := limiter.Acquire(ctx, 200*time.Millisecond); err != nil {
			return err // errors.Is(err, consumer.ErrLimited): no permit within 200 ms
		}
		call(job)
	}
	return nil
}

// Example shows an application in full. It needs an etcd, so it is compiled and
// not run.
func Example() {
	jobs := make(chan int)
	_ = work(context.Background(), jobs, func(int) {})
}
