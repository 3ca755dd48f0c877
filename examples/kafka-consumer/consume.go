package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/examples/kafka-consumer/worker"
)

// leaveTimeout bounds the handing over of the share. It takes the policy's
// settle time and one or two seconds more.
const leaveTimeout = 10 * time.Second

// sessionTimeout is after how long of silence the group takes a consumer for
// dead: the shortest that Kafka allows, so that what one leaves behind does not
// wait for long.
const sessionTimeout = 6 * time.Second

// alone is --consume.
func alone(ctx context.Context, c *config, stderr io.Writer) error {
	client, err := c.etcd.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	i, err := c.open(ctx, client, log)
	if err != nil {
		return err
	}
	return i.run(ctx)
}

// instance is one consumer: a member of the group in Kafka, and of the fleet in
// etcd.
type instance struct {
	session *coordinator.Session
	limiter *consumer.Limiter
	member  *worker.Member
	log     *slog.Logger
}

// open joins the fleet. The client is the caller's; it must outlive run.
func (c *config) open(ctx context.Context, client *clientv3.Client, log *slog.Logger) (i *instance, err error) {
	i = &instance{log: log}
	prefix := ""
	if c.etcd != nil {
		prefix = c.etcd.Prefix
	}
	if i.session, err = coordinator.Join(ctx, client, coordinator.Options{Name: c.name, Prefix: prefix, Logger: log}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = i.session.Close()
		}
	}()
	if i.limiter, err = consumer.Open(ctx, i.session, c.provider, consumer.Options{Logger: log}); err != nil {
		return nil, err
	}
	kafka, err := c.kafka()
	if err != nil {
		return nil, err
	}
	i.member, err = worker.New(worker.Config{
		Kafka: kafka, Group: c.group, Topic: c.topic, DeadLetters: c.letters,
		Limiter: i.limiter, Call: c.call(), Margin: c.margin,
		Workers: c.workers, Batch: c.batch,
		MaxBacklog: max(worker.DefaultMaxBacklog, 20*c.batch), MaxPoll: max(worker.DefaultMaxPoll, 10*c.batch),
		SessionTimeout: sessionTimeout, Logger: log,
	})
	return i, err
}

// call returns what makes the calls.
func (c *config) call() worker.Call {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, c.workers // one connection a worker, kept
	client := &http.Client{Transport: transport}
	if c.batch > 1 {
		return postBatch(client, c.providerURL)
	}
	return worker.HTTP(client, c.providerURL)
}

// run consumes until ctx ends, and leaves in good order: the share is handed
// over while the member still uses it, then the partitions are.
func (i *instance) run(ctx context.Context) error {
	consuming, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	left := make(chan error, 1)
	go func() {
		<-ctx.Done()
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		left <- i.session.Leave(leave)
		stop()
	}()
	err := i.member.Run(consuming)
	if ctx.Err() == nil { // it could not even start
		return errors.Join(err, i.session.Close())
	}
	return errors.Join(err, <-left)
}
