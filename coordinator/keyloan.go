package coordinator

import (
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file is what memberships do with asks and loans of keys: docs/protocol.md, section 16.
// They have the folders and watches of the provider's, and one message has many keys.

// heardKeyLoans passes on what a host lends to an incarnation.
func (p *membership) heardKeyLoans(id, folder, key string, value []byte) {
	who, ok := keys.IncarnationIn(folder, key)
	lent, err := protocol.ReadKeyPermits(value)
	if !ok || err != nil {
		p.s.o.Logger.Debug("not a loan of keys", "key", key, "error", err)
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.id == id && !p.silent && p.tracker.Has(who) {
		p.sink.BorrowKeys(who, lent)
	}
}

// heardKeyNeeds passes on what a guest of the view asks for.
func (p *membership) heardKeyNeeds(guest string, value []byte) {
	needs, err := protocol.ReadKeyPermits(value)
	if err != nil {
		p.s.o.Logger.Debug("not an ask for keys", "guest", guest, "error", err)
		return
	}
	p.sink.AskedKeys(guest, needs)
}

// TellKeys implements feed.Carrier.
func (p *membership) TellKeys(self, guest string, lent protocol.KeyPermits) {
	p.postKeys(self, keys.OfKeysIn(p.s.keys.Loans(p.provider, guest), self), lent)
}

// AskKeys implements feed.Carrier.
func (p *membership) AskKeys(self string, by map[string]protocol.KeyPermits) {
	if p.ctx.Err() != nil {
		return
	}
	p.s.hearing.when(p.s.hearing.guest(p, self), p.s.o.Clock.Mono(), func() { // it could not hear the answer before
		for _, host := range slices.Sorted(maps.Keys(by)) { // in the same order each time
			p.postKeys(self, keys.OfKeysIn(p.s.keys.Asks(p.provider, host), self), by[host])
		}
	})
}

// postKeys has permits of keys written under a key in etcd, with those that wait to be.
func (p *membership) postKeys(self, key string, n protocol.KeyPermits) {
	p.s.post.put(letter{p, self, key, n, n.Windows[0].End(), func(before any) any {
		return n.Join(before.(protocol.KeyPermits))
	}})
}
