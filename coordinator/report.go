package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session"
)

const (
	reportTick    = time.Second
	reportEvery   = 30 * time.Second // at least
	rateEvery     = 5 * time.Second  // at most, where only rates or instances have changed
	lookEvery     = 2 * time.Second  // for observers
	rateMoved     = 0.2              // the least relative change
	rateWindows   = 5                // at least: use comes in bursts, one a window, and one more or less of six is not a fifth
	reportTimeout = 2 * time.Second
)

// reporting is a membership's last report.
type reporting struct {
	id   string // incarnation
	last protocol.Report
	at   int64   // monotonic; 0: there was none
	rate float64 // of use, that it shows
}

// observing is what the session knows of those that look at its providers.
type observing struct {
	looked int64 // monotonic
	at     map[string]bool
}

// batchReports bounds the reports of a transaction.
const batchReports = 60

// written is a report that is to be written.
type written struct {
	p    *membership
	own  session.Incarnation
	next reporting
}

// report writes the limiters' state, for operators: after significant changes, every
// 30 s, and once a second while somebody observes. A ticker keeps the time that writing takes
// from adding up, so that each window of a second has a report.
func (s *Session) report() {
	tick := time.NewTicker(reportTick)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			s.reportAll()
		}
	}
}

// reportAll notes the states of all limiters, and writes what is due. If etcd keeps it
// waiting it asks no more in the same round, so that states are noted in time.
func (s *Session) reportAll() {
	s.observe()
	s.lookAtWrites()
	var due []*written
	all := s.all()
	for _, p := range all {
		if w := p.due(); w != nil {
			due = append(due, w)
		}
	}
	for some := range slices.Chunk(due, batchReports) {
		if err := s.write(some); errors.Is(err, ErrPermission) {
			for _, w := range some {
				_ = s.write([]*written{w})
			}
		} else if err != nil {
			break
		}
	}
	for _, p := range all {
		p.sweep()
	}
}

// due notes the limiter's state and returns the report that is to be written, nil if none
// is.
func (p *membership) due() *written {
	last := &p.reported
	now := p.s.o.Clock.Now()
	r := p.reportAt(now)
	p.s.mu.Lock()
	own, follows := p.Own(), p.Follows()
	p.s.mu.Unlock()
	if !follows {
		return nil
	}
	if last.id != own.ID {
		*last = reporting{id: own.ID}
	}
	next, due := last.next(r, now.Mono, p.s.observing.at[p.Provider])
	if !due {
		return nil
	}
	return &written{p, own, next}
}

// reportAt returns the limiter's state, which also notes and logs its changes.
func (p *membership) reportAt(now clock.Instant) *protocol.Report {
	store, known := p.settled() // before: what is taken from now on comes at a later revision
	r := p.Sink.Report(now)
	if r.Name = p.s.o.Name; len(r.Long) > 0 {
		r.Store, r.Known = store, known
	}
	return &r
}

// settled returns a revision of the store that is followed, by which everything that this process
// took of long limits has come to the sink; 0 if there is none, since permits are on their way.
func (p *membership) settled() (store uint64, revision int64) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if store, revision, follows := p.Newest(); follows && !p.exchanging {
		return store, revision
	}
	return 0, 0
}

// write writes reports in one transaction, each on the condition that its incarnation
// lives.
func (s *Session) write(all []*written) error {
	var ops []clientv3.Op
	for _, w := range all {
		b, err := json.Marshal(&w.next.last)
		if err != nil {
			return err
		}
		put := clientv3.OpPut(s.keys.Report(w.p.Provider, w.own.ID), string(b), clientv3.WithLease(clientv3.LeaseID(w.own.Lease)))
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{lives(&w.own)}, []clientv3.Op{put}, nil))
	}
	ctx, done := context.WithTimeout(s.ctx, reportTimeout)
	defer done()
	if _, err := s.kv.Txn(ctx).Then(ops...).Commit(); err != nil {
		return classify(ctx, "report", err)
	}
	for _, w := range all {
		w.p.reported = w.next
	}
	return nil
}

// next returns what the last report is once r is written, and whether that is due. watched
// says that somebody looks.
func (l *reporting) next(r *protocol.Report, now int64, watched bool) (next reporting, due bool) {
	next = reporting{l.id, *r, now, 0}
	if l.at == 0 {
		return next, true
	}
	elapsed := time.Duration(now - l.at)
	next.rate = float64(r.Used+r.Refused-l.last.Used-l.last.Refused) / elapsed.Seconds()
	switch {
	case watched, elapsed >= reportEvery:
		return next, true
	case r.State != l.last.State, r.PolicyRevision != l.last.PolicyRevision, r.Total != l.last.Total, r.Problem != l.last.Problem:
		return next, true
	case elapsed < rateEvery:
		return next, false
	case r.Instances != l.last.Instances, // in a rolling restart all see all come and go
		(r.Debt > 0) != (l.last.Debt > 0):
		return next, true
	case elapsed < rateWindows*r.Window:
		return next, false
	}
	return next, math.Abs(next.rate-l.rate) > rateMoved*max(next.rate, l.rate)
}

// due reports whether to look again at an instant, which is a tick's. Ticks may be early.
func (o *observing) due(now int64) bool {
	return o.looked == 0 || now-o.looked >= int64(lookEvery-reportTick/2)
}

// observe looks for those that look at the providers. A role that may not read that of all
// providers looks at each.
func (s *Session) observe() {
	o, now := &s.observing, s.o.Clock.Mono()
	if !o.due(now) {
		return
	}
	o.looked, o.at = now, map[string]bool{}
	ctx, done := context.WithTimeout(s.ctx, reportTimeout)
	defer done()
	folders := []string{s.keys.Observers("")}
	s.mu.Lock()
	if s.mu.Narrow() {
		folders = nil
		for _, p := range session.Sorted(s.mu.memberships) {
			folders = append(folders, s.keys.Observers(p.Provider))
		}
	}
	s.mu.Unlock()
	for _, folder := range folders {
		_ = etcdcall.EachIn(ctx, s.kv, folder, func(kv *mvccpb.KeyValue) {
			if provider, ok := s.keys.ObservedBy(string(kv.Key)); ok {
				o.at[provider] = true
			}
		}, clientv3.WithKeysOnly(), clientv3.WithSerializable())
	}
}
