package coordinator

import (
	"context"
	"encoding/json"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

const (
	reportEvery   = 30 * time.Second // at least
	rateEvery     = 5 * time.Second  // at most, where only the rates have moved
	lookEvery     = 5 * time.Second  // for observers
	rateMoved     = 0.2              // what counts as moved
	reportTimeout = 2 * time.Second
)

// reporting is what a place has reported, owned by the report goroutine.
type reporting struct {
	id     string // incarnation
	last   quota.Report
	at     int64 // monotonic
	rate   float64
	looked int64 // when observers were last looked for
	watchd bool  // somebody looks
}

// report writes what the limiters do, for operators: when something significant
// has changed, and every 30 s; once a second while somebody looks.
func (s *Session) report() {
	reports := map[*place]*reporting{}
	for sleep(s.ctx, time.Second) {
		places := s.all()
		for _, p := range places {
			if reports[p] == nil {
				reports[p] = &reporting{}
			}
			p.report(reports[p])
		}
		if len(reports) > 2*len(places) {
			live := map[*place]*reporting{}
			for _, p := range places {
				live[p] = reports[p]
			}
			reports = live
		}
	}
}

func (p *place) report(last *reporting) {
	now := p.s.o.clock.Now()
	r := p.sink.Report(now) // also notes and logs changes of state
	r.Name = p.s.o.Name
	p.mu.Lock()
	id := p.id
	p.mu.Unlock()
	p.s.mu.Lock()
	l := p.s.mu.lease
	p.s.mu.Unlock()
	if id == "" || l == nil {
		return
	}
	if last.id != id {
		*last = reporting{id: id}
	}
	if last.looked == 0 || now.Mono-last.looked > int64(lookEvery) {
		last.looked, last.watchd = now.Mono, p.observed()
	}
	due, rate := last.due(&r, now.Mono)
	if !due {
		return
	}
	b, err := json.Marshal(r)
	if err != nil {
		return
	}
	c, done := context.WithTimeout(p.s.ctx, reportTimeout)
	defer done()
	if _, err := p.s.client.Put(c, p.s.keys.report(p.provider, id), string(b), clientv3.WithLease(l.id)); err == nil {
		last.last, last.at, last.rate = r, now.Mono, rate
	}
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
	case r.State != l.last.State, r.PolicyRevision != l.last.PolicyRevision, r.Total != l.last.Total,
		r.Instances != l.last.Instances, r.Problem != l.last.Problem:
		return true, rate
	case elapsed < rateEvery:
		return false, 0
	}
	return math.Abs(rate-l.rate) > rateMoved*max(rate, l.rate), rate
}

// observed reports whether somebody looks at the provider. A role that may not
// read that is told nothing.
func (p *place) observed() bool {
	c, done := context.WithTimeout(p.s.ctx, reportTimeout)
	defer done()
	r, err := p.s.client.Get(c, p.s.keys.observers(p.provider), clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	return err == nil && r.Count > 0
}
