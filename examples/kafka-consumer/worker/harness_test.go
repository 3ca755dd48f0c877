package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	topic      = "jobs"
	letters    = "jobs.dead"
	group      = "workers"
	partitions = 12
)

// world is a fake Kafka and a provider, in a bubble of testing/synctest: minutes
// of waiting take no time, and everything that blocks is seen.
type world struct {
	t        *testing.T
	network  *kfake.VirtualNetwork
	cluster  *kfake.Cluster
	admin    *kgo.Client
	provider provider
	produced int
	opts     []kgo.Opt // of every member
}

func inBubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, network: &kfake.VirtualNetwork{}}
		w.provider.seen = map[string][]time.Time{}
		w.provider.latency = 20 * time.Millisecond
		var err error
		w.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic), kfake.SeedTopics(1, letters),
			kfake.ListenFn(w.network.Listen), kfake.Ports(9092))
		if err != nil {
			t.Fatal(err)
		}
		defer w.cluster.Close()
		w.admin, err = kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.network.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer w.admin.Close()
		f(w)
	})
}

// produce writes n records; bad ones are rejected by the provider.
func (w *world) produce(n int, bad func(i int) bool) {
	w.t.Helper()
	var records []*kgo.Record
	for range n {
		value := fmt.Sprint(w.produced)
		if bad != nil && bad(w.produced) {
			value = "bad " + value
		}
		records = append(records, &kgo.Record{Topic: topic, Key: fmt.Append(nil, w.produced), Value: []byte(value)})
		w.produced++
	}
	if err := w.admin.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// await waits in fake time until every record is processed or dead.
func (w *world) await(members ...*running) {
	w.t.Helper()
	w.until("all records are done", func() bool {
		dead := 0
		for _, m := range members {
			dead += int(m.Stats().Dead)
		}
		return w.provider.distinct()+dead >= w.produced
	})
}

func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for range 36000 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("an hour later it is not so that %s: %d of %d records processed", what, w.provider.distinct(), w.produced)
}

// committed asserts that the group's offsets are at the ends of the partitions.
func (w *world) committed() {
	w.t.Helper()
	commits := w.cluster.GroupInfo(group).Commits[topic]
	for _, p := range w.cluster.PartitionInfos(topic) {
		if got := commits[p.Partition].Offset; got != p.HighWatermark {
			w.t.Errorf("partition %d is committed up to %d of %d", p.Partition, got, p.HighWatermark)
		}
	}
}

// running is a member on a goroutine of its own.
type running struct {
	*Member
	limiter *consumer.Limiter
	stop    context.CancelFunc
	done    chan error
	killed  atomic.Bool
	conns   struct {
		sync.Mutex
		all []net.Conn
	}
}

// start starts a member that may make so many calls a second.
func (w *world) start(permits int64, change func(c *Config)) *running {
	w.t.Helper()
	limiter, err := consumer.Open(w.t.Context(), consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}),
		"provider", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	r := &running{limiter: limiter, done: make(chan error, 1)}
	c := Config{
		Kafka: append([]kgo.Opt{kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(func(ctx context.Context, n, a string) (net.Conn, error) {
			return r.dial(ctx, w.network, n, a)
		})}, w.opts...),
		Group: group, Topic: topic, DeadLetters: letters, Limiter: limiter,
		Workers: 8, MaxBacklog: 50, MaxPoll: 20, SessionTimeout: 10 * time.Second,
		// The client waits for the end of a rebalance with a lock that keeps the
		// bubble's time from advancing, so it must not want to commit in one.
		CommitInterval: time.Hour,
		Logger:         slog.New(slog.DiscardHandler),
	}
	c.Call = func(ctx context.Context, records []*kgo.Record) Answer {
		if r.killed.Load() {
			return Answer{Err: errors.New("killed")}
		}
		return w.provider.call(ctx, records)
	}
	if change != nil {
		change(&c)
	}
	if r.Member, err = New(c); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	r.stop = cancel
	go func() { r.done <- r.Run(ctx) }()
	return r
}

func (r *running) dial(ctx context.Context, network *kfake.VirtualNetwork, n, a string) (net.Conn, error) {
	if r.killed.Load() {
		return nil, errors.New("killed")
	}
	conn, err := network.DialContext(ctx, n, a)
	if err == nil {
		r.conns.Lock()
		r.conns.all = append(r.conns.all, conn)
		r.conns.Unlock()
	}
	return conn, err
}

// kill cuts the member off from Kafka and from the provider at once.
func (r *running) kill() {
	r.killed.Store(true)
	r.conns.Lock()
	defer r.conns.Unlock()
	for _, c := range r.conns.all {
		_ = c.Close()
	}
}

// pass lets time go by.
func (w *world) pass(d time.Duration) { time.Sleep(d) }

// leave ends a member in good order.
func (w *world) leave(members ...*running) {
	w.t.Helper()
	for _, r := range members {
		r.stop()
	}
	for _, r := range members {
		if err := <-r.done; err != nil && !r.killed.Load() {
			w.t.Error(err)
		}
		_ = r.limiter.Close()
	}
}

// provider counts what it processed.
type provider struct {
	mu      sync.Mutex
	latency time.Duration
	seen    map[string][]time.Time // when each value was processed
	calls   []time.Time
	busy    time.Duration // asked for by Retry-After, once
	down    bool
}

func (p *provider) call(_ context.Context, records []*kgo.Record) Answer {
	p.mu.Lock()
	now, busy, down := time.Now(), p.busy, p.down
	p.calls = append(p.calls, now)
	p.busy = 0
	p.mu.Unlock()
	time.Sleep(p.latency)
	if down {
		return Answer{Err: errors.New("down")}
	}
	if busy > 0 {
		return Answer{Err: errors.New("429"), RetryAfter: busy}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := Answer{Reason: "cannot be read"}
	for i, r := range records {
		if v := string(r.Value); v[:1] == "b" {
			a.Rejected = append(a.Rejected, i)
		} else {
			p.seen[v] = append(p.seen[v], now)
		}
	}
	return a
}

func (p *provider) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *provider) distinct() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.seen)
}

// duplicates is how many times something was processed once more.
func (p *provider) duplicates() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, at := range p.seen {
		n += len(at) - 1
	}
	return n
}

// worst is the largest number of calls in one second of the clock.
func (p *provider) worst() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst, seconds := 0, map[int64]int{}
	for _, at := range p.calls {
		seconds[at.Unix()]++
		worst = max(worst, seconds[at.Unix()])
	}
	return worst
}
