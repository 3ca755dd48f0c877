// Quotad shares limits among all processes of a host: it is one instance of each provider,
// and gives permits to local processes of any language over a Unix socket.
//
// SIGTERM announces to the other instances that this one leaves, serves until they have
// taken its share over, and ends.
//
// Exit status: 0 it ended as it was asked to, 1 it failed, 2 bad usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	// Calls leave garbage and the heap is small: the collector would run all the time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(quotad(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr, signals))
}

// quotad is the whole command, and returns its exit status.
func quotad(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	f, err := parse(args, env, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return exitDone
	}
	switch {
	case err != nil:
	case f.probe != "":
		err = ask(f.socket, f.probe)
	default:
		err = f.run(ctx, slog.New(slog.NewTextHandler(stderr, nil)), signals)
	}
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "quotad: %v\n", err)
	_, usage := errors.AsType[usageError](err)
	if _, connection := errors.AsType[*etcdflags.UsageError](err); usage || connection {
		return exitUsage
	}
	return exitFailed
}
