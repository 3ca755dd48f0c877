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

// Of the demonstration's records the provider rejects the first. It asks for a pause when it has
// answered pauseAt of them, and consumer A ends at leaveAt.
const demoPartitions, demoRecords, demoRejected, pauseAt, leaveAt = 6, 800, 8, 300, 500

// demoPolicy keeps the window's edges free, since the provider counts arrivals.
var demoPolicy = quota.Policy{Limits: []quota.Limit{{Permits: 200, Window: 2 * time.Second}}, Timing: quota.Timing{Guard: time.Second / 2}}

// demo plays two consumers on a fake Kafka, an etcd and a provider of its own, and says what
// happens. It fails if a record is lost, if a consumer goes on in the pause, or if the provider
// counts more calls in a window than the limit.
func demo(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not all records were answered within a minute"))
	defer cancel()
	slog.SetLogLoggerLevel(slog.LevelError) // its own lines tell the story
	say := func(format string, arguments ...any) {
		fmt.Fprintln(out, time.Now().Format("15:04:05.000 "), fmt.Sprintf(format, arguments...))
	}

	etcd := must(embedded.Start(embedded.Options{Slow: true}))
	defer etcd.Close()
	client := must(etcd.Client())
	defer client.Close()
	must(must(admin.New(client, admin.Options{})).Put(context.WithoutCancel(ctx), "demo/api", demoPolicy))
	say("etcd has the limit of demo/api: %s", quota.FormatLimits(demoPolicy.Limits))

	kafka := must(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(demoPartitions, "jobs"), kfake.SeedTopics(1, "jobs.dead")))
	defer kafka.Close()
	producer := must(kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner())))
	defer producer.Close()
	for i := range demoRecords {
		producer.Produce(ctx, &kgo.Record{Topic: "jobs", Value: fmt.Append(nil, i)}, nil)
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	say("topic jobs has %d records in %d partitions; the provider will reject %d of them", demoRecords, demoPartitions, demoRejected)

	provider := &demoProvider{meter: limittest.NewMeter(demoPolicy.Limits), answered: map[string]bool{}}
	server := httptest.NewServer(provider)
	defer server.Close()
	if err := provider.play(ctx, say, config{
		brokers: strings.Join(kafka.ListenAddrs(), ","), topic: "jobs", endpoints: strings.Join(etcd.Endpoints(), ","),
		provider: "demo/api", url: server.URL, margin: demoPolicy.Guard,
	}); err != nil {
		return err
	}
	dead, committed := kafka.PartitionInfos("jobs.dead")[0].HighWatermark, int64(0)
	for _, partition := range kafka.GroupInfo("jobs").Commits["jobs"] {
		committed += partition.Offset
	}
	say("%d records are answered and %d committed, %d are dead letters; the pause refused %d calls", len(provider.answered), committed, dead, provider.refused)
	if len(provider.answered) != demoRecords || committed != demoRecords || dead < demoRejected {
		return errors.New("a record is lost")
	}
	if most := demoPartitions * perPartition; provider.refused == 0 || provider.refused > most { // those under way as it began
		return fmt.Errorf("%d calls met the pause, and not 1 to %d", provider.refused, most)
	}
	if err := provider.meter.Check(); err != nil {
		return fmt.Errorf("the provider counted more than its limit: %w", err)
	}
	say("the provider counted at most %d calls in each 2 s", demoPolicy.Limits[0].Permits)
	return nil
}

// play runs two consumers until they have called the provider for every record.
func (p *demoProvider) play(ctx context.Context, say func(string, ...any), c config) error {
	ended := make(chan error, 2)
	start := func() (end func()) {
		consuming, end := context.WithCancel(ctx) // as SIGTERM does
		go func() { ended <- consume(consuming, c) }()
		return end
	}
	until := func(answered int) {
		for p.count() < answered && sleep(ctx, 10*time.Millisecond) {
		}
	}
	say("consumers A and B start; each calls the provider for every record that it gets")
	endA, endB := start(), start()
	until(pauseAt)
	say("%d records are answered: now 429, Retry-After 1s, and both pause", pauseAt)
	until(leaveAt)
	say("%d records are answered: A ends, and hands its partitions and its share to B", leaveAt)
	endA()
	err := <-ended
	say("A has ended")
	until(demoRecords)
	endB()
	return errors.Join(err, <-ended, context.Cause(ctx))
}

// demoProvider answers 422 to a record that it rejects, 429 in a pause, and else 200.
type demoProvider struct {
	meter *limittest.Meter // by its own clock

	mu       sync.Mutex
	answered map[string]bool
	refused  int       // calls in the pause
	busy     time.Time // it answers 429 until then
}

func (p *demoProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.meter.Call(1)
	record, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.busy) {
		p.refused++
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.answered[string(record)] = true
	if len(p.answered) == pauseAt && p.busy.IsZero() {
		p.busy = time.Now().Add(time.Second)
	}
	if len(record) == 1 && record[0] < '0'+demoRejected {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
}

// count returns the number of records answered.
func (p *demoProvider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answered)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
