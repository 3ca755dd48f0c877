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
	maxCalls               = 32               // calls under way, or waiting for a permit
	callTimeout            = 10 * time.Second // of one call; a rebalance waits for it
	maxPoll                = 500              // records of one poll
	maxBacklog             = 1000             // unfinished records at which a partition's fetching pauses
	longDelay              = time.Second      // wait for a permit at which it pauses too
	minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second
)

// Worker makes a call to a provider for every record of a topic, at least once and
// within the limiter's limit. Set the fields, then Run it once.
//
// The poll loop never waits for a permit, so the worker stays in its consumer group
// however long its records wait. An offset is committed when all records before it
// are finished. The calls of a partition begin in order, and run concurrently.
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
	calls      chan struct{} // one element for each of maxCalls
	mu         sync.Mutex
	partitions map[int32]*partition // assigned to this worker
}

// ErrRejected is the error of a call for a record that no other call would help.
var ErrRejected = errors.New("rejected by the provider")

// partition is one that is assigned to this worker.
type partition struct {
	ctx     context.Context // ends when it is revoked or lost
	revoke  context.CancelFunc
	records chan *item     // no call has begun
	running sync.WaitGroup // work, and the calls under way

	// Guarded by Worker.mu.
	backlog backlog
	paused  bool // it is not fetched from
}

// backlog holds the records of a partition that cannot be committed, in order.
type backlog []*item

type item struct {
	*kgo.Record
	finished bool
}

// finish returns the last record before which all are finished, if it is a new one.
func (b *backlog) finish(i *item) (last *kgo.Record) {
	i.finished = true
	for len(*b) > 0 && (*b)[0].finished {
		last, *b = (*b)[0].Record, (*b)[1:]
	}
	return last
}

// Run consumes until ctx ends. Then it finishes the calls under way, commits, and
// leaves the group.
func (w *Worker) Run(ctx context.Context) (err error) {
	w.calls, w.partitions = make(chan struct{}, maxCalls), map[int32]*partition{}
	w.client, err = kgo.NewClient(append([]kgo.Opt{
		kgo.ConsumerGroup(w.Topic), kgo.ConsumeTopics(w.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // a new group skips nothing
		// Range is for groups of other clients, which often know no cooperative one.
		kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.RangeBalancer()),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second),
		kgo.BlockRebalanceOnPoll(),           // what is polled is enqueued before it is revoked
		kgo.FetchMaxWait(time.Second / 4),    // a resumed partition waits for the fetch of the others
		kgo.SessionTimeout(10 * time.Second), // the records of a crashed member wait so long
		kgo.RebalanceTimeout(6 * callTimeout),
		kgo.OnPartitionsAssigned(w.assigned), kgo.OnPartitionsRevoked(w.revoked), kgo.OnPartitionsLost(w.lost),
	}, w.Kafka...)...)
	if err != nil {
		return err
	}
	defer w.client.Close()
	for ctx.Err() == nil {
		fetches := w.client.PollRecords(ctx, maxPoll)
		fetches.EachError(func(_ string, partition int32, err error) {
			if ctx.Err() == nil { // the client tries again
				slog.Warn("fetching from Kafka", "partition", partition, "error", err)
			}
		})
		fetches.EachPartition(w.enqueue)
		w.client.AllowRebalance()
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), 6*callTimeout)
	defer cancel()
	return w.client.LeaveGroupContext(leave) // revokes all partitions
}

func (w *Worker) assigned(ctx context.Context, client *kgo.Client, assigned map[string][]int32) {
	client.ResumeFetchPartitions(assigned) // a pause outlives a revocation
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, number := range assigned[w.Topic] {
		ctx, revoke := context.WithCancel(context.WithoutCancel(ctx))
		p := &partition{ctx: ctx, revoke: revoke, records: make(chan *item, maxBacklog+maxPoll)}
		p.running.Go(func() { w.work(p) })
		w.partitions[number] = p
	}
}

// revoked is called before partitions move to other members, which wait for it.
func (w *Worker) revoked(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
	w.lost(ctx, client, revoked)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		slog.Warn("not committed: the calls since the last commit will be repeated", "error", err)
	}
}

// lost stops the work on partitions, and returns after their calls under way. It commits
// nothing: if other members own them already, they may have committed more. The client
// drops the marks when lost returns, and until then Kafka refuses an old member's commits.
func (w *Worker) lost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	var stopped []*partition
	w.mu.Lock()
	for _, number := range lost[w.Topic] {
		if p := w.partitions[number]; p != nil {
			delete(w.partitions, number)
			p.revoke()
			stopped = append(stopped, p)
		}
	}
	w.mu.Unlock()
	for _, p := range stopped {
		p.running.Wait()
	}
}

func (w *Worker) enqueue(f kgo.FetchTopicPartition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.partitions[f.Partition]
	if p == nil {
		return // revoked; its next owner fetches them
	}
	for _, r := range f.Records {
		i := &item{Record: r}
		p.backlog = append(p.backlog, i)
		p.records <- i // does not block: the backlog is smaller than maxBacklog+maxPoll
	}
	w.pauseOrResumeLocked(p, f.Partition)
}

// pauseOrResumeLocked stops fetching while records would only wait here: there are
// many, or permits are scarce. Half of maxBacklog ends a pause, so that it is not brief.
// A paused partition has a backlog, so finish calls this again. After a revocation it does
// nothing that lasts: assigned resumes.
func (w *Worker) pauseOrResumeLocked(p *partition, number int32) {
	n := len(p.backlog)
	pause := n >= maxBacklog || p.paused && n > maxBacklog/2 || n > 0 && w.Limiter.Delay(1) > longDelay
	switch which := map[string][]int32{w.Topic: {number}}; {
	case pause && !p.paused:
		w.client.PauseFetchPartitions(which)
	case p.paused && !pause:
		w.client.ResumeFetchPartitions(which)
	}
	p.paused = pause
}

// work begins the calls of a partition, in order, until it is revoked.
func (w *Worker) work(p *partition) {
	for {
		var i *item
		select {
		case <-p.ctx.Done():
			return
		case i = <-p.records:
		}
		select {
		case <-p.ctx.Done():
			return
		case w.calls <- struct{}{}:
		}
		if !w.permit(p.ctx) {
			<-w.calls
			return
		}
		p.running.Go(func() {
			defer func() { <-w.calls }()
			if w.process(p.ctx, i.Record) {
				w.finish(p, i)
			}
		})
	}
}

// permit waits for a permit; false if ctx ends, or the limiter is closed.
func (w *Worker) permit(ctx context.Context) bool {
	for {
		permit, err := w.Limiter.Take(ctx, 1, consumer.Forever)
		wait := minBackoff // no policy, or no connection to etcd: both pass
		if err == nil {
			if permit.Valid(w.Margin) {
				return true
			}
			permit.Release() // the call would arrive in the next window
			wait = time.Until(permit.Until())
		}
		if errors.Is(err, consumer.ErrClosed) || !sleep(ctx, wait) {
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

// finish marks what can be committed now.
func (w *Worker) finish(p *partition, i *item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := p.backlog.finish(i); last != nil {
		w.client.MarkCommitRecords(last)
	}
	w.pauseOrResumeLocked(p, i.Partition)
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
