// Command kafka-consumer shows a Kafka consumer that obeys a provider's limit
// together with all other instances of it.
//
//	go run ./examples/kafka-consumer
//
// runs everything on embedded parts: a fake Kafka, an etcd, a provider that
// counts, and three consumers, each a process of its own, of which one is killed
// and another one joins on the way. It shows what happens, and ends with a
// verdict. Flags replace the parts by real ones.
//
//	go run ./examples/kafka-consumer --consume --brokers ... --endpoints ... --provider-url ...
//
// is one consumer alone, until SIGTERM. What is worth copying is package worker.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/etcdflags"
)

// Exit statuses.
const (
	exitHeld    = 0
	exitNotHeld = 1
	exitUsage   = 2
	exitCannot  = 3
)

func main() {
	// The first interrupt ends it in good order, the second one at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole command, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, os.Getenv, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitHeld
	case err != nil:
		return fail(stderr, err)
	}
	if order, ok := os.LookupEnv(memberVariable); ok {
		err = asChild(ctx, c, order, stdout, stderr)
	} else if c.consume {
		err = alone(ctx, c, stderr)
	} else {
		var held bool
		if held, err = demonstrate(ctx, c, stdout); err == nil && !held {
			return exitNotHeld
		}
	}
	if err != nil {
		return fail(stderr, err)
	}
	return exitHeld
}

// fail writes an error and returns the exit status for it.
func fail(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "kafka-consumer: %v\n", err)
	var usage *usageError
	var connection *etcdflags.UsageError
	if errors.As(err, &usage) || errors.As(err, &connection) {
		return exitUsage
	}
	return exitCannot
}
