package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer"
)

const (
	perPartition = 8                // calls of a partition at once; with 1 no call overtakes another
	callTimeout  = 10 * time.Second // of one call; a rebalance waits for it

	minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second
)

// Worker makes a call to a provider for every record of a topic, at least once and
// within the limiter's limit. Set the fields, then Run it once.
//
// A partition is paused while records of it wait here to be called for. So the poll loop waits
// for no permit, a rebalance waits only for calls that are under way, and a record whose calls
// fail holds up only its partition. A record is committed when all before it are finished.
type Worker struct {
	Kafka   []kgo.Opt // brokers, TLS, SASL; these override the options of Run
	Topic   string    // also the group; rejected records go to the topic Topic.dead
	Limiter *consumer.Limiter
	Margin  time.Duration // that a call needs to reach the provider
	// Call processes a record, and returns soon after ctx ends. It can be called again for
	// the same record: after a crash, and when an answer was lost. If its error is
	// ErrRejected, the record becomes a dead letter; after any other, it is called again.
	Call func(ctx context.Context, r *kgo.Record) error

	client     *kgo.Client
	partitions map[int32]*partition // that had records; guarded by BlockRebalanceOnPoll
}

// ErrRejected is the error of a call for a record that no other call would help.
var ErrRejected = errors.New("rejected by the provider")

// partition is one that is assigned to this worker.
type partition struct {
	ctx     context.Context // ends when it is revoked or lost
	revoke  context.CancelFunc
	running sync.WaitGroup // the goroutines of begin
	places  chan struct{}  // has an element for each record whose calls have begun, until it can be committed
	last    chan bool      // of the latest of them: says at its end whether it and all before are finished
}

// Run consumes until ctx ends. Then it finishes the calls under way, commits, and leaves
// the group.
func (w *Worker) Run(ctx context.Context) (err error) {
	w.partitions = map[int32]*partition{}
	w.client, err = kgo.NewClient(append([]kgo.Opt{
		kgo.ConsumerGroup(w.Topic), kgo.ConsumeTopics(w.Topic),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second),
		kgo.OnPartitionsRevoked(w.revoked), kgo.OnPartitionsLost(w.revoked),
		kgo.BlockRebalanceOnPoll(),           // no partition is revoked between PollFetches and AllowRebalance
		kgo.FetchMaxPartitionBytes(64 << 10), // small, since a pause drops what was fetched beyond
		kgo.FetchMaxWait(time.Second / 4),    // a resumed partition waits for the fetch of the others
		kgo.SessionTimeout(10 * time.Second), // the records of a crashed member wait so long
	}, w.Kafka...)...)
	if err != nil {
		return err
	}
	defer w.client.Close() // revokes all partitions
	for ctx.Err() == nil {
		fetches := w.client.PollFetches(ctx)
		fetches.EachError(func(_ string, partition int32, err error) {
			if ctx.Err() == nil { // the client tries again
				slog.Warn("fetching from Kafka", "partition", partition, "error", err)
			}
		})
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if len(f.Records) > 0 {
				w.begin(ctx, f.Partition, f.Records)
			}
		})
		w.client.AllowRebalance()
	}
	return nil
}

// begin begins the calls of a partition's records in their order, and returns at once. The
// partition is paused until all have begun, so records that are polled later come after them.
func (w *Worker) begin(ctx context.Context, number int32, records []*kgo.Record) {
	p := w.partitions[number]
	if p == nil {
		p = &partition{places: make(chan struct{}, perPartition), last: make(chan bool, 1)}
		p.last <- true
		p.ctx, p.revoke = context.WithCancel(ctx)
		w.partitions[number] = p
	}
	which := map[string][]int32{w.Topic: {number}}
	w.client.PauseFetchPartitions(which)
	p.running.Go(func() {
		defer w.client.ResumeFetchPartitions(which) // if revoked too, since a pause outlives that
		for _, r := range records {
			select {
			case <-p.ctx.Done():
				return
			case p.places <- struct{}{}:
			}
			if !w.permit(p.ctx) {
				return
			}
			before, done := p.last, make(chan bool, 1)
			p.last = done
			p.running.Go(func() {
				finished := w.process(p.ctx, r)
				finished = <-before && finished
				if finished {
					w.client.MarkCommitRecords(r)
				}
				done <- finished
				<-p.places
			})
		}
	})
}

// permit waits for a permit; false if ctx ends.
func (w *Worker) permit(ctx context.Context) bool {
	for {
		permit, err := w.Limiter.Take(ctx, 1, consumer.Forever)
		if err == nil && permit.Valid(w.Margin) {
			return true
		}
		permit.Release() // the call would arrive in the next window; or there is none, as without a policy
		if !sleep(ctx, minBackoff) {
			return false
		}
	}
}

// process makes calls until the record is processed, or is a dead letter; the first
// one has its permit. It returns false if ctx ends before. A call under way is
// finished even then, since the partition's next owner would repeat it.
func (w *Worker) process(ctx context.Context, r *kgo.Record) bool {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err := w.Call(call, r)
		if errors.Is(err, ErrRejected) {
			err = w.bury(call, r, err)
		}
		cancel()
		if err == nil {
			return true
		}
		slog.Debug("a call failed", "record", position(r), "error", err)
		if !sleep(ctx, backoff) || !w.permit(ctx) {
			return false
		}
	}
}

// bury writes a record to the dead letters. It returns when Kafka has it.
func (w *Worker) bury(ctx context.Context, r *kgo.Record, reason error) error {
	headers := append(slices.Clip(r.Headers),
		kgo.RecordHeader{Key: "origin", Value: []byte(position(r))},
		kgo.RecordHeader{Key: "reason", Value: []byte(reason.Error())})
	letter := &kgo.Record{Topic: w.Topic + ".dead", Key: r.Key, Value: r.Value, Headers: headers}
	err := w.client.ProduceSync(ctx, letter).FirstErr()
	if err == nil {
		slog.Warn("a record is a dead letter", "record", position(r), "topic", letter.Topic, "reason", reason)
	}
	return err
}

// revoked stops the work on partitions, and returns after their calls under way. It is called
// before they move to other members, which wait for it, and when this one leaves; and also when
// they are lost: then others may have committed more, and Kafka refuses this commit.
func (w *Worker) revoked(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
	var stopped []*partition
	for _, number := range revoked[w.Topic] {
		if p := w.partitions[number]; p != nil {
			delete(w.partitions, number)
			p.revoke()
			stopped = append(stopped, p)
		}
	}
	for _, p := range stopped {
		p.running.Wait()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		slog.Warn("not committed: the calls since the last commit will be repeated", "error", err)
	}
}

// position identifies a record.
func position(r *kgo.Record) string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }

// sleep waits for d. It returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
