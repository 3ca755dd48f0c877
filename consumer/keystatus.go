package consumer

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/plans"
)

// Limits returns the use of each limit of the key, shortest window first. The provider's own
// limits are not among them. It returns none if the provider has no limits by key.
func (y Key) Limits() (all []LimitUse) {
	y.look(func(state *keyState, _ *plans.Keys, _ int64) {
		for _, u := range y.limiter.core.keyUses(state, 1) {
			if !u.Free() {
				all = append(all, limitUse(&u))
			}
		}
	})
	return all
}

// keyUses returns the use of each limit of a key. The caller has the state's lock.
func (k *core) keyUses(y *keyState, n int64) []window.LimitUsage {
	all := y.use.Uses(n)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range all {
		if u := &all[i]; u.Budget == nil {
			u.Limit.Limit, _ = k.mu.planner.KeyTotal(y.key, u.Window)
		}
	}
	return all
}

// delay is Limiter.Delay for n permits of the key. It does not look at the callers that wait
// for the key.
func (y Key) delay(n int64) time.Duration {
	l := y.limiter
	if n <= 0 {
		return 0
	}
	least, withheld := Forever, false
	y.look(func(state *keyState, keys *plans.Keys, now int64) {
		withheld = state.use.Withheld(n, 0)
		if left := state.use.Left(); left >= n && state.line.Ahead(y.limiter.class) == 0 {
			least = 0
		} else if at, known := state.when(y.limiter.core, keys, n, now); known {
			least = time.Duration(at - now)
		}
	})
	if withheld {
		return Forever
	}
	s, now := l.core.segmentNow()
	if l.core.tooLarge(s.Keys, y.state.key, n, now) > 0 {
		return Forever
	}
	return max(least, l.Delay(n))
}

// look calls f with the key's state at the monotonic instant now, its lock held and its account by the windows keys,
// which run. A key that is not in use is not put into use: f then gets a state that has counted nothing. f is not called if
// keys have no limits, or no key can have the name.
func (y Key) look(f func(state *keyState, keys *plans.Keys, now int64)) {
	k := y.limiter.core
	if k.gate.Segment().Keys == nil || protocol.ValidateKey(y.state.key.Name) != nil {
		return
	}
	state, s, now := k.keys.lock(k, y.state.key.Name)
	if state == nil {
		state = &keyState{key: y.state.key}
		s, now = state.lock(k)
	}
	defer state.mu.Unlock()
	if s.Keys != nil {
		f(state, s.Keys, now)
	}
}
