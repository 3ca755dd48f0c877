package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/bench/internal/report"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// connections to etcd, as of so many instances.
const connections = 100

// bed is an etcd with its connections, and the rows of the table so far.
type bed struct {
	endpoint string
	clients  []*clientv3.Client
	rows     [][]string
}

// constants measures what the calls cost etcd that sessions are made of.
func constants(ctx context.Context) ([]*report.Section, error) {
	etcd, err := etcdtest.Start(etcdtest.Options{Processes: true, Slow: true})
	if err != nil {
		return nil, err
	}
	defer etcd.Close()
	b := &bed{endpoint: etcd.Endpoints()[0]}
	for range connections {
		c, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		defer c.Close() //nolint:revive // all are used until the end
		b.clients = append(b.clients, c)
	}
	for _, f := range []func(context.Context) error{b.leases, b.reads, b.progress, b.writes, b.events} {
		if err := f(ctx); err != nil {
			return nil, err
		}
	}
	s := &report.Section{Title: "What single calls cost"}
	s.Text("%d connections, which call as fast as they can.", connections)
	s.Table([]string{"each", "calls", "etcd: processor time", "sent"}, b.rows)
	return []*report.Section{s}, nil
}

// measure adds a row: so many calls are made while all connections run f at once.
func (b *bed) measure(ctx context.Context, what string, calls int, f func(client int) error) error {
	before, err := readEtcd(ctx, b.endpoint)
	if err != nil {
		return err
	}
	var all errgroup.Group
	for c := range b.clients {
		all.Go(func() error { return f(c) })
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	after, err := readEtcd(ctx, b.endpoint)
	d := after.since(before)
	b.rows = append(b.rows, []string{what, fmt.Sprint(calls), fmt.Sprintf("%.1f µs", float64(d.cpu.Nanoseconds())/float64(calls)/1e3), fmt.Sprintf("%.0f B", d.sent/float64(calls))})
	return err
}

// repeat has every connection make so many calls, one after the other.
func (b *bed) repeat(ctx context.Context, what string, each int, call func(client int) error) error {
	if err := call(0); err != nil { // the connection is there
		return fmt.Errorf("%s: %w", what, err)
	}
	return b.measure(ctx, what, each*len(b.clients), func(c int) error {
		for range each {
			if err := call(c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bed) leases(ctx context.Context) error {
	ids := make([]clientv3.LeaseID, len(b.clients))
	for i, c := range b.clients {
		l, err := c.Grant(ctx, 60)
		if err != nil {
			return err
		}
		ids[i] = l.ID
	}
	return b.repeat(ctx, "lease kept alive", 200, func(c int) error {
		_, err := b.clients[c].KeepAliveOnce(ctx, ids[c])
		return err
	})
}

// Keys and values are as long as those of instances.
const (
	instanceKey = "/quotient/v1/providers/constants/instances/worker-%d.694d9a1b2c3d4e5f.1"
	reportKey   = "/quotient/v1/reports/constants/worker-%d.694d9a1b2c3d4e5f.1"
)

var instanceValue, reportValue = strings.Repeat("x", 180), strings.Repeat("x", 420)

func (b *bed) reads(ctx context.Context) error {
	key := fmt.Sprintf(instanceKey, 17)
	if _, err := b.clients[0].Put(ctx, key, instanceValue); err != nil {
		return err
	}
	return b.repeat(ctx, "probe: linearizable read of one key", 300, func(c int) error {
		_, err := b.clients[c].Get(ctx, key, clientv3.WithKeysOnly())
		return err
	})
}

// progress asks every connection's watch for its progress, and waits for it.
func (b *bed) progress(ctx context.Context) error {
	ctx, done := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer done()
	watches, err := b.watch(ctx, "/nothing/")
	if err != nil {
		return err
	}
	return b.repeat(ctx, "progress of a watch", 200, func(c int) error {
		if err := b.clients[c].RequestProgress(ctx); err != nil {
			return err
		}
		if r := <-watches[c]; !r.IsProgressNotify() {
			return fmt.Errorf("another answer than progress: %w", r.Err())
		}
		return nil
	})
}

// watch opens a watch on every connection, and returns when all have been created.
func (b *bed) watch(ctx context.Context, prefix string) (watches []clientv3.WatchChan, err error) {
	for _, c := range b.clients {
		watches = append(watches, c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()))
	}
	for _, w := range watches {
		if r := <-w; !r.Created {
			return nil, fmt.Errorf("a watch was not created: %w", r.Err())
		}
	}
	return watches, nil
}

func (b *bed) writes(ctx context.Context) error {
	return b.repeat(ctx, "report: a transaction that writes 420 bytes", 50, func(c int) error {
		own := fmt.Sprintf(reportKey, c)
		_, err := b.clients[c].Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(own+"x"), "=", 0)).
			Then(clientv3.OpPut(own, reportValue)).Commit()
		return err
	})
}

// events writes keys that every connection watches. What the writes themselves
// cost is small beside the events.
func (b *bed) events(ctx context.Context) error {
	const writes = 300
	ctx, done := context.WithCancel(ctx)
	defer done()
	watches, err := b.watch(ctx, "/quotient/v1/providers/constants/")
	if err != nil {
		return err
	}
	return b.measure(ctx, "join or leave, to one watcher", writes*len(watches), func(c int) error {
		if c == 0 {
			for i := range writes {
				if _, err := b.clients[0].Put(ctx, fmt.Sprintf(instanceKey, i), instanceValue); err != nil {
					done()
					return err
				}
			}
		}
		for n := 0; n < writes; {
			r, ok := <-watches[c]
			if !ok {
				return r.Err()
			}
			n += len(r.Events)
		}
		return nil
	})
}
