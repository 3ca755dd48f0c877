// Quickstart does a hundred jobs, each with a permit of the provider's limit.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := coordinator.Join(ctx, client, coordinator.Options{}) // one per process
	if err != nil {
		return err
	}
	defer session.Shutdown(context.Background()) //nolint:errcheck // hands the share over without loss
	return work(ctx, session)
}

func work(ctx context.Context, session *coordinator.Session) error {
	limiter, err := consumer.Open(ctx, session, "payments/charge", consumer.Options{})
	if err != nil {
		return err
	}
	if err := limiter.Ready(ctx); err != nil { // a new instance has permits within a window
		return err
	}
	for job := 1; job <= 100; {
		err := limiter.Acquire(ctx, time.Second)
		switch {
		case err == nil:
			fmt.Println("job", job) // the call to the provider
			job++
		case errors.Is(err, consumer.ErrLimited): // no permit within 1 s
			time.Sleep(100 * time.Millisecond)
		default:
			return err
		}
	}
	return nil
}
