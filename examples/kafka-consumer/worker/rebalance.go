package worker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// assigned is called by the client with partitions that this member has got.
func (m *Member) assigned(_ context.Context, client *kgo.Client, parts map[string][]int32) {
	// A pause outlives the loss of a partition: without this, one that was paused
	// when it was taken away would never be fetched from again.
	client.ResumeFetchPartitions(parts)
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, numbers := range parts {
		for _, n := range numbers {
			m.addLocked(key{topic, n})
		}
	}
}

// revoked is called before partitions go to other members, which wait for it.
// It takes as long as the calls under way, and what Config.RebalanceTimeout
// allows for at most.
func (m *Member) revoked(_ context.Context, client *kgo.Client, parts map[string][]int32) {
	m.remove(parts, false)
	ctx, cancel := context.WithTimeout(m.calls, m.RebalanceTimeout/3)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		m.Logger.Warn("committing offsets: what was done since the last commit will be done again", "error", err)
	}
}

// lost is called when partitions may be others' already. A commit now would
// take back what those have committed since.
func (m *Member) lost(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	m.remove(parts, true)
}

// remove takes partitions away, and waits for their calls under way.
func (m *Member) remove(parts map[string][]int32, lost bool) {
	var removed []*partition
	m.mu.Lock()
	for topic, numbers := range parts {
		for _, n := range numbers {
			if p := m.mu.parts[key{topic, n}]; p != nil {
				p.lost = lost
				m.removeLocked(p)
				removed = append(removed, p)
			}
		}
	}
	m.mu.Unlock()
	for _, p := range removed {
		p.jobs.Wait()
	}
}

func (m *Member) addLocked(k key) *partition {
	if old := m.mu.parts[k]; old != nil {
		m.removeLocked(old)
	}
	p := &partition{key: k, backlog: backlog{high: m.MaxBacklog, low: m.MaxBacklog / 2, ordered: m.Ordered}}
	p.ctx, p.cancel = context.WithCancel(m.calls)
	m.mu.parts[k] = p
	m.mu.order = append(m.mu.order, p)
	return p
}

// removeLocked forgets what the partition has not begun; whoever gets it fetches
// that again, from the offset that is committed. What is under way is finished,
// and still counts for that offset.
func (m *Member) removeLocked(p *partition) {
	p.gone = true
	p.cancel()
	delete(m.mu.parts, p.key)
	i := slices.Index(m.mu.order, p)
	m.mu.order = slices.Delete(m.mu.order, i, i+1)
}

// markLocked notes how far a partition is finished, for the next commit.
func (m *Member) markLocked(p *partition) {
	offset, epoch, ok := p.backlog.track.commit()
	if !ok || p.lost {
		return
	}
	m.client.MarkCommitOffsets(map[string]map[int32]kgo.EpochOffset{
		p.key.topic: {p.key.partition: {Epoch: epoch, Offset: offset}},
	})
}
