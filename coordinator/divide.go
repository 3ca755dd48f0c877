package coordinator

import (
	"context"
	"encoding/json"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// Where shares are by demand, one instance works out the level from all reports
// and writes it: the oldest that is alive. As nobody can tell at once that it has
// died, a few of the next oldest look after it, less often each, and write what it
// has left unwritten; if they are gone too, whoever is next when the level grows
// old. Two who write at once do no harm: each level is safe by itself, and a
// transaction lets only one of them through.
const (
	divideEvery  = 2 * time.Second  // at most, where demands have moved
	deputies     = 3                // who look after the oldest
	divideShift  = 2                // percent of all claims that must have moved
	levelRenewed = 10 * time.Second // at least
	levelLasts   = 30 * time.Second // after its last entry's From: then shares are equal
)

// division is what a place knows of the level; guarded by place.mu, except what
// only the report goroutine uses.
type division struct {
	at int64 // monotonic, when the newest level was applied; 0 if there was none

	// Of the report goroutine:
	looked  int64            // when the reports were last read
	demands map[string]int64 // that the level at known was worked out from
	known   int64            // revision of that level's key, 0 if there is none
}

// ownLocked completes a level by what this instance had reported itself.
func (p *place) ownLocked(l *quota.Level) {
	if l == nil {
		return
	}
	p.division.at = p.s.o.Clock.Mono()
	for i := range l.Entries {
		l.Entries[i].Demand = p.published.At(l.Entries[i].Revision)
	}
}

// divide writes a new level, if it is this instance's turn and there is reason.
func (p *place) divide(now int64) {
	p.mu.Lock()
	rank := time.Duration(p.tracker.Rank(p.id))
	age := time.Duration(now - p.division.at)
	turn := p.key != "" && p.until == 0 && p.tracker.Has(p.id) &&
		(age > rank*divideEvery && rank <= deputies || age > levelRenewed+rank*divideEvery)
	id, created, freshness := p.id, p.created, quota.DefaultFreshness
	if p.policy != nil {
		freshness = p.policy.Freshness
	}
	p.mu.Unlock()
	if !turn || p.division.looked != 0 && time.Duration(now-p.division.looked) < min(rank+1, deputies)*divideEvery {
		return
	}
	p.division.looked = now
	// A level that is written later than its reports were read by S' could meet an
	// etcd that was put back meanwhile, where the revision stands for other reports.
	c, done := context.WithTimeout(p.s.ctx, min(reportTimeout, freshness))
	defer done()
	k := p.s.keys
	r, err := p.s.client.Txn(c).Then(
		clientv3.OpGet(k.provider(p.provider), clientv3.WithPrefix()),
		clientv3.OpGet(k.reports(p.provider), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return // the level lasts longer than the next try
	}
	read := p.readDivision(r.Responses[0].GetResponseRange().Kvs, r.Responses[1].GetResponseRange().Kvs)
	p.recall(c, &read)
	l, ok := read.next(r.Header.Revision, p.s.o.Clock.Wall(), &p.division)
	if !ok {
		return
	}
	l.Author, l.Time = id, time.Unix(0, p.s.o.Clock.Wall())
	b, err := json.Marshal(l)
	if err != nil {
		return
	}
	w, err := p.s.client.Txn(c).If(
		clientv3.Compare(clientv3.ModRevision(k.level(p.provider)), "=", read.level),
		clientv3.Compare(clientv3.ModRevision(k.policy(p.provider)), "=", read.view.PolicyRevision),
		clientv3.Compare(clientv3.CreateRevision(k.instance(p.provider, id)), "=", created),
	).Then(clientv3.OpPut(k.level(p.provider), string(b))).Commit()
	if err == nil && w.Succeeded {
		p.division.known, p.division.demands = w.Header.Revision, read.demands
	}
}

// recall finds out what the level that was read was worked out from, where another
// instance wrote it.
func (p *place) recall(ctx context.Context, read *divisible) {
	l := read.view.Level
	if l == nil || p.division.known == read.level {
		return
	}
	p.division.known, p.division.demands = read.level, nil // as if nobody had asked for anything
	r, err := p.s.client.Get(ctx, p.s.keys.reports(p.provider), clientv3.WithPrefix(), clientv3.WithRev(l.Entries[len(l.Entries)-1].Revision))
	if err == nil {
		p.division.demands = p.demandsIn(r.Kvs, func(string) bool { return true })
	}
}

// divisible is what a level is worked out from, all of one revision.
type divisible struct {
	view    quota.View
	level   int64            // revision of the level's key, 0 without one
	demands map[string]int64 // of live instances that have reported
}

func (p *place) readDivision(kvs, reports []*mvccpb.KeyValue) divisible {
	var t view.Tracker
	var d divisible
	d.view = t.List(clock.Instant{}, 0, 0, p.parseAll(kvs))
	for _, kv := range kvs {
		if string(kv.Key) == p.s.keys.level(p.provider) {
			d.level = kv.ModRevision
		}
	}
	d.demands = p.demandsIn(reports, t.Has)
	return d
}

// demandsIn returns the demands that the instances for which is holds reported.
func (p *place) demandsIn(reports []*mvccpb.KeyValue, is func(id string) bool) map[string]int64 {
	demands := make(map[string]int64, len(reports))
	for _, kv := range reports {
		if id, ok := incarnationIn(p.s.keys.reports(p.provider), string(kv.Key)); ok && is(id) {
			demands[id] = reportOf(kv.Value).Demand
		}
	}
	return demands
}

// next returns the level to write, at corrected wall-clock time now; ok is false
// if there is no need of one, or no room.
func (d *divisible) next(revision, now int64, before *division) (l quota.Level, ok bool) {
	policy := d.view.Policy
	if policy == nil || policy.Share != quota.ShareDemand {
		return l, false
	}
	from := firstWindow(now, policy)
	e := share.Divide(policy, d.view.Instances, d.demands, revision, from)
	if len(e.Limits) == 0 {
		return l, false
	}
	if current := d.view.Level; current != nil && current.At(from.UnixNano()) != nil {
		last := &current.Entries[len(current.Entries)-1]
		renew := current.Until.UnixNano()-now < int64(levelLasts-levelRenewed)
		if !renew && !share.Shifted(last, &e, before.demands, d.demands, divideShift) {
			return l, false
		}
	}
	l, ok = share.Extend(d.view.Level, e, now-int64(policy.DriftWindow()))
	l.Until = from.Add(levelLasts)
	return l, ok
}
