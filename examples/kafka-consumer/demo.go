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
	"github.com/quotient-limiter/quotient/internal/embedded"
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
	w := &demoWorld{out: out, config: config{topic: "jobs", provider: "demo/api", margin: demoMargin}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := errors.Join(w.startEtcd(ctx), w.startKafka(ctx), w.startProvider(ctx)); err != nil {
		return err
	}
	began := time.Now()
	if err := w.play(ctx); err != nil {
		return err
	}
	committed := int64(0)
	for _, info := range w.kafka.PartitionInfos(w.config.topic) {
		committed += w.kafka.GroupInfo(w.config.topic).Commits[w.config.topic][info.Partition].Offset
	}
	processed, calls := w.provider.count()
	w.say("done after %.1f s: %d records processed, %d dead letters, %d committed; %d calls in all",
		time.Since(began).Seconds(), processed, w.dead(), committed, calls)
	if committed != demoRecords {
		return fmt.Errorf("%d of %d records are committed", committed, demoRecords)
	}
	if err := w.provider.meter.Check(); err != nil {
		return fmt.Errorf("the provider counted more than its limit: %w", err)
	}
	w.say("the provider counted at most %d calls in each 2 s", demoPolicy.Limits[0].Permits)
	return nil
}

// demoPolicy keeps the window's edges free, since the provider counts arrivals.
var demoPolicy = quota.Policy{Limits: []quota.Limit{{Permits: 200, Window: 2 * time.Second}}, Timing: quota.Timing{Guard: demoMargin}}

// demoWorld is what the consumers need.
type demoWorld struct {
	out      io.Writer
	config   config
	etcd     *embedded.Cluster
	kafka    *kfake.Cluster
	provider *demoProvider
	server   *http.Server
}

func (w *demoWorld) say(format string, arguments ...any) {
	fmt.Fprintf(w.out, "%s  "+format+"\n", append([]any{time.Now().Format("15:04:05.000")}, arguments...)...)
}

// startEtcd starts an etcd with the provider's policy.
func (w *demoWorld) startEtcd(ctx context.Context) (err error) {
	if w.etcd, err = embedded.Start(embedded.Options{Slow: true}); err != nil {
		return err
	}
	w.config.endpoints = strings.Join(w.etcd.Endpoints(), ",")
	client, err := w.etcd.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{})
	if err != nil {
		return err
	}
	w.say("etcd has the limit of %s: %s", w.config.provider, quota.FormatLimits(demoPolicy.Limits))
	_, err = admin.Put(ctx, w.config.provider, demoPolicy)
	return err
}

// startKafka starts a fake broker with the records.
func (w *demoWorld) startKafka(ctx context.Context) (err error) {
	topic := w.config.topic
	w.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(demoPartitions, topic), kfake.SeedTopics(1, topic+".dead"))
	if err != nil {
		return err
	}
	w.config.brokers = strings.Join(w.kafka.ListenAddrs(), ",")
	w.say("topic %s has %d records in %d partitions; the provider will reject %d of them", topic, demoRecords, demoPartitions, demoRecords/badEvery)
	return produce(ctx, w.config)
}

// startProvider starts the server that counts calls.
func (w *demoWorld) startProvider(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.provider = &demoProvider{meter: limittest.NewMeter(demoPolicy.Limits), processed: map[string]int{}, reached: make(chan int, 3)}
	w.server = &http.Server{Handler: w.provider, ReadHeaderTimeout: callTimeout}
	w.config.url = "http://" + listener.Addr().String()
	go func() { _ = w.server.Serve(listener) }()
	return nil
}

func (w *demoWorld) close() (err error) {
	if w.server != nil {
		err = w.server.Close()
	}
	if w.kafka != nil {
		w.kafka.Close()
	}
	if w.etcd != nil {
		err = errors.Join(err, w.etcd.Close())
	}
	return err
}

// play runs the consumers until every record is processed or a dead letter.
func (w *demoWorld) play(ctx context.Context) (err error) {
	w.say("consumers A and B start; each calls the provider for every record that it gets")
	a, b := startConsumer(ctx, w.config), startConsumer(ctx, w.config)
	defer func() { err = errors.Join(err, a.end(), b.end()) }()
	for n := 0; n < demoGood; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n = <-w.provider.reached:
		}
		switch n {
		case pauseAt:
			w.say("%d calls are answered: now 429, Retry-After %v, and both pause", n, demoPause)
		case leaveAt:
			w.say("%d calls are answered: A ends, and hands its share and its partitions to B", n)
			if err := a.end(); err != nil {
				return err
			}
			w.say("A has ended")
		}
	}
	for tick := time.NewTicker(100 * time.Millisecond); w.dead() < demoRecords/badEvery; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// dead returns the number of dead letters.
func (w *demoWorld) dead() int64 {
	return w.kafka.PartitionInfos(w.config.topic + ".dead")[0].HighWatermark
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
