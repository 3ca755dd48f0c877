package worker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer"
)

// job is what a worker has in its hands: records of one partition, for one call.
type job struct {
	part  *partition
	items []*item
}

func (m *Member) workLoop() {
	for {
		j, ok := m.take()
		if !ok {
			return
		}
		if m.permit(&j) {
			m.do(j)
		}
		j.part.jobs.Done()
	}
}

// take waits for something to do, from each partition in turn. It returns false
// when the member stops.
func (m *Member) take() (job, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.mu.stopping {
		n := len(m.mu.order)
		for i := range n {
			p := m.mu.order[(m.mu.next+i)%n]
			if items := p.backlog.take(m.Batch); items != nil {
				m.mu.next = (m.mu.next + i + 1) % n
				p.jobs.Add(1)
				return job{p, items}, true
			}
		}
		m.work.Wait()
	}
	return job{}, false
}

// giveBack takes back what was not called for.
func (m *Member) giveBack(p *partition, items []*item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.backlog.back(items...)
	m.work.Signal()
}

// permit waits for a permit for each record. It returns false, and has given the
// records back, if the partition is taken away or the member stops first.
func (m *Member) permit(j *job) bool {
	for {
		n := int64(len(j.items))
		p, err := m.Limiter.Take(j.part.ctx, n, consumer.Forever)
		switch {
		case err == nil && time.Until(p.Until) > m.Margin:
			return true
		case err == nil:
			// The machine was busy for so long that the call would reach the provider
			// in the next window, on top of that one's own.
			m.counts.late.Add(1)
			m.Limiter.Return(p)
			pause(j.part.ctx, time.Until(p.Until))
		case errors.Is(err, consumer.ErrTooLarge) && n > 1: // a batch larger than any window's share
			m.giveBack(j.part, j.items[n/2:])
			j.items = j.items[:n/2]
		case j.part.ctx.Err() != nil || errors.Is(err, consumer.ErrClosed):
			m.giveBack(j.part, j.items)
			// A closed limiter issues nothing more: leave the rest to the others.
			pause(j.part.ctx, time.Second)
			return false
		default: // no policy, or etcd away under rule stop: both heal by themselves
			pause(j.part.ctx, 100*time.Millisecond)
		}
	}
}

// pause waits for d, or until ctx ends. Only workers may, never the poll loop.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// do makes the call, and deals with its answer. The call is finished even if the
// partition is taken away meanwhile: it would be made again otherwise.
func (m *Member) do(j job) {
	records := make([]*kgo.Record, len(j.items))
	for i, it := range j.items {
		records[i] = it.record
	}
	ctx, cancel := context.WithTimeout(m.calls, m.CallTimeout)
	defer cancel()
	m.counts.calls.Add(1)
	a := m.Call(ctx, records)
	if a.RetryAfter > 0 {
		m.drain(a.RetryAfter)
	}
	if a.Err != nil {
		m.Logger.Debug("a call failed", "records", len(records), "error", a.Err, "retry_after", a.RetryAfter)
		m.later(j.part, j.items, a.RetryAfter > 0)
		return
	}
	done, rejected := split(j.items, a)
	dead, again := m.condemn(rejected)
	dead, unwritten := m.bury(ctx, dead)
	m.counts.processed.Add(int64(len(done)))
	m.finish(j.part, append(done, dead...))
	m.later(j.part, append(again, unwritten...), false)
}

// split tells the items that were processed from those that were rejected.
func split(items []*item, a Answer) (done, rejected []*item) {
	if len(a.Rejected) == 0 {
		return items, nil
	}
	is := make([]bool, len(items))
	for _, i := range a.Rejected {
		is[i] = true
	}
	for i, it := range items {
		if !is[i] {
			done = append(done, it)
			continue
		}
		it.rejected++
		it.reason = a.Reason
		rejected = append(rejected, it)
	}
	return done, rejected
}

// condemn tells the rejected items that have had all their attempts from those
// that have not.
func (m *Member) condemn(rejected []*item) (dead, again []*item) {
	m.counts.rejected.Add(int64(len(rejected)))
	for _, it := range rejected {
		if it.rejected >= m.Attempts {
			dead = append(dead, it)
		} else {
			again = append(again, it)
		}
	}
	return dead, again
}

// finish ends items, lets their offsets be committed, and fetching go on.
func (m *Member) finish(p *partition, items []*item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.backlog.finish(items...)
	m.markLocked(p)
	if !p.gone {
		m.turnLocked(p)
	}
	if m.Ordered {
		m.work.Signal()
	}
}

// later lets items be tried again: at once where the drained limiter holds them
// back, and otherwise each after a time that grows with its tries.
func (m *Member) later(p *partition, items []*item, drained bool) {
	for _, it := range items {
		m.counts.retried.Add(1)
		it.tries++
		if drained {
			m.giveBack(p, []*item{it})
			continue
		}
		time.AfterFunc(backoff(it.tries), func() { m.giveBack(p, []*item{it}) })
	}
}

// drain obeys a provider that asks for a pause. Of several such answers the one
// that reaches farthest counts, whichever comes last.
func (m *Member) drain(d time.Duration) {
	until := time.Now().Add(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	if until.After(m.mu.drained) {
		m.mu.drained = until
		m.Limiter.Drain(until)
	}
}
