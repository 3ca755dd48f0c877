package consumer

import (
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/window"
)

// This file is what a core takes of keys' long limits: docs/protocol.md, section 16. The source
// fetches the uses of keys that want more, and returns them.

// keyFunds are the keys of which etcd is asked for more, and those of which permits were taken.
type keyFunds struct {
	mu   sync.Mutex
	due  map[*keyState]struct{}
	held []heldKey // the first one is looked at first
}

// heldKey is a key of which permits were taken. It is looked at from time to time, for permits
// to give back.
type heldKey struct {
	state *keyState
	at    int64 // monotonic
}

// heldLook is the time between two looks at a held key.
const heldLook = int64(16 * time.Second)

// want has etcd asked for permits of a key: soon if callers lack some, else with others that
// will.
func (f *keyFunds) want(k *core, y *keyState, soon bool) {
	f.mu.Lock()
	if f.due == nil {
		f.due = map[*keyState]struct{}{}
	}
	f.due[y] = struct{}{}
	f.mu.Unlock()
	if soon { // once something was taken, the source looks each second
		k.wants()
	}
}

// shadowedKey counts n permits of a key that shadow mode lets pass, and has etcd asked for them.
// y is nil if there is no room for the key.
func (k *core) shadowedKey(y *keyState, n int64) {
	if k.shadowed.Add(n); y == nil {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.use.Wants(min(n, y.use.MostOfBudgets()), k.clock.Mono()) {
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

// hold has a key looked at later for permits to give back. The caller has the state's lock.
func (f *keyFunds) hold(y *keyState, now int64) {
	if !y.held {
		y.held = true
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = append(f.held, heldKey{y, now + heldLook})
	}
}

// nextHeld takes out the next key to look at by the monotonic instant; nil if there is none.
func (f *keyFunds) nextHeld(by int64) (y *keyState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.held) > 0 && f.held[0].at <= by {
		y, f.held = f.held[0].state, f.held[1:]
	}
	return y
}

// KeyUses implements feed.Sink.
func (k *core) KeyUses(most int) (all []escrow.KeyUse, ok bool) {
	s, now := k.segmentNow()
	f := &k.keys.funds
	k.mu.Lock()
	ends := k.mu.closed
	k.mu.Unlock()
	if !ends && (s.Keys == nil || len(s.Keys.Budgets) == 0) {
		return nil, false
	}
	var later []*keyState
	for !ends && len(all) < most {
		y := f.take()
		if y == nil {
			break
		}
		y.mu.Lock()
		if !y.gone {
			y.adopt(k, s.Keys, now)
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
	by := now
	if ends {
		by = window.Forever
	}
	for len(all) < most {
		y := f.nextHeld(by)
		if y == nil {
			break
		}
		y.mu.Lock()
		y.held = false
		back := y.use.GiveBack(y.key.Name, most-len(all), now, ends)
		if all = append(all, back...); !ends && len(back) == 0 && !y.use.Over(s.Keys) { // else FundKeys holds it
			f.hold(y, now)
		}
		y.mu.Unlock()
	}
	if len(all) == most {
		k.wants() // the others come next
	}
	return all, true
}

// FundKeys implements feed.Sink.
func (k *core) FundKeys(all []escrow.KeyUse) {
	for i := range all {
		u := &all[i]
		y := k.keys.known(u.Key)
		if y == nil {
			continue
		}
		now := k.clock.Mono()
		y.mu.Lock()
		y.use.Fund(*u, now)
		k.keys.funds.hold(y, now)
		again := y.use.WantsMore() // etcd did not answer
		y.mu.Unlock()
		if again {
			k.keys.funds.want(k, y, false)
		}
		k.keys.waiting.serve(k, y)
	}
}
