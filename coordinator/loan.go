package coordinator

import (
	"iter"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file is what memberships do with asks and loans: docs/protocol.md, section 13. Those of
// keys (section 15) have the same folders and watches, and one message has many keys.
// hear.go is how they come, carry.go how they go.

// mostApart bounds the providers of a session each of which has its own watch of asks. Beyond
// it one watch tells of the asks of all providers in etcd.
const mostApart = 8

// carry tells the sink that it may ask and lend once it is registered.
func (p *membership) carry() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.silent && !p.mute {
		p.sink.Carry(p)
	}
}

// lend has the session hear what others ask from now on. It is called within a batch, for each
// incarnation.
func (p *membership) lend() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.silent && !p.mute {
		p.s.hearAsksLocked(p)
	}
}

// hearAsksLocked has the session hear what guests ask an incarnation for.
func (s *Session) hearAsksLocked(p *membership) {
	switch {
	case s.mu.asks != nil:
	case s.mu.narrow || len(s.mu.memberships) <= mostApart:
		p.endAsks()
		for i, folder := range []string{s.keys.Asks(p.provider, p.id), s.keys.SampleAsks(p.provider)} {
			p.asks[i] = s.hearing.add(&ear{folder: folder, hear: s.heardAsk, refuse: p.muteNow})
		}
	default:
		s.mu.asks = s.hearing.add(&ear{folder: s.keys.AllAsks(""), hear: s.heardAsk, refuse: s.muteAll})
		for _, one := range s.mu.memberships {
			one.endAsks()
		}
	}
}

func (p *membership) endAsks() {
	for i, e := range p.asks {
		p.s.hearing.end(e)
		p.asks[i] = nil
	}
}

// muteNow ends lending for want of a permission.
func (p *membership) muteNow() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.mute {
		return
	}
	p.mute = true
	p.s.o.Logger.Warn("this instance may not lend or borrow: create the role again", "provider", p.provider)
	p.s.hearing.leave(p)
	p.sink.Carry(nil)
}

func (s *Session) muteAll() {
	s.mu.Lock()
	all := s.mu.all()
	s.mu.Unlock()
	for _, p := range all {
		p.muteNow()
	}
}

// leave closes the ears of a membership.
func (h *hearing) leave(p *membership) {
	p.endAsks()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(p.loans)
	p.loans = nil
}

// guest returns the ear by which an incarnation hears of loans. It closes the one of the
// incarnation before.
func (h *hearing) guest(p *membership, id string) *ear {
	h.mu.Lock()
	defer h.mu.Unlock()
	folder := p.s.keys.Loans(p.provider, id)
	if p.loans == nil || p.loans.folder != folder {
		h.endLocked(p.loans)
		p.loans = h.addLocked(&ear{folder: folder, refuse: p.muteNow, hear: func(kv *mvccpb.KeyValue) { p.heardLoan(id, folder, kv) }})
	}
	return p.loans
}

// mostKeysAtOnce bounds the keys of a message that are passed on while the session's lock is held:
// each costs the time of a look at all instances, and whoever proves a view waits meanwhile.
const mostKeysAtOnce = 64

// partsOf goes over a message about keys in parts that are passed on at once, by names.
func partsOf(n protocol.KeyPermits) iter.Seq[protocol.KeyPermits] {
	return func(yield func(protocol.KeyPermits) bool) {
		for names := range slices.Chunk(slices.Sorted(maps.Keys(n.Permits)), mostKeysAtOnce) {
			part := protocol.KeyPermits{Windows: n.Windows, Permits: make(map[string]int64, len(names))}
			for _, name := range names {
				part.Permits[name] = n.Permits[name]
			}
			if !yield(part) {
				return
			}
		}
	}
}

