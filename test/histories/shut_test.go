package histories

import (
	"math/rand/v2"
	"slices"
	"time"
)

// This file is about an etcd that is shut down as on SIGTERM. It takes nothing new, but for a while
// it answers the streams that were opened before. Leases that nobody renews end in that time, and
// watches tell so. A lease of a process that can renew it must not end.

// forGood is how long etcd is away that does not come back.
const forGood = int64(time.Hour)

// addShutDown has etcd shut down in some histories. Connections may break in that time: then some
// instances have nothing any more, while others still hear.
func (p *plan) addShutDown(l *lead) {
	r := rand.New(rand.NewPCG(p.seed, 7)) // so that all else happens as without
	if p.kind == calm || l != nil || r.IntN(3) > 0 {
		return
	}
	at, drain := begin+r.Int64N(2500*ms), 2300*ms+r.Int64N(1500*ms)
	if p.kind == hold {
		p.drain, at = drain, p.outage
		p.end = max(p.end, at+drain+2000*ms)
	} else {
		p.events = append(p.events, event{at: at, do: doShutDown, d: drain, n: r.Int64N(1500 * ms)})
	}
	for range r.IntN(3) {
		p.events = append(p.events, event{at: at + 1 + r.Int64N(drain), do: doReset, who: r.IntN(8)})
	}
}

// shutDown: etcd is shut down, and started again soon.
func shutDown(_ *plan, r *rand.Rand, t int64, _ int) []event {
	return []event{{at: t, do: doShutDown, d: 3000 * ms, n: r.Int64N(500 * ms)}}
}

// shutDown lets etcd answer the streams that are open for some time, and then be away.
func (w *world) shutDown(drain, away int64) {
	s, now := w.server, w.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now < s.shut.back {
		return
	}
	s.shut = shut{now, now + drain, now + drain + away}
	w.at(s.shut.end, func() {
		w.mu.Lock()
		links := slices.Clone(w.links)
		w.mu.Unlock()
		for _, l := range links {
			l.breakStreams(now)
		}
		if away == forGood {
			w.cutAll()
		}
	})
	if away < forGood {
		w.at(s.shut.back, func() { w.startAgain(now + drain + away) })
	}
}

// startAgain starts an etcd that is shut down: leases have their whole time again.
func (w *world) startAgain(at int64) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut.back < at {
		return
	}
	s.shut.back = min(s.shut.back, w.now())
	for id := range s.store.leases {
		if s.store.alive(id) {
			s.renew(id)
		}
	}
}

// renews notes that a lease was renewed by a stream that was opened at an instant.
func (l *link) renews(lease, opened int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed[lease] = max(l.renewed[lease], opened)
	if v := l.w.server; v.takes(l.w.now()) > l.w.now() {
		renewedWhileShut.note()
	}
}

// calmFor is how long nothing may have been wrong for a lease to be renewed in time.
const calmFor = 3000 * ms

// leaseEnds complains of a lease that ends while etcd shuts down, if its process had a stream to
// renew it by. It is called under the server's lock.
func (w *world) leaseEnds(lease int64) {
	s, now := w.server, w.now()
	calm := s.shut.from - calmFor
	if s.shut.from <= now && now < s.shut.end {
		endedWhileShut.note()
	}
	if now < s.shut.from || now >= s.shut.end || max(s.leaderless, s.frozen) > calm || w.kind == restore {
		return
	}
	for _, i := range w.all() {
		i.link.mu.Lock()
		opened, ok := i.link.renewed[lease]
		steady := ok && opened < s.shut.from && !i.link.dead && i.link.trouble < calm
		i.link.mu.Unlock()
		if steady && !i.gone() {
			w.complain("the lease of %s ends while etcd shuts down", i.name)
		}
	}
}
