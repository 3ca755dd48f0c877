package coordinator

import (
	"context"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// probesAtOnce bounds the reads under way: one that hangs must not keep the
	// next from being sent.
	probesAtOnce = 4
	// A policy's freshness leaves room for six proofs, and for a read that takes a
	// quarter of it.
	probesPerFreshness = 6
	timeoutOfFreshness = 4
	longestProbe       = 600 * time.Millisecond
	// In a large fleet the default time between probes grows with the number of
	// instances, as far as three proofs still fit into the freshness: etcd answers
	// as many probes for a thousand instances as for five hundred.
	probeShare         = 600 * time.Microsecond // of etcd's time, for each instance
	fewestPerFreshness = 3
	// Probes that are so far apart may take longer: in an overload an answer that
	// comes late is better than another question.
	timeoutOfPause = 2
)

// probe sends linearizable reads, for all places together: etcd's revision is
// one for all of them.
func (s *Session) probe() {
	free := make(chan struct{}, probesAtOnce)
	pause := s.o.Probe
	for sleep(s.ctx, pause) {
		var timeout time.Duration // of this one: the next may have another
		s.o.Clock.Observe(s.o.Clock.Now())
		pause, timeout = s.probeTimes()
		select {
		case free <- struct{}{}:
			s.wg.Go(func() {
				defer func() { <-free }()
				s.probeOnce(timeout)
			})
		default:
		}
	}
}

// probeTimes returns the time between two probes, Options.Probe or what the
// shortest freshness and the largest fleet demand, and the time that one may take.
func (s *Session) probeTimes() (pause, timeout time.Duration) {
	pause, timeout = s.o.Probe, longestProbe
	spread, most := time.Duration(0), time.Duration(math.MaxInt64)
	for _, p := range s.all() {
		p.mu.Lock()
		f, n := p.freshness(), p.tracker.Instances()
		p.mu.Unlock()
		pause = min(pause, f/probesPerFreshness)
		timeout = min(timeout, max(f/timeoutOfFreshness, quota.MinFreshness))
		spread, most = max(spread, time.Duration(n)*probeShare), min(most, f/fewestPerFreshness)
	}
	if !s.o.ownProbe {
		pause = max(pause, min(spread, most))
	}
	if pause > DefaultProbe {
		timeout = max(timeout, timeoutOfPause*pause)
	}
	return pause, timeout
}

// asked is a place that waits for the answer of a probe.
type asked struct {
	place *place
	id    string
	probe view.Probe
}

func (s *Session) probeOnce(timeout time.Duration) {
	sent := s.o.Clock.Now()
	var waiting []asked
	key := ""
	for _, p := range s.all() {
		p.mu.Lock()
		if p.key != "" && !p.relist {
			waiting = append(waiting, asked{p, p.id, p.tracker.Sent(sent)})
			key = p.key
		}
		p.mu.Unlock()
	}
	if key == "" {
		return
	}
	// Any key would do; the own one may be read by every role.
	c, done := context.WithTimeout(s.ctx, timeout)
	r, err := s.client.Get(c, key, clientv3.WithKeysOnly())
	done()
	if err != nil {
		for _, a := range waiting {
			a.place.unanswered(s.ctx, err)
		}
		return
	}
	behind := false
	for _, a := range waiting {
		behind = a.place.answered(s, a, r.Header.Revision, r.Header.ClusterId) || behind
	}
	if behind {
		// The answer comes in the watch's own order, when all is delivered. While
		// it is not, the next probe asks again.
		c, done := context.WithTimeout(s.ctx, timeout)
		defer done()
		_ = s.watcher.RequestProgress(s.streamContext(c))
	}
}

// answered takes a probe's answer; it returns true if a watch is open that lags
// behind it.
func (p *place) answered(s *Session, a asked, revision int64, cluster uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id != a.id || p.relist {
		return false // another incarnation, or already known to be wrong
	}
	p.doubtLocked(s.o.Clock.Now())
	if p.tracker.Answer(a.probe, revision, cluster) {
		p.gapLocked("a read returned an older revision, or another cluster answered")
		return false
	}
	p.proveLocked()
	if p.tracker.Unchecked() && !p.checking {
		p.checking = true
		s.wg.Go(func() { p.check(p.ctx) })
	}
	if !p.tracker.Behind() || p.rewatch == nil {
		return false
	}
	now := s.o.Clock.Mono()
	if p.behind == 0 {
		p.behind = now
	}
	if now-p.behind > int64(p.freshness()/2) {
		// Reads are answered and the watch is not: it hangs on a member that lags.
		p.s.o.Logger.Warn("watch lags behind, opening it anew", "provider", p.provider)
		p.rewatch()
		p.behind = now
	}
	return true
}

// unanswered tells why nothing is proved, once it has lasted.
func (p *place) unanswered(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.s.o.Clock.Mono()
	if p.proved != 0 && now-p.proved > int64(p.freshness()) && ctx.Err() == nil {
		p.tellLocked(classify(ctx, "prove the view of "+p.provider+" recent", err))
	}
}

// doubtLocked must be called before anything that comes from etcd is taken. After
// a silence longer than the freshness it puts the view in doubt and returns true:
// the store may have been replaced by a backup in the meantime. The answer to a
// probe then begins a check.
func (p *place) doubtLocked(now clock.Instant) bool {
	if !p.tracker.Silence(now, int64(p.freshness())) {
		return false
	}
	p.s.o.Logger.Debug("nothing was proved for longer than the freshness, the view is in doubt", "provider", p.provider)
	p.checking = false // of a doubt before this one
	return true
}

func (p *place) freshness() time.Duration {
	if p.policy == nil {
		return quota.DefaultFreshness
	}
	return p.policy.Freshness
}
