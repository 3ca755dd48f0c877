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
	attempts               = 5                // rejections that make a record a dead letter
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
	Kafka        []kgo.Opt // brokers, TLS, SASL; these override the options of Run
	Group, Topic string
	DeadLetters  string // topic for records that the provider rejects
	Limiter      *consumer.Limiter
	Margin       time.Duration // that a call needs to reach the provider
	Call         Call

	client *kgo.Client
	calls  chan struct{} // one element for each of maxCalls

	mu         sync.Mutex
	partitions map[int32]*partition
}

// Call processes a record. It must return soon after ctx ends. A record's call can
// be repeated: after a crash, and when an answer was lost. An error is Rejected,
// Busy, or temporary.
type Call func(ctx context.Context, r *kgo.Record) error

// Rejected is an error that the record causes.
type Rejected string

// Error implements error.
func (e Rejected) Error() string { return "rejected: " + string(e) }

// Busy is the error of a provider that accepts no calls for so long.
type Busy time.Duration

// Error implements error.
func (e Busy) Error() string { return "busy for " + time.Duration(e).String() }

// partition is one that is assigned to this worker, until it is revoked.
type partition struct {
	number  int32
	ctx     context.Context // ends when it is revoked
	revoke  context.CancelFunc
	records chan *item     // no call has begun
	running sync.WaitGroup // work, and the calls under way
	// Guarded by Worker.mu.
	backlog backlog
	paused  bool // it is not fetched from
	lost    bool // its next owner may have committed more: commit nothing
}

// backlog holds the records of a partition that cannot be committed, in order.
type backlog []*item

type item struct {
	*kgo.Record
	finished bool
}

// finish returns the record up to which all are finished now; nil if that is old.
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
		kgo.ConsumerGroup(w.Group), kgo.ConsumeTopics(w.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // a new group skips nothing
		// Range is for groups of other clients, which often know no cooperative one.
		kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.RangeBalancer()),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second),
		kgo.BlockRebalanceOnPoll(),           // what is polled is enqueued before it is revoked
		kgo.FetchMaxWait(time.Second / 4),    // a resumed partition waits for the fetch of the others
		kgo.SessionTimeout(10 * time.Second), // the records of a crashed member wait so long
		kgo.RebalanceTimeout(6 * callTimeout), kgo.OnPartitionsAssigned(w.assigned), kgo.OnPartitionsRevoked(w.revoked),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { w.remove(lost, true) }),
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
	w.pauseOrResumeLocked(p)
}

// pauseOrResumeLocked stops fetching while records would only wait here: there are
// many, or permits are scarce. A paused partition has a backlog, so finish calls this
// again.
func (w *Worker) pauseOrResumeLocked(p *partition) {
	n := len(p.backlog)
	scarce := n > 0 && w.Limiter.Delay(1) > longDelay
	switch which := map[string][]int32{w.Topic: {p.number}}; {
	case !p.paused && (n >= maxBacklog || scarce):
		w.client.PauseFetchPartitions(which)
		p.paused = true
	case p.paused && n <= maxBacklog/2 && !scarce:
		w.client.ResumeFetchPartitions(which)
		p.paused = false
	}
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
	rejections := 0
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err := w.Call(call, r)
		if rejected, ok := errors.AsType[Rejected](err); ok {
			if rejections++; rejections >= attempts {
				err = w.bury(call, r, rejected)
			}
		} else if busy, ok := errors.AsType[Busy](err); ok {
			w.Limiter.Throttled(time.Duration(busy), busy.Error())
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
func (w *Worker) bury(ctx context.Context, r *kgo.Record, reason Rejected) error {
	err := w.client.ProduceSync(ctx, &kgo.Record{
		Topic: w.DeadLetters, Key: r.Key, Value: r.Value,
		Headers: append(slices.Clip(r.Headers),
			kgo.RecordHeader{Key: "origin", Value: []byte(position(r))},
			kgo.RecordHeader{Key: "reason", Value: []byte(reason)}),
	}).FirstErr()
	if err == nil {
		slog.Warn("a record is a dead letter", "record", position(r), "topic", w.DeadLetters, "reason", string(reason))
	}
	return err
}

func (w *Worker) finish(p *partition, i *item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := p.backlog.finish(i); last != nil && !p.lost {
		w.client.MarkCommitRecords(last)
	}
	if w.partitions[p.number] == p {
		w.pauseOrResumeLocked(p)
	}
}

func (w *Worker) assigned(ctx context.Context, client *kgo.Client, assigned map[string][]int32) {
	client.ResumeFetchPartitions(assigned) // a pause outlives a revocation
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, number := range assigned[w.Topic] {
		ctx, revoke := context.WithCancel(context.WithoutCancel(ctx))
		p := &partition{number: number, ctx: ctx, revoke: revoke, records: make(chan *item, maxBacklog+maxPoll)}
		p.running.Go(func() { w.work(p) })
		w.partitions[number] = p
	}
}

// revoked is called before partitions move to other members, which wait for it.
func (w *Worker) revoked(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
	w.remove(revoked, false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		slog.Warn("not committed: the calls since the last commit will be repeated", "error", err)
	}
}

// remove forgets partitions, after their calls under way.
func (w *Worker) remove(removed map[string][]int32, lost bool) {
	var running []*sync.WaitGroup
	w.mu.Lock()
	for _, number := range removed[w.Topic] {
		if p := w.partitions[number]; p != nil {
			delete(w.partitions, number)
			p.lost = lost
			p.revoke()
			running = append(running, &p.running)
		}
	}
	w.mu.Unlock()
	for _, r := range running {
		r.Wait()
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
