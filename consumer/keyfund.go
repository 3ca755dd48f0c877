package consumer

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// This file is what a core takes of keys' long limits: docs/protocol.md, section 16. The source
// fetches the uses of keys that want more, and returns them.

// keyFunds are the keys of which etcd is asked for more.
type keyFunds struct {
	mu    sync.Mutex
	due   map[*keyState]struct{}
	part  int   // the next of keys.parts in which idle keys give back
	swept int64 // monotonic, when the one before was looked at
}

// mostOfKey bounds the uses of one key: it has so many limits at most.
const mostOfKey = 8

// idleLook is the time between two looks at a part of the keys for idle ones: at all of them it
// is 64 times that.
const idleLook = int64(250 * time.Millisecond)

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

// wantsFunds has etcd asked for n permits of a key whose call shadow mode has let pass; y is nil
// if there is no room for its key.
func (k *core) wantsFunds(y *keyState, n int64) {
	if y == nil {
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

// waits reports whether keys want permits.
func (f *keyFunds) waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.due) > 0
}

// KeyUses implements feed.Sink.
func (k *core) KeyUses(most int) (all []escrow.KeyUse, ok bool) {
	s, now := k.segmentNow()
	m := &k.keys
	k.mu.Lock()
	closed, parts := k.mu.closed, m.parts // set with mu held
	k.mu.Unlock()
	if parts == nil || !closed && (s.Keys == nil || len(s.Keys.Budgets) == 0) {
		return nil, false
	}
	if closed {
		for i := range parts {
			all = m.giveBack(&parts[i], all, most, now, true)
		}
		return all, true
	}
	var later []*keyState
	for len(all) <= most-mostOfKey {
		y := m.funds.take()
		if y == nil {
			break
		}
		y.mu.Lock()
		if !y.gone {
			y.adopt(k, s.Keys, now)
			all = append(all, y.use.TakeUse(y.key.Name, now)...)
			if y.use.WantsMore() { // etcd is asked again later
				later = append(later, y)
			}
		}
		y.mu.Unlock()
	}
	if m.funds.waits() {
		k.wants() // the others come next
	}
	for _, y := range later {
		m.funds.want(k, y, false)
	}
	for len(all) <= most-mostOfKey {
		part := m.funds.idle(now)
		if part < 0 {
			break
		}
		all = m.giveBack(&parts[part], all, most, now, false)
	}
	return all, true
}

// idle returns the next part of the keys to look at for idle ones; negative if none is due.
func (f *keyFunds) idle(now int64) int {
	const parts = len(keys{}.parts)
	f.mu.Lock()
	defer f.mu.Unlock()
	if now-f.swept < idleLook {
		return -1
	}
	f.swept = max(f.swept, now-int64(parts)*idleLook) + idleLook
	f.part = (f.part + 1) % parts
	return f.part
}

// giveBack adds the uses of idle keys of a part; of all if the source ends.
func (m *keys) giveBack(part *keyPart, all []escrow.KeyUse, most int, now int64, ends bool) []escrow.KeyUse {
	part.RLock()
	states := slices.Collect(maps.Values(part.states))
	part.RUnlock()
	for _, y := range states {
		if len(all) > most-mostOfKey {
			return all
		}
		y.mu.Lock()
		if !y.gone {
			all = append(all, y.use.GiveBack(y.key.Name, now, ends)...)
		}
		y.mu.Unlock()
	}
	return all
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
		again := y.use.WantsMore() // etcd did not answer
		y.mu.Unlock()
		if again {
			k.keys.funds.want(k, y, false)
		}
		k.keys.waiting.serve(k, y)
	}
}
