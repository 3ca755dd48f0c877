package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

const (
	reportEvery   = 30 * time.Second // at least
	rateEvery     = 5 * time.Second  // at most, where only rates or instances have changed
	lookEvery     = 5 * time.Second  // for observers
	rateMoved     = 0.2              // the least relative change
	rateWindows   = 5                // at least: use comes in bursts, one a window, and one more or less of six is not a fifth
	reportTimeout = 2 * time.Second

	// Where shares are by demand:
	demandAtMost  = 2 * time.Second  // at most, where the demand has moved
	demandAtLeast = 10 * time.Second // at least
	demandMoved   = 0.05
)

// reporting is a membership's last report.
type reporting struct {
	id     string // incarnation
	last   quota.Report
	at     int64 // monotonic
	rate   float64
	looked int64 // when observers were last looked for
	watchd bool  // somebody looks
	read   int64 // when all reports were last read, for the level
	paced  int64 // and for the pace
}

// report writes the limiters' state, for operators: after significant changes, every
// 30 s, and once a second while somebody observes.
func (s *Session) report() {
	for sleep(s.ctx, time.Second) {
		answers := true
		for _, p := range s.all() {
			answers = p.report(answers)
		}
	}
}

// report notes the limiter's state and, if etcd answers, reports it. It returns
// whether etcd does: if it keeps one membership waiting, the others do not ask it in
// the same round, so that their states are noted in time.
func (p *membership) report(answers bool) bool {
	defer p.keep()
	last := &p.reported
	now := p.s.o.Clock.Now()
	r := p.sink.Report(now) // also notes and logs changes of state
	r.Name = p.s.o.Name
	p.mu.Lock()
	id := p.id
	byDemand := p.policy != nil && p.policy.Share == quota.ShareDemand
	adaptive := p.policy != nil && p.policy.Adaptive.Floor > 0
	paces := adaptive || p.paced != nil // one that nobody follows is deleted
	if !paces {
		p.unpaced = nil
	}
	p.mu.Unlock()
	if id == "" || !answers {
		return answers
	}
	if last.id != id {
		*last = reporting{id: id}
	}
	ctx, done := context.WithTimeout(p.s.ctx, reportTimeout)
	defer done()
	if last.looked == 0 || now.Mono-last.looked > int64(lookEvery) {
		last.looked, last.watchd = now.Mono, p.observed(ctx)
	}
	due, rate := last.due(&r, now.Mono)
	elapsed := time.Duration(now.Mono - last.at)
	due = due || (byDemand || adaptive) && elapsed >= demandAtLeast ||
		elapsed >= demandAtMost && (byDemand && last.moved(&r) || adaptive && last.paceNews(&r))
	if due {
		if p.write(ctx, last, &r) {
			last.last, last.at, last.rate = r, now.Mono, rate
		}
	}
	if byDemand {
		p.divide(ctx, last, now.Mono)
	}
	if paces {
		p.pace(ctx, last, now.Mono)
	}
	return ctx.Err() == nil
}

// write writes a report, on the condition that the incarnation lives.
func (p *membership) write(ctx context.Context, last *reporting, r *quota.Report) bool {
	b, err := json.Marshal(r)
	if err != nil {
		return false
	}
	own := p.current()
	if own.id != last.id {
		return false
	}
	t, err := p.s.kv.Txn(ctx).If(own.lives()).
		Then(clientv3.OpPut(p.s.keys.Report(p.provider, own.id), string(b), clientv3.WithLease(own.lease))).Commit()
	return err == nil && t.Succeeded
}

func readReport(value []byte) (r quota.Report, err error) {
	if n := len(value); n > maxReportBytes {
		return r, fmt.Errorf("%d bytes are more than the most, %d", n, maxReportBytes)
	}
	err = json.Unmarshal(value, &r)
	return r, err
}

// moved reports whether r is worth writing for its demand alone.
func (l *reporting) moved(r *quota.Report) bool {
	moved := math.Abs(float64(r.Demand - l.last.Demand))
	return moved > demandMoved*float64(max(r.Demand, l.last.Demand))
}

// paceNews reports whether r is worth writing for what the provider refused alone, or as
// evidence of another pace.
func (l *reporting) paceNews(r *quota.Report) bool {
	enough := func(r *quota.Report) bool { return r.PaceSpan >= paceSpan.Milliseconds() }
	return enough(r) && (r.PaceRefused > 0 || l.last.PaceRefused > 0 || r.PaceRevision != l.last.PaceRevision || !enough(&l.last))
}

// due reports whether r is worth writing, with the rate of use that it shows.
func (l *reporting) due(r *quota.Report, now int64) (due bool, rate float64) {
	if l.at == 0 {
		return true, 0
	}
	elapsed := time.Duration(now - l.at)
	rate = float64(r.Used+r.Refused-l.last.Used-l.last.Refused) / elapsed.Seconds()
	switch {
	case l.watchd, elapsed >= reportEvery:
		return true, rate
	case r.State != l.last.State, r.PolicyRevision != l.last.PolicyRevision, r.Total != l.last.Total, r.Problem != l.last.Problem:
		return true, rate
	case elapsed < rateEvery:
		return false, 0
	case r.Instances != l.last.Instances, // in a rolling restart all see all come and go
		(r.Debt > 0) != (l.last.Debt > 0), r.Learned != l.last.Learned:
		return true, rate
	case elapsed < rateWindows*r.Window:
		return false, 0
	}
	return math.Abs(rate-l.rate) > rateMoved*max(rate, l.rate), rate
}

// observed reports whether somebody looks at the provider. A role that may not
// read that is told nothing.
func (p *membership) observed(ctx context.Context) bool {
	r, err := p.s.kv.Get(ctx, p.s.keys.Observers(p.provider), clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	return err == nil && r.Count > 0
}
