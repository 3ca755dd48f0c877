package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// row is what one kind of call costs, each.
type row struct {
	what           string
	calls          int
	etcd, client   time.Duration // processor time
	sent, received float64       // bytes, as etcd sees it: to clients, from clients
}

// bed is an etcd and connections to it, as many as instances would have.
type bed struct {
	endpoint string
	clients  []*clientv3.Client
	rows     []row
}

const (
	connections = 100
	// Sizes of values, as instances write them.
	instanceBytes, reportBytes, levelBytes = 180, 420, 300
)

// measureConstants measures what the calls cost that sessions are made of.
func measureConstants(ctx context.Context) ([]row, error) {
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
	return b.rows, nil
}

// measure has every connection make so many calls one after the other, and adds
// a row.
func (b *bed) measure(ctx context.Context, what string, each int, call func(client, i int) error) error {
	if err := call(0, -1); err != nil { // the connection is there
		return fmt.Errorf("%s: %w", what, err)
	}
	before, err := readEtcd(ctx, b.endpoint)
	if err != nil {
		return err
	}
	cpu := measure.CPU()
	errs := make(chan error, len(b.clients))
	var all sync.WaitGroup
	for c := range b.clients {
		all.Go(func() {
			for i := range each {
				if err := call(c, i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return fmt.Errorf("%s: %w", what, err)
	default:
	}
	return b.add(ctx, what, before, cpu, each*len(b.clients))
}

func (b *bed) add(ctx context.Context, what string, before reading, cpu time.Duration, calls int) error {
	cpu = measure.CPU() - cpu
	after, err := readEtcd(ctx, b.endpoint)
	if err != nil {
		return err
	}
	d := after.since(before)
	n := time.Duration(calls)
	b.rows = append(b.rows, row{what, calls, d.cpu / n, cpu / n, d.sent / float64(calls), d.received / float64(calls)})
	return nil
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
	return b.measure(ctx, "lease kept alive", 200, func(c, _ int) error {
		_, err := b.clients[c].KeepAliveOnce(ctx, ids[c])
		return err
	})
}

const key = "/quotient/v1/providers/constants/instances/worker-17.694d9a1b2c3d4e5f.1"

func (b *bed) reads(ctx context.Context) error {
	if _, err := b.clients[0].Put(ctx, key, strings.Repeat("x", instanceBytes)); err != nil {
		return err
	}
	return b.measure(ctx, "probe: linearizable read of one key", 300, func(c, _ int) error {
		_, err := b.clients[c].Get(ctx, key, clientv3.WithKeysOnly())
		return err
	})
}

// progress asks every connection's watch for its progress, and waits for it.
func (b *bed) progress(ctx context.Context) error {
	ctx = clientv3.WithRequireLeader(ctx)
	watches, done, err := b.watch(ctx, "/nothing/")
	defer done()
	if err != nil {
		return err
	}
	return b.measure(ctx, "progress of a watch", 200, func(c, _ int) error {
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
func (b *bed) watch(ctx context.Context, prefix string) (watches []clientv3.WatchChan, done func(), err error) {
	ctx, done = context.WithCancel(ctx)
	for _, c := range b.clients {
		watches = append(watches, c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()))
	}
	for _, w := range watches {
		if r := <-w; !r.Created {
			return nil, done, fmt.Errorf("a watch was not created: %w", r.Err())
		}
	}
	return watches, done, nil
}

func (b *bed) writes(ctx context.Context) error {
	value := strings.Repeat("x", reportBytes)
	return b.measure(ctx, "report: a transaction that writes 420 bytes", 50, func(c, _ int) error {
		own := fmt.Sprintf("/quotient/v1/reports/constants/worker-%d.694d9a1b2c3d4e5f.1", c)
		_, err := b.clients[c].Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(own+"x"), "=", 0)).
			Then(clientv3.OpPut(own, value)).Commit()
		return err
	})
}

// events writes keys that every connection watches. What the write itself costs is
// small beside the events.
func (b *bed) events(ctx context.Context) error {
	for _, e := range []struct {
		what  string
		bytes int
	}{{"join or leave, to one watcher", instanceBytes}, {"level, to one watcher", levelBytes}} {
		const writes = 300
		watches, done, err := b.watch(ctx, "/quotient/v1/providers/events/")
		if err != nil {
			done()
			return err
		}
		var all sync.WaitGroup
		var got atomic.Int64
		for _, w := range watches {
			all.Go(func() {
				for n := 0; n < writes; {
					r, ok := <-w
					if !ok {
						return
					}
					n += len(r.Events)
					got.Add(int64(len(r.Events)))
				}
			})
		}
		before, err := readEtcd(ctx, b.endpoint)
		cpu := measure.CPU()
		for i := range writes {
			if err == nil {
				k := fmt.Sprintf("/quotient/v1/providers/events/instances/worker-%d.694d9a1b2c3d4e5f.1", i)
				_, err = b.clients[0].Put(ctx, k, strings.Repeat("x", e.bytes))
			}
		}
		if err != nil {
			done()
		}
		all.Wait()
		done()
		if err != nil {
			return err
		}
		if err := b.add(ctx, e.what, before, cpu, int(got.Load())); err != nil {
			return err
		}
	}
	return nil
}
