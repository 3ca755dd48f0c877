package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/examples/kafka-consumer/provider"
)

// produceEvery is the time between two portions of records.
const produceEvery = 20 * time.Millisecond

// producer writes the records: numbers from 0 on, some of them poison.
type producer struct {
	kafka  *kgo.Client
	topic  string
	n      int     // in all
	rate   float64 // a second
	poison int     // every so many-th; 0 for none

	acked  atomic.Int64 // what Kafka has
	failed atomic.Pointer[error]
}

// run returns when everything is written, or ctx ends.
func (p *producer) run(ctx context.Context) {
	tick := time.NewTicker(produceEvery)
	defer tick.Stop()
	began := time.Now()
	for sent := 0; sent < p.n; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		due := min(p.n, int(p.rate*time.Since(began).Seconds()))
		for ; sent < due; sent++ {
			value := strconv.Itoa(sent)
			if p.poison > 0 && sent%p.poison == p.poison-1 {
				value = provider.Poison + " " + value
			}
			p.kafka.Produce(ctx, &kgo.Record{Topic: p.topic, Value: []byte(value)}, p.done)
		}
	}
	_ = p.kafka.Flush(ctx)
}

func (p *producer) done(_ *kgo.Record, err error) {
	if err != nil {
		p.failed.Store(&err)
		return
	}
	p.acked.Add(1)
}

// letters counts what arrives at the dead-letter topic.
type letters struct {
	mu   sync.Mutex
	seen map[string]int // by value
}

// read reads the topic until ctx ends.
func (l *letters) read(ctx context.Context, opts []kgo.Opt, topic string) error {
	client, err := kgo.NewClient(append(opts, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return fmt.Errorf("reading the dead letters: %w", err)
	}
	go func() {
		defer client.Close()
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.seen[string(r.Value)]++
			})
		}
	}()
	return nil
}

// counts returns how many different dead letters there are, and how many were
// written again.
func (l *letters) counts() (different, repeated int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.seen {
		repeated += int64(n - 1)
	}
	return int64(len(l.seen)), repeated
}
