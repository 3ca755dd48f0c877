package coordinator

import (
	"context"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// probesAtOnce bounds the reads under way, for policies with a long freshness.
	probesAtOnce = 64
	// A policy's freshness leaves room for six proofs.
	probesPerFreshness = 6
	// In a large fleet the default time between probes grows with the number of
	// instances, as far as three proofs still fit into the freshness: etcd answers
	// as many probes for a thousand instances as for five hundred.
	probeShare         = 600 * time.Microsecond // of etcd's time, for each instance
	fewestPerFreshness = 3
)

// probe sends linearizable reads, for all memberships together: etcd's revision is
// one for all of them. It does not wait for their answers: one that hangs must not
// keep the next from being sent, and one that takes nearly as long as the freshness
// still proves something. A newcomer may use what it borrows once its view is proved,
// so one is sent for newcomers too.
func (s *Session) probe() {
	timer := time.NewTimer(s.o.Probe)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.newcomers:
		case <-timer.C:
		}
		s.o.Clock.Observe(s.o.Clock.Now())
		every := s.probePause()
		timer.Reset(every)
		s.wg.Go(func() { s.probeOnce(every) })
	}
}

// probePause returns the time between two probes: Options.Probe, or the time that the
// shortest freshness and the largest fleet demand.
func (s *Session) probePause() time.Duration {
	pause, spread := s.o.Probe, time.Duration(0)
	freshness := s.shortestFreshness()
	s.mu.Lock()
	for _, p := range s.mu.memberships {
		spread = max(spread, time.Duration(p.tracker.Instances())*probeShare)
	}
	s.mu.Unlock()
	pause = min(pause, freshness/probesPerFreshness)
	if !s.o.ownProbe {
		pause = max(pause, min(spread, freshness/fewestPerFreshness))
	}
	return pause
}

// shortestFreshness returns the least that a provider's policy demands.
func (s *Session) shortestFreshness() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := time.Duration(math.MaxInt64)
	for _, p := range s.mu.memberships {
		least = min(least, p.freshness())
	}
	return least
}

// probed is a line that waits for the answer of a probe.
type probed struct {
	*line
	gen   int
	probe view.Probe
}

// question is a probe's: the mark is the newest key of this session. A store that has it as
// it was created has everything that was committed before.
type question struct {
	of    []probed
	owner *membership // of the mark; nil if there is none
	mark  incarnation
}

// question returns what a probe that is sent now asks.
func (s *Session) question() (q question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.o.Clock.Now()
	for _, l := range s.linesLocked() {
		if l.begun {
			q.of = append(q.of, probed{l, l.gen, l.Sent(sent)})
		}
	}
	for _, p := range s.allLocked() {
		if p.stage == following && p.created > q.mark.created {
			q.owner, q.mark = p, p.incarnation
		}
	}
	return q
}

// probeOnce sends a read for all lines and takes its answer. The next one follows after
// every.
func (s *Session) probeOnce(every time.Duration) {
	q := s.question()
	if q.owner == nil {
		return // there is nothing to prove
	}
	freshness := s.shortestFreshness()
	c, done := context.WithTimeout(s.ctx, min(freshness, probesAtOnce*every))
	defer done()
	answered, stop := context.WithCancel(c)
	defer stop()
	s.wg.Go(func() {
		// A slow etcd takes as long to tell how far the watch is. To ask for that
		// only after the answer would make the proof twice as old.
		if sleep(answered, every/2) {
			for _, a := range q.of {
				a.askProgress(freshness)
			}
		}
	})
	// A probe may take longer than other calls.
	r, err := s.client.Get(c, q.mark.key, clientv3.WithKeysOnly())
	stop()
	if err != nil {
		s.redialNow()
		s.unanswered(err)
		return
	}
	missing := len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != q.mark.created
	for _, l := range s.answered(q, r.Header.Revision, r.Header.ClusterId, missing) {
		l.askProgress(freshness)
	}
}

// answered takes a probe's answer; missing tells that the store lacks the mark. It returns
// the lines that lag behind the answer.
func (s *Session) answered(q question, revision int64, cluster uint64, missing bool) (behind []*line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if missing {
		o := q.owner
		if o.id != q.mark.id || o.stage != following {
			return nil // its deletion is known
		}
		if o.line.Position() < revision && cluster == o.line.Cluster() {
			return []*line{o.line} // its watch may be about to say so
		}
		for _, a := range q.of {
			if a.gen == a.line.gen {
				a.gapLocked("the newest key of this session is not in etcd as it was written")
			}
		}
		return nil
	}
	for _, a := range q.of {
		if a.gen == a.line.gen && a.answeredLocked(a.probe, revision, cluster) {
			behind = append(behind, a.line)
		}
	}
	return behind
}

// answeredLocked takes a probe's answer; it returns true if a watch is open that lags
// behind it.
func (l *line) answeredLocked(p view.Probe, revision int64, cluster uint64) bool {
	if l.Answer(p, revision, cluster) {
		l.gapLocked("a read returned an older revision, or another cluster answered")
		return false
	}
	l.proveLocked()
	if !l.Behind() || l.open == nil {
		return false
	}
	now := l.s.o.Clock.Mono()
	if l.behind == 0 {
		l.behind = now
	}
	if now-l.behind > int64(l.freshness()/2) {
		// Reads are answered and the watch is not: it hangs on a member that lags.
		l.s.o.Logger.Warn("watch lags behind, opening another", "folder", l.folder)
		l.open.end()
		l.behind = now
	}
	return true
}

// freshness is the least that a policy of the line demands.
func (l *line) freshness() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, p := range l.members {
		least = min(least, p.freshness())
	}
	return least
}

// unanswered tells why nothing is proved, once it has lasted.
func (s *Session) unanswered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Clock.Mono()
	for _, l := range s.linesLocked() {
		if l.failure == nil && l.proved != 0 && now-l.proved > int64(l.freshness()) && s.ctx.Err() == nil {
			l.failLocked(classify(s.ctx, "prove the views recent", err))
		}
	}
}

func (p *membership) freshness() time.Duration {
	if p.policy == nil {
		return quota.DefaultFreshness
	}
	return p.policy.Freshness
}
