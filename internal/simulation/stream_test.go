package simulation

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/view"
)

// stream is a watch, from a member to a host. What is sent arrives in order.
type stream struct {
	host   *host
	number int // of the host's watches
	member int
	next   int64     // revision to send next
	lanes  [2]lane   // the second for two watches
	past   []message // what may come a second time
	ended  bool
}

// lane is messages under way, in order.
type lane struct {
	sent []message
	last int64 // when the latest arrives
}

// message is one answer of a watch.
type message struct {
	keys     []view.Key
	state    int   // newest state that keys make, if there are any
	header   int64 // the member's newest revision
	created  bool
	progress bool
	fault    string // why the watch ends; empty if it does not
}

const (
	faultCompacted = "compacted"
	faultLost      = "lost"
)

// open begins a watch at a revision, on member m.
func (e *etcd) open(h *host, number, m int, from int64) {
	s := &stream{host: h, number: number, member: m, next: from}
	applied := e.members[m].applied
	if from <= e.compacted {
		s.send(message{fault: faultCompacted, header: applied})
		return
	}
	if e.w.kind != Calm && e.w.IntN(2) == 0 {
		// What was seen before may come again, as from a lagging member.
		s.next = max(e.compacted+1, min(from, applied+1)-e.w.Int64N(12))
	}
	s.send(message{created: true, header: applied})
	e.members[m].streams = append(e.members[m].streams, s)
	s.pump()
}

// end closes the watch from the server's side.
func (s *stream) end() {
	if !s.ended {
		s.ended = true
		s.send(message{fault: faultLost})
	}
}

// over reports whether nothing is sent any more.
func (s *stream) over() bool { return s.ended || s.host.dead || s.host.watch != s.number }

// pump sends what the member has applied: one revision each as they come, and
// several in one answer when it has to catch up.
func (s *stream) pump() {
	e := &s.host.etcd
	applied := e.members[s.member].applied
	if s.over() {
		return
	}
	m := message{header: applied}
	batch := 1 + e.w.IntN(4)
	for n := 0; s.next <= applied; s.next++ {
		x := &e.line[s.next-1]
		if len(x.keys) == 0 {
			continue
		}
		if n == batch {
			s.send(m)
			m, n = message{header: applied}, 0
		}
		m.keys, m.state = append(slices.Clip(m.keys), x.keys...), x.state
		n++
	}
	if len(m.keys) > 0 {
		s.send(m)
		s.past = append(s.past, m)
	}
	if len(s.past) > 0 && e.w.kind != Calm && e.w.IntN(64) == 0 {
		s.send(s.past[e.w.IntN(len(s.past))])
	}
}

// progress answers with how far the member has sent, if it has sent all.
func (s *stream) progress() {
	applied := s.host.etcd.members[s.member].applied
	if s.next == applied+1 && !s.ended {
		s.send(message{progress: true, header: applied})
	}
}

// send lets a message arrive, after those before it.
func (s *stream) send(m message) {
	if s.host.trick(TwoWatches) && len(m.keys) > 0 {
		parts := [2]message{m, m}
		parts[0].keys, parts[1].keys = nil, nil
		for _, k := range m.keys {
			part := &parts[0]
			if k.Kind == view.Instance {
				part = &parts[1]
			}
			part.keys = append(part.keys, k)
		}
		s.deliver(parts[0], 0)
		s.deliver(parts[1], 1)
		return
	}
	s.deliver(m, 0)
}

func (s *stream) deliver(m message, n int) {
	h := s.host
	l := &s.lanes[n]
	l.last = max(l.last, blocked(h.now+h.delay(), append(slices.Clip(h.cuts), h.hangs...)))
	l.sent = append(l.sent, m)
	h.at(l.last, func() {
		m := l.sent[0]
		l.sent = l.sent[1:]
		h.take(s.number, &m)
	})
}
