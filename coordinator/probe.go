package coordinator

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/session"
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
	s.mu.Lock()
	freshness, spread := s.mu.Freshness(), time.Duration(s.mu.Largest())*probeShare
	s.mu.Unlock()
	pause := min(s.o.Probe, freshness/probesPerFreshness)
	if !s.o.ownProbe {
		pause = max(pause, min(spread, freshness/fewestPerFreshness))
	}
	return pause
}

// probeOnce sends a read for all lines and takes its answer. The next one follows after
// every.
func (s *Session) probeOnce(every time.Duration) {
	s.mu.Lock()
	q, freshness := s.mu.Question(s.o.Clock.Now()), s.mu.Freshness()
	s.mu.Unlock()
	if q.Owner == nil {
		return // there is nothing to prove
	}
	c, done := context.WithTimeout(s.ctx, min(freshness, probesAtOnce*every))
	defer done()
	inTime, stop := context.WithCancel(c)
	defer stop()
	s.wg.Go(func() {
		if sleep(inTime, every/2) {
			s.step(session.ProbeLate{Question: q})
		}
	})
	// A probe may take longer than other calls.
	r, err := s.look(c, q.Witness.Key)
	stop()
	if err != nil {
		s.failed(err)
		refused := denied(err)
		if err = classify(s.ctx, "read from etcd", err); refused {
			err = lacking(err, "read", q.Owner.Folder, q.Owner.Provider)
		}
		s.step(session.ProbeFailed{Err: err})
		return
	}
	s.redial.answered()
	created := int64(0)
	for _, kv := range r.Kvs {
		created = kv.CreateRevision
	}
	s.step(session.ProbeAnswered{Question: q, Revision: r.Header.Revision, Cluster: r.Header.ClusterId, Created: created})
}

// look reads whether a key is there, and its revisions.
func (s *Session) look(ctx context.Context, key string) (*clientv3.GetResponse, error) {
	return etcdcall.Held(&s.logins, func() (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, key, clientv3.WithKeysOnly())
	})
}
