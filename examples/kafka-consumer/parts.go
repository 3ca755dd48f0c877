package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/examples/kafka-consumer/provider"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// parts are what a demonstration stands on: embedded, or those of the flags.
type parts struct {
	order    order
	kafka    *kgo.Client
	etcd     *clientv3.Client
	provider *provider.Provider
	closers  []func() error // in the order of opening
}

func (p *parts) close() error {
	var errs []error
	for _, f := range slices.Backward(p.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// openParts starts what is embedded, and connects to the rest.
func openParts(ctx context.Context, c *config) (p *parts, err error) {
	p = &parts{}
	defer func() {
		if err != nil {
			_ = p.close() // what was opened so far; err tells more
		}
	}()
	run := strings.ToLower(rand.Text()[:8])
	if err := p.openKafka(ctx, c, run); err != nil {
		return p, fmt.Errorf("kafka: %w", err)
	}
	if err := p.openEtcd(ctx, c, run); err != nil {
		return p, fmt.Errorf("etcd: %w", err)
	}
	if err := p.openProvider(ctx, c); err != nil {
		return p, fmt.Errorf("provider: %w", err)
	}
	return p, nil
}

// openKafka makes a topic and one for the dead letters, which are gone
// afterwards unless they were named by flags.
func (p *parts) openKafka(ctx context.Context, c *config, run string) error {
	if len(c.brokers) == 0 {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return err
		}
		p.closers = append(p.closers, func() error { cluster.Close(); return nil })
		c.brokers = cluster.ListenAddrs()
	}
	opts, err := c.kafka()
	if err != nil {
		return err
	}
	// Records are spread evenly, whatever their number.
	if p.kafka, err = kgo.NewClient(append(opts, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(5*time.Millisecond))...); err != nil {
		return err
	}
	p.closers = append(p.closers, func() error { p.kafka.Close(); return nil })
	p.order.Brokers, p.order.Topic, p.order.Letters = c.brokers, c.topic, c.letters
	if p.order.Topic == "" {
		p.order.Topic, p.order.Letters = "kafka-consumer-"+run, or(c.letters, "kafka-consumer-"+run+".dead")
	}
	admin := kadm.NewClient(p.kafka)
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, t := range []struct {
		name       string
		partitions int
	}{{p.order.Topic, c.partitions}, {p.order.Letters, 1}} {
		if _, err := admin.CreateTopic(within, int32(t.partitions), -1, nil, t.name); err != nil {
			return fmt.Errorf("topic %s: %w (the demonstration makes its own topics: name one that does not exist, or none)", t.name, err)
		}
		p.closers = append(p.closers, func() error { return dropTopic(admin, t.name) })
	}
	return nil
}

// dropTopic removes what the demonstration made.
func dropTopic(admin *kadm.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := admin.DeleteTopic(ctx, name)
	return err
}

// openEtcd sets the provider's limit, in a policy that is gone afterwards.
func (p *parts) openEtcd(ctx context.Context, c *config, run string) (err error) {
	prefix := ""
	if c.etcd == nil {
		// etcd's own timers: on a machine under full load a faster clock would take
		// every hiccup for a dead leader.
		cluster, err := etcdtest.Start(etcdtest.Options{Slow: true})
		if err != nil {
			return err
		}
		p.closers = append(p.closers, cluster.Close)
		p.order.Endpoints = cluster.Endpoints()
	} else {
		prefix = c.etcd.Prefix
	}
	if p.etcd, err = c.client(ctx, p.order.Endpoints, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	p.closers = append(p.closers, p.etcd.Close)
	admin, err := coordinator.NewAdmin(p.etcd, coordinator.AdminOptions{Prefix: prefix, Author: "kafka-consumer"})
	if err != nil {
		return err
	}
	p.order.Provider = or(c.provider, "kafka-consumer/"+run)
	policy := quota.Policy{Limits: []quota.Limit{c.limit}, Guard: c.guard, Reason: "demonstration"}
	if _, err := admin.Put(ctx, p.order.Provider, policy, 0); err != nil {
		return err
	}
	p.closers = append(p.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := admin.Delete(ctx, p.order.Provider, "the demonstration is over", coordinator.AnyRevision)
		return err
	})
	return nil
}

// openProvider serves the provider on loopback, unless --listen says otherwise.
func (p *parts) openProvider(ctx context.Context, c *config) error {
	pc := provider.Config{Limit: c.limit.Permits, Window: c.limit.Window, Latency: c.latency}
	if c.providerURL != "" {
		forward, err := url.Parse(c.providerURL)
		if err != nil {
			return err
		}
		pc.Forward = forward
	}
	p.provider = provider.New(pc)
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", c.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := &http.Server{Handler: p.provider, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	p.closers = append(p.closers, server.Close)
	p.order.URL = "http://" + listener.Addr().String() + "/"
	return nil
}

func or(v, otherwise string) string {
	if v == "" {
		return otherwise
	}
	return v
}
