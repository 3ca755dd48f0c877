package consumer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
)

// This file is what a core takes of long limits, the provider's and those of keys: docs/proof/protocol.md,
// section 14. The source fetches the uses of those of which more is wanted, and returns them.

// keyFunds are the keys of which etcd is asked for more.
type keyFunds struct {
	mu  sync.Mutex
	due map[*keyState]struct{}
	// asleep says that the source looks again only when it is told: Uses has said so. It is guarded by mu.
	asleep bool

	// part of all keys is looked at next for permits to give back, and when. They are of Uses,
	// whose calls do not overlap.
	part int
	at   int64 // monotonic

	withheld atomic.Pointer[withheldKey] // the newest that is known; nil if none is
}

// withheldKey is a long limit of a key of which nothing more is handed out, as after a restore.
type withheldKey struct {
	key string
	use protocol.BudgetUse
}

// noteWithheld notes whether something is withheld of a key, by etcd's latest answer. It reports whether that is over of
// the key of which it was noted last.
func (m *keys) noteWithheld(u *escrow.KeyUse) (over bool) {
	last := m.funds.withheld.Load()
	if why := u.Purse.Withheld(); why != "" {
		m.funds.withheld.Store(&withheldKey{u.Key, protocol.BudgetUse{Budget: u.Budget, Withheld: why, Resumes: u.Purse.Resumes(&u.Budget)}})
		return false
	}
	return last != nil && last.key == u.Key && last.use.Window == u.Window && !u.Away && m.funds.withheld.CompareAndSwap(last, nil)
}

// withheld says of which long limit of a key nothing more is handed out, if there is one; "" if not.
func (k *core) keyWithheld(now clock.Instant) string {
	w := k.keys.funds.withheld.Load()
	if w == nil || max(w.use.End, w.use.Resumes) <= now.Mono+k.clock.Offset() {
		return ""
	}
	return fmt.Sprintf("key %q, and maybe others: %v", w.key, withheldKeyError(k.provider, w.key, &w.use))
}

// restLook is the time in which all keys are looked at for permits to give back.
const restLook = int64(16 * time.Second)

// want has etcd asked for permits of a key: soon if callers lack some, else with others that will, or when the source
// looks next. The key is due until Uses takes it.
func (f *keyFunds) want(k *core, y *keyState, soon bool) {
	f.mu.Lock()
	if f.due == nil {
		f.due = map[*keyState]struct{}{}
	}
	f.due[y] = struct{}{}
	soon = soon || f.asleep
	f.mu.Unlock()
	if soon {
		k.wants()
	}
}

// rests returns in which time the source looks again; with 0 it sleeps until it is told. It does not sleep while a key
// is due, also where keys have no limits at present: once they have some again, no call for that key tells the source,
// since the key wants more already.
func (f *keyFunds) rests(look time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if look == 0 && len(f.due) > 0 {
		look = window.LookAtRest
	}
	f.asleep = look == 0
	return look
}

// shadowedKey counts n permits of a key that shadow mode lets pass, and has etcd asked for them.
// y is nil if there is no room for the key.
func (k *core) shadowedKey(y *keyState, n int64) {
	if k.shadowed.Add(n); y == nil {
		return
	}
	y.hold(&k.keys)
	defer y.mu.Unlock()
	y.wants(k, min(n, y.use.MostOfBudgets()), k.clock.Mono())
}

// wants has etcd asked for the n permits of a key that a call lacks. It does not if this instance could issue none: another
// one owns the key, and nobody lends. y.mu is held.
func (y *keyState) wants(k *core, n, now int64) {
	if !y.borrows() && y.use.Own() == 0 && y.elsewhereAt(k, now) {
		return
	}
	if y.use.Wants(n, now) {
		k.keys.funds.want(k, y, true)
	}
}

// take returns a key that wants permits; nil if none does.
func (f *keyFunds) take() *keyState {
	f.mu.Lock()
	defer f.mu.Unlock()
	for y := range f.due {
		delete(f.due, y)
		return y
	}
	return nil
}

