// Http-server serves a route whose limit all its servers share: the policy of demo/charge.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/coordinator"
)

var listen = flag.String("listen", "127.0.0.1:8080", "`address` to serve at")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	etcd := strings.Split(cmp.Or(os.Getenv("QUOTIENT_ENDPOINTS"), "http://127.0.0.1:2379"), ",")
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd, DialTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := coordinator.Join(ctx, client, coordinator.Options{}) // one per process
	if err != nil {
		return err
	}
	defer session.Close()

	limiter, err := consumer.Open(ctx, session, "demo/charge", consumer.Options{})
	if err != nil {
		return err
	}
	limited, err := httplimit.Handler(limiter, httplimit.Options{Name: "charge"})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charge", limited(http.HandlerFunc(charge)))
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if limiter.Ready(ctx) != nil { // there are no permits yet
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})

	server := &http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// Requests are served until the share is handed over, for ten seconds at most. The rest of a
	// minute's share is lost then, and the others use theirs when the lease ends.
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(session.Shutdown(ending), server.Shutdown(context.Background()))
}

func charge(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "charged") }
