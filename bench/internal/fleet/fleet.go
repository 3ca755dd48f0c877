// Package fleet measures many instances that share one limit through a real
// etcd, in one process: what they issue until the processors are used up.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	provider = "bench"
	window   = time.Second
	// settle is shorter than the default, to save time; the clock error that it
	// allows for is scaled alike. All instances are on one machine.
	settle     = time.Second
	clockError = 10 * time.Millisecond
)

// Fleet is a number of instances, each with a session and an etcd client of its
// own, and their etcd, which is a process of its own.
type Fleet struct {
	etcd      *etcdtest.Cluster
	clients   []*clientv3.Client
	admin     *coordinator.Admin
	sessions  []*coordinator.Session
	Instances []*consumer.Limiter
}

// Start starts n instances with a limit of so many permits a second, and returns
// when all of them issue.
func Start(ctx context.Context, n int, permits int64) (f *Fleet, err error) {
	f = &Fleet{}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if f.etcd, err = etcdtest.Start(etcdtest.Options{Processes: true}); err != nil {
		return f, err
	}
	operator, err := f.client()
	if err != nil {
		return f, err
	}
	if f.admin, err = coordinator.NewAdmin(operator, coordinator.AdminOptions{Author: "bench"}); err != nil {
		return f, err
	}
	if err := f.put(ctx, permits); err != nil {
		return f, err
	}
	for i := range n {
		client, err := f.client()
		if err != nil {
			return f, err
		}
		s, err := coordinator.Join(ctx, client, coordinator.Options{
			Name: fmt.Sprintf("bench-%d", i), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return f, err
		}
		f.sessions = append(f.sessions, s)
		l, err := consumer.Open(ctx, s, provider, consumer.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return f, err
		}
		f.Instances = append(f.Instances, l)
	}
	return f, f.settled(ctx, permits)
}

func (f *Fleet) client() (*clientv3.Client, error) {
	c, err := f.etcd.Client()
	if err == nil {
		f.clients = append(f.clients, c)
	}
	return c, err
}

func (f *Fleet) put(ctx context.Context, permits int64) error {
	_, err := f.admin.Put(ctx, provider, quota.Policy{
		Limits: []quota.Limit{{Permits: permits, Window: window}}, Settle: settle, ClockError: clockError,
	}, coordinator.AnyRevision)
	return err
}

// Set sets another limit and returns when the whole fleet has settled on it.
func (f *Fleet) Set(ctx context.Context, permits int64) error {
	if err := f.put(ctx, permits); err != nil {
		return err
	}
	return f.settled(ctx, permits)
}

// settled returns when the shares of all instances sum to the limit.
func (f *Fleet) settled(ctx context.Context, permits int64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		sum := int64(0)
		for _, l := range f.Instances {
			sum += l.Status().Shortest().Share
		}
		if sum == permits {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the shares of %d instances sum to %d, not to %d: %w", len(f.Instances), sum, permits, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Use is what a fleet issued in some whole windows.
type Use struct {
	PerSecond float64
	CPU       time.Duration // of this process, for each permit
	// Most is the largest number of permits issued for one window; 0 if they
	// were not told apart.
	Most int64
}

// Load has a goroutine on every instance ask for one permit after the other,
// waiting for as long as it takes, and counts so many windows. Told apart, the
// permits are counted by their windows, which costs time.
func (f *Fleet) Load(ctx context.Context, windows int, apart bool) Use {
	ctx, cancel := context.WithCancel(ctx)
	counts := make([]count, len(f.Instances))
	var all sync.WaitGroup
	for i := range counts {
		all.Go(func() {
			if apart {
				counts[i].take(ctx, f.Instances[i])
			} else {
				counts[i].ask(ctx, f.Instances[i])
			}
		})
	}
	awaitMiddle() // the first one is partial
	awaitMiddle()
	began, cpu, before := time.Now(), measure.CPU(), total(counts)
	for range windows {
		awaitMiddle()
	}
	var use Use
	issued := total(counts) - before
	use.PerSecond = float64(issued) / time.Since(began).Seconds()
	use.CPU = time.Duration(float64(measure.CPU()-cpu) / float64(max(1, issued)))
	cancel()
	all.Wait()
	sums := map[int64]int64{}
	for i := range counts {
		for w, n := range counts[i].windows {
			sums[w] += n
			use.Most = max(use.Most, sums[w])
		}
	}
	return use
}

// count is what one goroutine was issued, in a cache line of its own.
type count struct {
	n atomic.Int64
	// windows is the goroutine's own until it ends: permits by their windows'
	// starts.
	windows map[int64]int64
	_       [48]byte
}

func (c *count) ask(ctx context.Context, l *consumer.Limiter) {
	for l.Acquire(ctx, consumer.Forever) == nil {
		c.n.Add(1)
	}
}

func (c *count) take(ctx context.Context, l *consumer.Limiter) {
	c.windows = map[int64]int64{}
	for {
		p, err := l.Take(ctx, 1, consumer.Forever)
		if err != nil {
			return
		}
		c.n.Add(1)
		c.windows[p.Start().UnixNano()]++
	}
}

func total(counts []count) (sum int64) {
	for i := range counts {
		sum += counts[i].n.Load()
	}
	return sum
}

// awaitMiddle returns in the middle of the next window. What a limit allows is
// issued within milliseconds after a window's start; so the sum from middle to
// middle is that of a window, and at the edges nobody need be quick.
func awaitMiddle() {
	now := time.Now()
	time.Sleep(now.Truncate(window).Add(window * 3 / 2).Sub(now))
}

// KillEtcd kills the etcd that the fleet lives on.
func (f *Fleet) KillEtcd() error { return f.etcd.Kill(0) }

// Close ends everything.
func (f *Fleet) Close() error {
	var errs []error
	for _, s := range f.sessions {
		errs = append(errs, s.Close())
	}
	for _, c := range f.clients {
		errs = append(errs, c.Close())
	}
	if f.etcd != nil {
		errs = append(errs, f.etcd.Close())
	}
	return errors.Join(errs...)
}
