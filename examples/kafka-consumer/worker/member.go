package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchWait bounds how long a broker waits for something new.
const fetchWait = 250 * time.Millisecond

// Member is one member of a consumer group. Make it with New, and Run it once.
type Member struct {
	Config

	// Set by Run, before anything else runs. calls is the parent of the calls'
	// contexts; it outlives Run's own, so that calls under way are finished.
	calls  context.Context
	client *kgo.Client

	mu struct {
		sync.Mutex
		parts    map[key]*partition
		order    []*partition // the same, to be served in turn
		next     int          // whose turn it is in order
		stopping bool         // no more work is handed out
		drained  time.Time    // until when the provider wants no calls
	}
	work sync.Cond // on mu: there may be work, or it is over

	counts counts
}

type key struct {
	topic     string
	partition int32
}

// partition is one that is assigned to this member, until it is taken away; the
// same one assigned again later is another. All but its constants is guarded by
// Member.mu.
type partition struct {
	key     key
	ctx     context.Context // ends when the partition is taken away
	cancel  context.CancelFunc
	backlog backlog
	gone    bool           // taken away: nothing of it is handed out any more
	lost    bool           // others may have it already: nothing of it is committed any more
	jobs    sync.WaitGroup // in workers' hands; none is added once gone
}

// New returns a member that has not joined yet.
func New(c Config) (*Member, error) {
	c = withDefaults(c)
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Member{Config: c}
	m.mu.parts = map[key]*partition{}
	m.work.L = &m.mu
	return m, nil
}

// join makes the client, which joins the group by itself.
func (m *Member) join() (*kgo.Client, error) {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.ConsumerGroup(m.Group),
		kgo.ConsumeTopics(m.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // a new group skips nothing
		kgo.AutoCommitMarks(),                             // commits what is marked, and only that
		kgo.AutoCommitInterval(m.CommitInterval),
		kgo.BlockRebalanceOnPoll(), // polled records are handed over before a rebalance takes partitions away
		// A partition that is resumed is fetched from when the fetch under way comes
		// back, which waits for so long if the others have nothing new.
		kgo.FetchMaxWait(fetchWait),
		kgo.RebalanceTimeout(m.RebalanceTimeout),
		kgo.SessionTimeout(m.SessionTimeout),
		kgo.HeartbeatInterval(min(m.SessionTimeout/10, 3*time.Second)),
		kgo.OnPartitionsAssigned(m.assigned),
		kgo.OnPartitionsRevoked(m.revoked),
		kgo.OnPartitionsLost(m.lost),
	}, m.Kafka...)...)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return client, nil
}

// Run consumes until ctx ends. Then it finishes the calls under way, commits,
// leaves the group, and returns nil, or why it could not do so in order.
func (m *Member) Run(ctx context.Context) error {
	m.calls = context.WithoutCancel(ctx)
	var err error
	if m.client, err = m.join(); err != nil {
		return err
	}
	defer m.client.Close()
	var workers sync.WaitGroup
	for range m.Workers {
		workers.Go(m.workLoop)
	}
	m.pollLoop(ctx)
	m.stop()
	workers.Wait()

	// Leaving revokes all partitions, which commits.
	leave, cancel := context.WithTimeout(m.calls, m.RebalanceTimeout)
	defer cancel()
	if err := m.client.LeaveGroupContext(leave); err != nil {
		return fmt.Errorf("worker: leaving group %s: %w", m.Group, err)
	}
	return nil
}

// stop lets the workers end: they finish their calls, and who waits for permits
// gives its records back.
func (m *Member) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.stopping = true
	for _, p := range m.mu.order {
		p.cancel()
	}
	m.work.Broadcast()
}

// pollLoop fetches and hands over, and never waits for anything else: who does
// not poll holds up the group's rebalances, and is thrown out of it.
func (m *Member) pollLoop(ctx context.Context) {
	for {
		fetches := m.client.PollRecords(ctx, m.MaxPoll)
		m.counts.polls.Add(1)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			m.client.AllowRebalance()
			return
		}
		fetches.EachError(func(topic string, p int32, err error) {
			// The client tries again by itself.
			m.Logger.Warn("fetching from Kafka", "topic", topic, "partition", p, "error", err)
		})
		m.handOver(fetches)
		m.client.AllowRebalance()
	}
}

// handOver puts what was fetched into the backlogs, and pauses those that are
// full.
func (m *Member) handOver(fetches kgo.Fetches) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if len(f.Records) == 0 {
			return
		}
		k := key{f.Topic, f.Partition}
		p := m.mu.parts[k]
		if p == nil {
			return // taken away; whoever has it now gets them
		}
		for _, r := range f.Records {
			if !p.backlog.push(r) {
				m.Logger.Warn("the log of a partition was rewound", "topic", k.topic, "partition", k.partition, "offset", r.Offset)
				p.lost = true // its offsets mean other records now
				m.removeLocked(p)
				p = m.addLocked(k)
				p.backlog.push(r)
			}
		}
		m.turnLocked(p)
	})
	m.work.Broadcast()
}

// turnLocked pauses or resumes fetching, as the backlog wants it.
func (m *Member) turnLocked(p *partition) {
	which := map[string][]int32{p.key.topic: {p.key.partition}}
	switch p.backlog.turn() {
	case +1:
		m.client.PauseFetchPartitions(which)
	case -1:
		m.client.ResumeFetchPartitions(which)
	}
}

// Stats are counts since New, and how things stand now.
type Stats struct {
	// Calls to the provider, and what became of records.
	Calls, Processed, Rejected, Retried, Dead int64
	// Late counts permits that were not used because their window was over, or
	// nearly so.
	Late int64
	// Polls counts polls, also those that returned nothing.
	Polls int64
	// Partitions are assigned, of which Paused are not fetched from.
	Partitions, Paused int
	// Backlog is the number of records fetched and not finished.
	Backlog int
}

type counts struct {
	calls, processed, rejected, retried, dead, late, polls atomic.Int64
}

// Stats returns what the member has done, and how it stands.
func (m *Member) Stats() Stats {
	c := &m.counts
	s := Stats{
		Calls: c.calls.Load(), Processed: c.processed.Load(), Rejected: c.rejected.Load(), Retried: c.retried.Load(),
		Dead: c.dead.Load(), Late: c.late.Load(), Polls: c.polls.Load(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Partitions = len(m.mu.order)
	for _, p := range m.mu.order {
		s.Backlog += p.backlog.track.unfinished()
		if p.backlog.paused {
			s.Paused++
		}
	}
	return s
}
