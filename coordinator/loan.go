package coordinator

import (
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// This file is what memberships do with asks and loans: docs/proof/protocol.md, section 13.
// hear.go is how they come, carry.go how they go.

// mostApart bounds the providers of a session each of which has its own watch of asks. Beyond
// it one watch tells of the asks of all providers in etcd.
const mostApart = 8

// carry tells the sink that it may ask and lend once it is registered. anew says that it is, as a new incarnation: a right
// that its role lacked before may have been granted.
func (p *membership) carry(anew bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.mute = p.mute && !anew
	if !p.Silent() && !p.mute {
		p.Sink.Carry(p)
	}
}

// lend has the session hear what others ask from now on. It is called within a batch, for each
// incarnation.
func (p *membership) lend() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.Silent() && !p.mute {
		p.s.hearAsksLocked(p)
	}
}

// hearAsksLocked has the session hear what guests ask an incarnation for.
func (s *Session) hearAsksLocked(p *membership) {
	switch {
	case s.mu.asks != nil:
	case s.mu.apart || s.mu.Narrow() || len(s.mu.memberships) <= mostApart:
		p.endAsks()
		for i, folder := range []string{s.keys.Asks(p.Provider, p.Own().ID), s.keys.SampleAsks(p.Provider)} {
			p.asks[i] = s.hearing.add(&ear{folder: folder, hear: s.heardAsk, refuse: func() { p.muteNow("read", folder) }})
		}
	default:
		s.mu.asks = s.hearing.add(&ear{folder: s.keys.AllAsks(""), hear: s.heardAsk, refuse: s.hearApart})
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

// muteNow ends lending until the next incarnation: the user of this program lacks the right to read or write a key.
func (p *membership) muteNow(right, key string) {
	folder := p.s.keys.AllLoans(p.Provider)
	if asks := p.s.keys.AllAsks(p.Provider); strings.HasPrefix(key, asks) {
		folder = asks
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.mute {
		return
	}
	p.mute = true
	p.s.o.Logger.Warn("this instance may not lend or borrow: "+lacks(right, folder), "provider", p.Provider, "do", cause.GrantRole(p.Provider))
	p.s.hearing.leave(p)
	p.Sink.Carry(nil)
}

// hearApart has each provider hear of its own asks: the user of this program may not read those of all.
func (s *Session) hearApart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hearing.end(s.mu.asks)
	s.mu.asks, s.mu.apart = nil, true
	for _, p := range s.mu.memberships {
		if p.Follows() && !p.Silent() && !p.mute {
			s.hearAsksLocked(p)
		}
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
	folder := p.s.keys.Loans(p.Provider, id)
	if p.loans == nil || p.loans.folder != folder {
		h.endLocked(p.loans)
		p.loans = h.addLocked(&ear{folder: folder, refuse: func() { p.muteNow("read", folder) }, hear: func(kv *mvccpb.KeyValue) { p.heardLoan(id, folder, kv) }})
	}
	return p.loans
}

// mostKeysAtOnce bounds the keys of a message that are passed on while the session's lock is held:
// each costs the time of a look at all instances, and whoever proves a view waits meanwhile.
const mostKeysAtOnce = 64

// heardLoan passes on what a host lends to an incarnation. Only instances that the view
// has lend, and ask.
func (p *membership) heardLoan(id, folder string, kv *mvccpb.KeyValue) {
	who, named := keys.IncarnationIn(folder, string(kv.Key))
	p.s.passOn(kv, func(part *protocol.Note) (passed bool) {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		if passed = named && p.Own().ID == id && !p.Silent() && p.Has(who); passed && part != nil {
			p.Sink.Borrow(who, *part)
		}
		return passed
	})
}

// heardAsk passes on what a guest asks for.
func (s *Session) heardAsk(kv *mvccpb.KeyValue) {
	provider, host, guest, named := s.keys.AskOf(string(kv.Key))
	s.passOn(kv, func(part *protocol.Note) (passed bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.mu.memberships[provider]
		if passed = named && p != nil && !p.Silent() && (host == "" || host == p.Own().ID) && guest != p.Own().ID && p.Has(guest); passed && part != nil {
			p.Sink.Asked(guest, *part)
		}
		return passed
	})
}

// passOn reads a message and passes it on in parts, while pass returns true. It first passes nil: if
// nobody is to hear the message, it need not be read.
func (s *Session) passOn(kv *mvccpb.KeyValue, pass func(part *protocol.Note) bool) {
	if !pass(nil) {
		return
	}
	message, err := protocol.ReadNotes(kv.Value)
	if err != nil {
		s.o.Logger.Debug("not an ask or a loan", "key", string(kv.Key), "error", err)
		return
	}
	for _, note := range message {
		for part := range note.Parts(mostKeysAtOnce) {
			if !pass(&part) {
				return
			}
		}
	}
}

// Tell implements feed.Carrier.
func (p *membership) Tell(self, guest string, loan protocol.Note) {
	p.write(self, p.s.keys.Loans(p.Provider, guest), loan)
}

// Ask implements feed.Carrier: once the incarnation could hear the answer.
func (p *membership) Ask(self string, all []protocol.Request) {
	if p.ctx.Err() != nil {
		return
	}
	p.s.hearing.when(p.s.hearing.guest(p, self), func() {
		for _, r := range all {
			folder := p.s.keys.SampleAsks(p.Provider)
			if r.Host != "" {
				folder = p.s.keys.Asks(p.Provider, r.Host)
			}
			p.write(self, folder, r.Note)
		}
	})
}

// write has a note of an incarnation written into a folder.
func (p *membership) write(self, folder string, n protocol.Note) {
	p.s.post.put(letter{p, self, keys.In(folder, self), []protocol.Note{n}})
}
