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

// take returns up to most keys that want permits.
func (f *keyFunds) take(most int) (all []*keyState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for y := range f.due {
		if len(all) == most {
			break
		}
		all = append(all, y)
		delete(f.due, y)
	}
	return all
}

// KeyUses implements feed.Sink.
func (k *core) KeyUses(most int) (all []escrow.KeyUse, ok bool) {
	s, now := k.segmentNow()
	k.mu.Lock()
	closed := k.mu.closed
	k.mu.Unlock()
	m := &k.keys
	if m.parts == nil || !closed && (s.Keys == nil || len(s.Keys.Budgets) == 0) {
		return nil, false
	}
	if closed {
		for i := range m.parts {
			all = m.giveBack(&m.parts[i], all, most, now, true)
		}
		return all, true
	}
	var later []*keyState
	for _, y := range m.funds.take(most) {
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
	for _, y := range later {
		m.funds.want(k, y, false)
	}
	for len(all) < most {
		part := m.funds.idle(now)
		if part < 0 {
			break
		}
		all = m.giveBack(&m.parts[part], all, most, now, false)
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
		if len(all) >= most {
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
