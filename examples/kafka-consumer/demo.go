package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// The demonstration: so many records, of which each badEvery-th is rejected. The provider
// asks for a pause at pauseAt calls answered, and consumer A ends at leaveAt.
const (
	demoRecords, badEvery, pauseAt, leaveAt = 800, 100, 300, 500
	demoGood                                = demoRecords - demoRecords/badEvery
	demoPartitions                          = 6
	demoPause                               = time.Second
	demoMargin                              = 500 * time.Millisecond
)

// demo plays two consumers on a fake Kafka, an etcd and a provider of its own, says what
// happens, and returns when every record is processed or a dead letter. It fails if one is
// lost, or if the provider counts more calls in a window than the limit.
func demo(ctx context.Context, out io.Writer) (err error) {
	slog.SetLogLoggerLevel(slog.LevelError) // its own lines tell the story
	say := func(format string, arguments ...any) {
		fmt.Fprintf(out, "%s  "+format+"\n", append([]any{time.Now().Format("15:04:05.000")}, arguments...)...)
	}
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 200, Window: 2 * time.Second}}, Timing: quota.Timing{Guard: demoMargin}}

	etcd, err := etcdtest.Start(etcdtest.Options{Slow: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	client, err := etcd.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{})
	if err != nil {
		return err
	}
	c := config{topic: "jobs", endpoints: strings.Join(etcd.Endpoints(), ","), provider: "demo/api", margin: demoMargin}
	if _, err := admin.Put(ctx, c.provider, policy); err != nil {
		return err
	}
	say("etcd has the limit of %s: %s", c.provider, quota.FormatLimits(policy.Limits))

	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(demoPartitions, c.topic), kfake.SeedTopics(1, c.topic+".dead"))
	if err != nil {
		return err
	}
	defer kafka.Close()
	c.brokers = strings.Join(kafka.ListenAddrs(), ",")
	if err := produce(ctx, c); err != nil {
		return err
	}
	say("topic %s has %d records in %d partitions; the provider will reject %d of them", c.topic, demoRecords, demoPartitions, demoRecords/badEvery)

	p := &demoProvider{meter: limittest.NewMeter(policy.Limits), processed: map[string]int{}, reached: make(chan int, 3)}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: callTimeout}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	c.url = "http://" + listener.Addr().String()

	began := time.Now()
	a, b := startConsumer(ctx, c), startConsumer(ctx, c)
	defer func() { err = errors.Join(err, a.end(), b.end()) }()
	say("consumers A and B start; each calls the provider for every record that it gets")
	for n := 0; n < demoGood; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n = <-p.reached:
		}
		switch n {
		case pauseAt:
			say("%d calls are answered: now 429, Retry-After %v, and both pause", n, demoPause)
		case leaveAt:
			say("%d calls are answered: A ends, and hands its share and its partitions to B", n)
			if err := a.end(); err != nil {
				return err
			}
			say("A has ended")
		}
	}
	dead := func() int64 { return kafka.PartitionInfos(c.topic + ".dead")[0].HighWatermark }
	for tick := time.NewTicker(100 * time.Millisecond); dead() < demoRecords/badEvery; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	if err := b.end(); err != nil {
		return err
	}
	committed := int64(0)
	for _, info := range kafka.PartitionInfos(c.topic) {
		committed += kafka.GroupInfo(c.topic).Commits[c.topic][info.Partition].Offset
	}
	processed, calls := p.count()
	say("done after %.1f s: %d records processed, %d dead letters, %d committed; %d calls in all",
		time.Since(began).Seconds(), processed, dead(), committed, calls)
	if committed != demoRecords {
		return fmt.Errorf("%d of %d records are committed", committed, demoRecords)
	}
	if err := p.meter.Check(); err != nil {
		return fmt.Errorf("the provider counted more than its limit: %w", err)
	}
	say("the provider counted at most %d calls in each 2 s", policy.Limits[0].Permits)
	return nil
}

// produce writes the demonstration's records.
func produce(ctx context.Context, c config) error {
	kafka, err := kgo.NewClient(kgo.SeedBrokers(c.brokers), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		return err
	}
	defer kafka.Close()
	var records []*kgo.Record
	for i := range demoRecords {
		value := "good "
		if i%badEvery == 0 {
			value = "bad "
		}
		records = append(records, &kgo.Record{Topic: c.topic, Value: fmt.Append(nil, value, i)})
	}
	return kafka.ProduceSync(ctx, records...).FirstErr()
}

// demoConsumer is a consumer that runs.
type demoConsumer struct {
	stop context.CancelFunc
	done func() error
}

func startConsumer(ctx context.Context, c config) demoConsumer {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx, c) }()
	return demoConsumer{stop, sync.OnceValue(func() error { return <-ended })}
}

// end ends it as SIGTERM would. A second end does nothing.
func (d demoConsumer) end() error {
	d.stop()
	return d.done()
}

// demoProvider answers calls, and counts them by its own clock.
type demoProvider struct {
	meter   *limittest.Meter
	reached chan int // pauseAt, leaveAt, demoGood

	mu        sync.Mutex
	processed map[string]int
	calls     int
	busy      time.Time // it answers 429 until then
}

// ServeHTTP answers 422 to a bad record, 429 in a pause, and else 200.
func (p *demoProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.meter.Call(1)
	record, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	switch {
	case time.Now().Before(p.busy):
		w.Header().Set("Retry-After", fmt.Sprintf("%.0f", demoPause.Seconds()))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case strings.HasPrefix(string(record), "bad"):
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	if p.processed[string(record)]++; p.processed[string(record)] > 1 {
		return // it was answered before
	}
	switch n := len(p.processed); n {
	case pauseAt:
		p.busy = time.Now().Add(demoPause)
		p.reached <- n
	case leaveAt, demoGood:
		p.reached <- n
	}
}

func (p *demoProvider) count() (processed, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.processed), p.calls
}
