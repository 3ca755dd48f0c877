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
// still proves something.
func (s *Session) probe() {
	pause := s.o.Probe
	for sleep(s.ctx, pause) {
		s.o.Clock.Observe(s.o.Clock.Now())
		pause = s.probePause()
		every := pause
		s.wg.Go(func() { s.probeOnce(every, s.all()) })
	}
}

// probePause returns the time between two probes: Options.Probe, or the time that the
// shortest freshness and the largest fleet demand.
func (s *Session) probePause() time.Duration {
	pause, spread := s.o.Probe, time.Duration(0)
	freshness := s.shortestFreshness()
	for _, p := range s.all() {
		p.mu.Lock()
		spread = max(spread, time.Duration(p.tracker.Instances())*probeShare)
		p.mu.Unlock()
	}
	pause = min(pause, freshness/probesPerFreshness)
	if !s.o.ownProbe {
		pause = max(pause, min(spread, freshness/fewestPerFreshness))
	}
	return pause
}

// shortestFreshness returns the least that a provider's policy demands.
func (s *Session) shortestFreshness() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, p := range s.all() {
		p.mu.Lock()
		least = min(least, p.freshness())
		p.mu.Unlock()
	}
	return least
}

// asked is a membership that waits for the answer of a probe.
type asked struct {
	membership *membership
	incarnation
	probe view.Probe
}

// probeOnce sends a read for memberships and takes its answer. The next one follows
// after every. It reads the mark, the newest key of these memberships: a store that has
// it as it was created has everything that was committed before.
func (s *Session) probeOnce(every time.Duration, of []*membership) {
	sent := s.o.Clock.Now()
	var waiting []asked
	var mark asked
	for _, p := range of {
		p.mu.Lock()
		if p.key != "" && !p.relist && p.tracker.Has(p.id) {
			a := asked{p, p.incarnation, p.tracker.Sent(sent)}
			if waiting = append(waiting, a); a.created > mark.created {
				mark = a
			}
		}
		p.mu.Unlock()
	}
	if mark.key == "" {
		return
	}
	c, done := context.WithTimeout(s.ctx, min(s.shortestFreshness(), probesAtOnce*every))
	defer done()
	answered, stop := context.WithCancel(c)
	defer stop()
	s.wg.Go(func() {
		// A slow etcd takes as long to tell how far the watch is. To ask for that
		// only after the answer would make the proof twice as old.
		if sleep(answered, every/2) {
			for _, a := range waiting {
				a.membership.askProgress()
			}
		}
	})
	// A probe may take longer than other calls.
	r, err := s.client.Get(c, mark.key, clientv3.WithKeysOnly())
	stop()
	if err != nil {
		s.redialNow()
		for _, a := range waiting {
			a.membership.unanswered(s.ctx, err)
		}
		return
	}
	gone := false
	if len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != mark.created {
		if gone = mark.membership.missed(mark, r.Header.Revision); !gone {
			mark.membership.askProgress()
			return // its watch is about to say so
		}
	}
	for _, a := range waiting {
		if a.membership.answered(s, a, r.Header.Revision, r.Header.ClusterId, gone) {
			a.membership.askProgress()
		}
	}
}

// missed reports whether a store lacks a mark at a revision and no event says that its
// key was deleted: then the store was put back.
func (p *membership) missed(mark asked, revision int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id == mark.id && p.tracker.Has(p.id) && p.tracker.Position() >= revision
}

// askProgress asks how far the watch has told. The answer comes in its own order,
// when all is delivered; while it is not, the next probe asks again. It does not
// wait: a watch whose connection hangs takes no question. The question outlives the
// probe that asks it, or it would be lost as often as not.
func (p *membership) askProgress() {
	p.mu.Lock()
	w, timeout := p.open, p.freshness()
	p.mu.Unlock()
	if w == nil {
		return
	}
	p.s.wg.Go(func() {
		ctx, done := context.WithTimeout(p.ctx, timeout) // of the watch's own stream
		defer done()
		_ = w.RequestProgress(ctx)
	})
}

// answered takes a probe's answer; it returns true if a watch is open that lags
// behind it. gone tells that the store lacks the mark.
func (p *membership) answered(s *Session, a asked, revision int64, cluster uint64, gone bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id != a.id || p.relist {
		return false // another incarnation, or already known to be wrong
	}
	switch {
	case gone:
		p.gapLocked("the newest key of this session is not in etcd as it was written")
		return false
	case p.tracker.Answer(a.probe, revision, cluster):
		p.gapLocked("a read returned an older revision, or another cluster answered")
		return false
	}
	p.proveLocked()
	if !p.tracker.Behind() || p.open == nil {
		return false
	}
	now := s.o.Clock.Mono()
	if p.behind == 0 {
		p.behind = now
	}
	if now-p.behind > int64(p.freshness()/2) {
		// Reads are answered and the watch is not: it hangs on a member that lags.
		p.s.o.Logger.Warn("watch lags behind, opening it anew", "provider", p.provider)
		p.open.end()
		p.behind = now
	}
	return true
}

// unanswered tells why nothing is proved, once it has lasted.
func (p *membership) unanswered(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.s.o.Clock.Mono()
	if p.proved != 0 && now-p.proved > int64(p.freshness()) && ctx.Err() == nil {
		p.tellLocked(classify(ctx, "prove the view of "+p.provider+" recent", err))
	}
}

func (p *membership) freshness() time.Duration {
	if p.policy == nil {
		return quota.DefaultFreshness
	}
	return p.policy.Freshness
}
