package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/quota"
)

// The demonstration's records, of which each badEvery-th is rejected. The provider asks for
// a pause when pauseAt are processed, and consumer A ends at leaveAt.
const demoRecords, badEvery, pauseAt, leaveAt = 800, 100, 300, 500

// demoPolicy keeps the window's edges free, since the provider counts arrivals.
var demoPolicy = quota.Policy{Limits: []quota.Limit{{Permits: 200, Window: 2 * time.Second}}, Timing: quota.Timing{Guard: time.Second / 2}}

// demo plays two consumers on a fake Kafka, an etcd and a provider of its own, says what
// happens, and returns when every record is processed or a dead letter. It fails if one is
// lost, if a consumer goes on in the pause, or if the provider counts more calls in a window
// than the limit.
func demo(ctx context.Context, out io.Writer) error {
	slog.SetLogLoggerLevel(slog.LevelError) // its own lines tell the story
	say := func(format string, arguments ...any) {
		fmt.Fprintln(out, time.Now().Format("15:04:05.000 "), fmt.Sprintf(format, arguments...))
	}
	etcd, err := embedded.Start(embedded.Options{Slow: true})
	if err != nil {
		return err
	}
	defer etcd.Close()
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "jobs"), kfake.SeedTopics(1, "jobs.dead"))
	if err != nil {
		return err
	}
	defer kafka.Close()
	provider := &demoProvider{meter: limittest.NewMeter(demoPolicy.Limits), processed: map[string]bool{}}
	server := httptest.NewServer(provider)
	defer server.Close()
	c := config{
		brokers: strings.Join(kafka.ListenAddrs(), ","), topic: "jobs", endpoints: strings.Join(etcd.Endpoints(), ","),
		provider: "demo/api", url: server.URL, margin: demoPolicy.Guard,
	}
	if err := errors.Join(setLimit(ctx, etcd, c.provider), produce(ctx, c)); err != nil {
		return err
	}
	say("etcd has the limit of %s: %s", c.provider, quota.FormatLimits(demoPolicy.Limits))
	say("topic jobs has %d records in 6 partitions; the provider will reject %d of them", demoRecords, demoRecords/badEvery)

	began := time.Now()
	if err := play(ctx, c, kafka, provider, say); err != nil {
		return err
	}
	server.Close() // no call is under way
	dead, rejected := kafka.PartitionInfos("jobs.dead")[0].HighWatermark, demoRecords/badEvery
	say("done after %.1f s: %d records processed, %d dead letters, %d committed; the pause refused %d calls",
		time.Since(began).Seconds(), len(provider.processed), dead, committed(kafka), provider.refused)
	if len(provider.processed) != demoRecords-rejected || dead < int64(rejected) {
		return errors.New("a record is lost")
	}
	if provider.refused == 0 || provider.refused > 2*maxCalls { // those under way as it began
		return fmt.Errorf("%d calls met the pause, and not 1 to %d", provider.refused, 2*maxCalls)
	}
	if err := provider.meter.Check(); err != nil {
		return fmt.Errorf("the provider counted more than its limit: %w", err)
	}
	say("the provider counted at most %d calls in each 2 s", demoPolicy.Limits[0].Permits)
	return nil
}

// play runs the consumers until every record is committed. A consumer that fails ends it.
func play(ctx context.Context, c config, kafka *kfake.Cluster, provider *demoProvider, say func(string, ...any)) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	start := func() (end func()) {
		consuming, stop := context.WithCancel(ctx) // as SIGTERM does
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := consume(consuming, c); err != nil {
				fail(err)
			}
		}()
		return func() { stop(); <-ended }
	}
	until := func(done func() bool) {
		for !done() && sleep(ctx, 10*time.Millisecond) {
		}
	}
	say("consumers A and B start; each calls the provider for every record that it gets")
	endA, endB := start(), start()
	until(func() bool { return provider.count() >= pauseAt })
	say("%d calls are answered: now 429, Retry-After 1s, and both pause", pauseAt)
	until(func() bool { return provider.count() >= leaveAt })
	say("%d calls are answered: A ends, and hands its share and its partitions to B", leaveAt)
	endA()
	say("A has ended")
	until(func() bool { return committed(kafka) == demoRecords })
	endB()
	return context.Cause(ctx)
}

// committed returns the number of records that are committed.
func committed(kafka *kfake.Cluster) (n int64) {
	if group := kafka.GroupInfo("jobs"); group != nil { // nil until a consumer joins
		for _, partition := range group.Commits["jobs"] {
			n += partition.Offset
		}
	}
	return n
}

func setLimit(ctx context.Context, etcd *embedded.Cluster, provider string) error {
	client, err := etcd.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	operator, err := admin.New(client, admin.Options{})
	if err != nil {
		return err
	}
	_, err = operator.Put(ctx, provider, demoPolicy)
	return err
}

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

// demoProvider answers 422 to a bad record, 429 in a pause, and else 200. It counts calls
// by its own clock.
type demoProvider struct {
	meter *limittest.Meter

	mu        sync.Mutex
	processed map[string]bool
	refused   int       // calls in the pause
	busy      time.Time // it answers 429 until then
}

func (p *demoProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.meter.Call(1)
	record, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case time.Now().Before(p.busy):
		p.refused++
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case strings.HasPrefix(string(record), "bad"):
		w.WriteHeader(http.StatusUnprocessableEntity)
	default:
		p.processed[string(record)] = true
		if p.busy.IsZero() && len(p.processed) == pauseAt {
			p.busy = time.Now().Add(time.Second)
		}
	}
}

// count returns the number of records processed.
func (p *demoProvider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.processed)
}
