// Command kafka-consumer calls a rate-limited provider for every record of a Kafka
// topic. All instances of it share the provider's limit. See README.md.
package main

import (
	"bytes"
	"cmp"
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
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
)

// main consumes until SIGTERM. Without brokers it plays a demonstration instead.
func main() {
	var c config
	flag.StringVar(&c.brokers, "brokers", "", "Kafka `addresses`, separated by commas; without any, a demonstration with a fake Kafka and an etcd of its own")
	flag.StringVar(&c.topic, "topic", "jobs", "`topic` to consume, and the consumer group; rejected records go to TOPIC.dead, which must exist")
	flag.StringVar(&c.endpoints, "endpoints", "127.0.0.1:2379", "etcd `addresses`, separated by commas")
	flag.StringVar(&c.user, "user", "", "etcd user `name`; the password comes from QUOTIENT_PASSWORD")
	flag.StringVar(&c.ca, "cacert", "", "`file` of CA certificates that etcd's certificate is checked against; endpoints then begin with https://")
	flag.StringVar(&c.cert, "cert", "", "`file` of the client certificate for etcd")
	flag.StringVar(&c.key, "key", "", "`file` of the client certificate's key")
	flag.StringVar(&c.provider, "provider", "payments/charge", "`name` of the limit, as in quota-admin set")
	flag.StringVar(&c.url, "url", "", "`URL` that every record is posted to")
	flag.DurationVar(&c.margin, "margin", 50*time.Millisecond, "`time` that a call needs to reach the provider")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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

// config is where a consumer finds Kafka, etcd and the provider.
type config struct {
	brokers, topic, endpoints, provider, url string
	user, ca, cert, key                      string // for etcd
	margin                                   time.Duration
}

// kafkaTimeout is the time in which a broker must answer at the start.
const kafkaTimeout = 5 * time.Second

// reach returns an error if no broker answers. A consumer that cannot consume would hold a
// share that others need, and say nothing.
func reach(ctx context.Context, brokers ...kgo.Opt) error {
	client, err := kgo.NewClient(brokers...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, kafkaTimeout, fmt.Errorf("no answer within %v", kafkaTimeout))
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("cannot reach Kafka: %w", cmp.Or(context.Cause(ctx), err))
	}
	return nil
}

// etcd returns a client of etcd.
func (c config) etcd() (*clientv3.Client, error) {
	e := clientv3.Config{
		Endpoints: strings.Split(c.endpoints, ","), DialTimeout: 5 * time.Second, Logger: etcdlog.New(slog.Default()),
		Username: c.user, Password: os.Getenv("QUOTIENT_PASSWORD"),
	}
	if c.ca != "" || c.cert != "" {
		files := transport.TLSInfo{TrustedCAFile: c.ca, CertFile: c.cert, KeyFile: c.key}
		var err error
		if e.TLS, err = files.ClientConfig(); err != nil {
			return nil, err
		}
	}
	return clientv3.New(e)
}

// consume consumes until ctx ends. Then it leaves the fleet and the group.
func consume(ctx context.Context, c config) error {
	brokers := kgo.SeedBrokers(strings.Split(c.brokers, ",")...)
	if err := reach(ctx, brokers); err != nil {
		return fmt.Errorf("--brokers %s: %w", c.brokers, err)
	}
	client, err := c.etcd()
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := coordinator.Join(ctx, client, coordinator.Options{})
	if err != nil {
		return err
	}
	defer session.Close()
	limiter, err := consumer.Open(ctx, session, c.provider, consumer.Options{})
	if err != nil {
		return err
	}
	connections := http.DefaultTransport.(*http.Transport).Clone()
	connections.MaxIdleConnsPerHost = maxCalls // keeps a connection for each call
	worker := &Worker{
		Kafka: []kgo.Opt{brokers}, Topic: c.topic,
		Limiter: limiter, Margin: c.margin, Call: post(&http.Client{Transport: connections}, c.url, limiter),
	}
	// The worker goes on while Shutdown hands its share over, and then stops.
	consuming, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		leave, cancel := context.WithTimeout(consuming, 10*time.Second)
		defer cancel()
		if err := session.Shutdown(leave); err != nil {
			slog.Warn("the share was not handed over: it is unused until the lease ends", "error", err)
		}
		stop()
	})
	return worker.Run(consuming)
}

// post returns a Worker's Call that posts the record's value, with an idempotency key. An
// answer 429 or 503 pauses the whole fleet.
func post(client *http.Client, url string, limiter *consumer.Limiter) func(context.Context, *kgo.Record) error {
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
			limiter.Throttled(retryAfter(response.Header.Get("Retry-After")), response.Status)
		case code == http.StatusBadRequest, code == http.StatusUnprocessableEntity:
			return fmt.Errorf("%w: %s", ErrRejected, response.Status)
		}
		return errors.New(response.Status) // an expired password (401) must not bury a topic
	}
}

// retryAfter reads a field of that name: seconds, or a date. The default is 1 s.
func retryAfter(field string) time.Duration {
	if seconds, err := strconv.ParseUint(field, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(field); err == nil {
		return time.Until(date)
	}
	return time.Second
}