// heardLoan passes on what a host lends to an incarnation. Only instances that the view
// has lend, and ask.
func (p *membership) heardLoan(id, folder string, kv *mvccpb.KeyValue) {
	key, ofKeys := keys.OfKeys(string(kv.Key))
	who, ok := keys.IncarnationIn(folder, key)
	var loan protocol.Loan
	var lent protocol.KeyPermits
	var err error
	if ofKeys {
		lent, err = protocol.ReadKeyPermits(kv.Value)
	} else {
		loan, err = protocol.ReadLoan(kv.Value)
	}
	if !ok || err != nil {
		p.s.o.Logger.Debug("not a loan", "key", string(kv.Key), "error", err)
		return
	}
	pass := func(f func()) (passed bool) {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		if passed = p.id == id && !p.silent && p.tracker.Has(who); passed {
			f()
		}
		return passed
	}
	if !ofKeys {
		pass(func() { p.sink.Borrow(who, loan) })
		return
	}
	for part := range partsOf(lent) {
		if !pass(func() { p.sink.BorrowKeys(who, part) }) {
			return
		}
	}
}

// heardAsk passes on what a guest asks for.
func (s *Session) heardAsk(kv *mvccpb.KeyValue) {
	key, ofKeys := keys.OfKeys(string(kv.Key))
	provider, host, guest, ok := s.keys.AskOf(key)
	pass := func(f func(feed.Sink)) (passed bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.mu.memberships[provider]
		if passed = ok && p != nil && !p.silent && (host == "" || host == p.id) && guest != p.id && p.tracker.Has(guest); passed {
			f(p.sink)
		}
		return passed
	}
	if !pass(func(feed.Sink) {}) { // it need not be read
		return
	}
	var err error
	if ofKeys {
		var needs protocol.KeyPermits
		needs, err = protocol.ReadKeyPermits(kv.Value)
		for part := range partsOf(needs) {
			if !pass(func(sink feed.Sink) { sink.AskedKeys(guest, part) }) {
				return
			}
		}
	} else {
		var need protocol.Need
		if need, err = protocol.ReadNeed(kv.Value); err == nil {
			pass(func(sink feed.Sink) { sink.Asked(guest, need) })
		}
	}
	if err != nil {
		s.o.Logger.Debug("not an ask", "key", string(kv.Key), "error", err)
	}
}

// Tell implements feed.Carrier.
func (p *membership) Tell(self, guest string, l protocol.Loan) {
	p.s.post.put(letter{p, self, keys.In(p.s.keys.Loans(p.provider, guest), self), l, l.Windows[0].End(), nil})
}

// TellKeys implements feed.Carrier.
func (p *membership) TellKeys(self, guest string, lent protocol.KeyPermits) {
	p.postKeys(self, p.s.keys.Loans(p.provider, guest), lent)
}

// Ask implements feed.Carrier.
func (p *membership) Ask(self string, all []protocol.Request) {
	p.whenHeard(self, func() {
		for _, r := range all {
			folder := p.s.keys.SampleAsks(p.provider)
			if r.Host != "" {
				folder = p.s.keys.Asks(p.provider, r.Host)
			}
			p.s.post.put(letter{p, self, keys.In(folder, self), r.Need, r.Windows[0].End(), nil})
		}
	})
}

// AskKeys implements feed.Carrier.
func (p *membership) AskKeys(self string, by map[string]protocol.KeyPermits) {
	p.whenHeard(self, func() {
		for _, host := range slices.Sorted(maps.Keys(by)) { // in the same order each time
			p.postKeys(self, p.s.keys.Asks(p.provider, host), by[host])
		}
	})
}

// whenHeard asks once an incarnation could hear the answer.
func (p *membership) whenHeard(self string, ask func()) {
	if p.ctx.Err() == nil {
		p.s.hearing.when(p.s.hearing.guest(p, self), ask)
	}
}

// postKeys has permits of keys written into a folder, with those that wait to be.
func (p *membership) postKeys(self, folder string, n protocol.KeyPermits) {
	p.s.post.put(letter{p, self, keys.OfKeysIn(folder, self), n, n.Windows[0].End(), func(before any) any {
		return n.Join(before.(protocol.KeyPermits))
	}})
}
