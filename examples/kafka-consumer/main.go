// Command kafka-consumer calls a rate-limited provider for every record of a Kafka
// topic. All instances of it share the provider's limit. See README.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
)

// config is where a consumer finds Kafka, etcd and the provider.
type config struct {
	brokers, topic, endpoints, provider, url string
	margin                                   time.Duration
}

// main consumes until SIGTERM. Without brokers it plays a demonstration instead.
func main() {
	var c config
	flag.StringVar(&c.brokers, "brokers", "", "Kafka `addresses`, separated by commas; without any, a demonstration with a fake Kafka and an etcd of its own")
	flag.StringVar(&c.topic, "topic", "jobs", "`topic` to consume, and the consumer group; rejected records go to TOPIC.dead, which must exist")
	flag.StringVar(&c.endpoints, "endpoints", "127.0.0.1:2379", "etcd `addresses`, separated by commas")
	flag.StringVar(&c.provider, "provider", "payments/charge", "`name` of the limit, as in quota-admin set")
	flag.StringVar(&c.url, "url", "", "`URL` that every record is posted to")
	flag.DurationVar(&c.margin, "margin", 50*time.Millisecond, "`time` that a call needs to reach the provider")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var err error
	switch {
	case c.brokers == "":
		err = demo(ctx, os.Stdout)
	case c.url == "":
		err = errors.New("--url is missing: it is where the calls go")
	default:
		err = consume(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafka-consumer:", err)
		os.Exit(1)
	}
}

// consume consumes until ctx ends. Then it leaves the group and the fleet.
func consume(ctx context.Context, c config) error {
	brokers := kgo.SeedBrokers(strings.Split(c.brokers, ",")...)
	if err := reach(ctx, brokers); err != nil {
		return fmt.Errorf("--brokers %s: no Kafka has answered within %v: %w", c.brokers, kafkaTimeout, err)
	}
	// For TLS set clientv3.Config.TLS to what coordinator.ClientTLS returns.
	etcd, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(c.endpoints, ","), DialTimeout: 5 * time.Second, Logger: etcdlog.New(slog.Default())})
	if err != nil {
		return err
	}
	defer etcd.Close()
	session, err := coordinator.Join(ctx, etcd, coordinator.Options{})
	if err != nil {
		return err
	}
	defer func() { // when the worker has ended
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := session.Shutdown(leave); err != nil {
			slog.Warn("the share was not handed over: it is unused until the lease ends", "error", err)
		}
	}()
	limiter, err := consumer.Open(ctx, session, c.provider, consumer.Options{})
	if err != nil {
		return err
	}
	worker := &Worker{
		Kafka: []kgo.Opt{brokers}, Topic: c.topic,
		Limiter: limiter, Margin: c.margin, Call: post(c.url, limiter),
	}
	return worker.Run(ctx)
}

const kafkaTimeout = 5 * time.Second

// reach returns an error if no broker answers in time. A consumer that cannot consume would hold
// a share that others need, and say nothing.
func reach(ctx context.Context, brokers kgo.Opt) error {
	client, err := kgo.NewClient(brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	return client.Ping(ctx)
}

// post returns a Worker's Call that posts the record's value, with an idempotency key. An
// answer 429 or 503 pauses the limiter.
func post(url string, limiter *consumer.Limiter) func(context.Context, *kgo.Record) error {
	connections := http.DefaultTransport.(*http.Transport).Clone()
	connections.MaxIdleConnsPerHost = connections.MaxIdleConns // all: to open one takes longer than a permit may last
	client := &http.Client{Transport: connections}
	return func(ctx context.Context, r *kgo.Record) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.Value))
		if err != nil {
			return err
		}
		request.Header.Set("Idempotency-Key", position(r))
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // the connection can be used again
		switch code := response.StatusCode; {
		case code/100 == 2:
			return nil
		case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
			seconds, _ := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31) // 0: as long as the policy says
			limiter.Throttled(time.Duration(seconds)*time.Second, response.Status)
		case code == http.StatusBadRequest, code == http.StatusUnprocessableEntity:
			return fmt.Errorf("%w: %s", ErrRejected, response.Status)
		}
		return errors.New(response.Status) // an expired password (401) must not bury a topic
	}
}