// giveBack hands out the uses of keys of which nothing was used for a while, or of all that end.
func (m *keys) giveBack(most int, now int64, ends bool) (all []escrow.KeyUse) {
	f := &m.funds
	for looks := 0; looks < len(m.parts) && (ends || f.at <= now); looks++ {
		part := &m.parts[f.part]
		part.RLock()
		for _, y := range part.states {
			if len(all) == most {
				break
			}
			y.hold(m)
			all = append(all, y.use.GiveBack(y.key.Name, most-len(all), now, ends)...)
			y.mu.Unlock()
		}
		part.RUnlock()
		if len(all) == most {
			break // the part may have more
		}
		f.part, f.at = (f.part+1)%len(m.parts), max(f.at, now-restLook)+restLook/int64(len(m.parts))
	}
	return all
}

// Uses implements feed.Sink. Before the first proof of a view there are none: nothing is taken by a view that
// is in doubt, and etcd would be asked again only a second later. Prove asks for them.
func (k *core) Uses(most int) (all []escrow.KeyUse, look time.Duration) {
	k.mu.Lock()
	_, proved := k.mu.planner.Proved()
	ends := k.mu.closed
	k.mu.Unlock()
	if !proved && !ends {
		return nil, window.LookAtRest
	}
	all, used, limited := k.gate.Uses(k.clock.Now(), most)
	switch {
	case used:
		look = window.LookUsed
	case limited:
		look = window.LookAtRest
	}
	s, now := k.segmentNow()
	if ends || s.Keys != nil && len(s.Keys.Budgets) > 0 {
		if all = append(all, k.usesOfKeys(s, now, most-len(all), ends)...); look == 0 {
			look = window.LookAtRest
		}
	}
	if len(all) == most {
		k.wants() // the others come next
	}
	return all, k.keys.funds.rests(look)
}

// usesOfKeys hands out the uses of keys.
func (k *core) usesOfKeys(s *window.Segment, now int64, most int, ends bool) (all []escrow.KeyUse) {
	f := &k.keys.funds
	var later []*keyState
	for !ends && len(all) < most {
		y := f.take()
		if y == nil {
			break
		}
		y.hold(&k.keys)
		if !y.gone {
			y.adopt(k, s, now)
			all = append(all, y.use.TakeUse(y.key.Name, most-len(all), now)...)
			if y.use.WantsMore() { // etcd is asked again later, or there is no room
				later = append(later, y)
			}
		}
		y.mu.Unlock()
	}
	for _, y := range later {
		f.want(k, y, false)
	}
	return append(all, k.keys.giveBack(most-len(all), now, ends)...)
}

// Heard implements feed.Sink.
func (k *core) Heard(limit string, total escrow.Total, revision int64) {
	k.forgetRefusals()
	k.gate.Heard(k.clock.Now(), limit, total, revision)
}

// Restored implements feed.Sink.
func (k *core) Restored() {
	k.gate.Restored(k.clock.Now())
	for i := range k.keys.parts {
		part := &k.keys.parts[i]
		part.RLock()
		for _, y := range part.states {
			y.hold(&k.keys)
			y.use.Restored()
			y.mu.Unlock()
		}
		part.RUnlock()
	}
}

// Fund implements feed.Sink.
func (k *core) Fund(all []escrow.KeyUse) {
	for i := range all {
		u := &all[i]
		if u.Key == "" {
			k.forgetRefusals()
			k.gate.Fund(k.clock.Now(), *u)
			k.noteWithheld(u)
			continue
		}
		y, s, now := k.keys.lock(k, u.Key)
		if y == nil {
			continue
		}
		y.use.Fund(*u, now)
		y.pay(k, s, now)
		if y.use.WantsMore() { // etcd did not answer, or others came first at each try
			k.keys.funds.want(k, y, y.use.AsksAtOnce(now))
		}
		k.keys.lines.brought(k, y)
		if k.keys.noteWithheld(u) {
			k.log().Info("nothing is withheld any more", "key", u.Key, "limit", u.String())
		}
	}
}
