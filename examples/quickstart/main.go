// Quickstart makes calls at the rate that the fleet's limit leaves to this instance.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
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
	etcd := strings.Split(cmp.Or(os.Getenv("QUOTIENT_ENDPOINTS"), "http://127.0.0.1:2379"), ",")
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd, DialTimeout: 5 * time.Second, Logger: etcdlog.New(slog.Default())})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := coordinator.Join(ctx, client, coordinator.Options{}) // one per process
	if err != nil {
		return err
	}
	defer session.Shutdown(context.Background()) //nolint:errcheck // hands the share over without loss
	limiter, err := consumer.Open(ctx, session, "demo/api", consumer.Options{})
	if err != nil {
		return err
	}
	for job := 1; ; job++ {
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		fmt.Print("job ", job, "\r") // the call to the provider
	}
}
