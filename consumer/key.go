package consumer

import (
	"context"
	"time"

	"github.com/quotient-limiter/quotient/internal/window"
)

// Key issues permits of one key of a provider, such as an account or a tenant, that has
// limits of its own: see quota.Keys. Each permit counts under the provider's limits and the
// key's; a call gets both or neither. A Key keeps nothing open and needs no Close: copy it,
// make one for each call, or keep one, which saves a look-up by name. Its methods are safe for
// concurrent use.
type Key struct {
	limiter *Limiter
	state   *keyState // it may be gone: then its next is in use, or was
}

// Key returns the key with a name: 1 to 256 bytes of valid UTF-8 without control
// characters. Calls with another name get ErrInvalid. Its calls have the limiter's class.
func (l *Limiter) Key(name string) Key {
	y := Key{limiter: l}
	if l.core.gate.Segment().Keys != nil {
		y.state = l.core.keys.known(name)
	}
	if y.state == nil { // a call puts it into use
		y.state = newKeyState(name)
	}
	return y
}

// Acquire is Limiter.Acquire for one permit of the key. Callers of one key are served by class,
// and of one class in the order in which they came. They wait first for the key and then, in the
// limiter's queue, for the provider: so a key that is spent holds up no other.
func (y Key) Acquire(ctx context.Context, maxWait time.Duration) error {
	return y.acquire(ctx, 1, maxWait, nil)
}

// Take is Acquire for n permits, all or none, and returns the Permit; n is at least 1. The
// Permit's window ends with the first of the provider's and the key's. Release gives back
// both, and Settle counts for both.
func (y Key) Take(ctx context.Context, n int64, maxWait time.Duration) (Permit, error) {
	var p Permit
	err := y.acquire(ctx, n, maxWait, &p)
	return p, err
}

// TryAcquire issues one permit if one is available. It never waits.
func (y Key) TryAcquire() bool {
	l := y.limiter
	if l.bad || l.all.closed.Load() {
		return false
	}
	k := l.core
	switch t := k.tryKey(y, 1, all, nil); t.found {
	case granted:
		return true
	case providerLacks:
		if r := k.refusedIn(t.segment, 1, l.class); r != nil {
			l.refused(r, 1)
			return false
		}
		return y.acquire(context.Background(), 1, 0, nil) == nil
	case keyLacks:
		if t.segment.Shadow {
			k.shadowedKey(t.state, 1)
			return true
		}
	}
	return false
}

// TryTake issues the permits that both the key and the provider have available, at most n;
// the Permit's N may be 0, and is 0 for n <= 0, after Close, and for a name that no key can
// have. In shadow mode N is n. It never waits.
func (y Key) TryTake(n int64) (p Permit) {
	l := y.limiter
	if n <= 0 || l.bad || l.all.closed.Load() {
		return p
	}
	k := l.core
	t := k.tryKey(y, n, upTo, &p)
	lacking := n - p.n
	switch {
	case lacking == 0 || t.found == unusable || t.found == tooMany:
		return p
	case t.segment.Shadow:
		k.shadowedKey(t.state, lacking)
		p.n = n
		if p.of == nil {
			p = l.passed(t.segment, n)
		}
	case t.found == providerLacks:
		k.gate.Want(k.clock.Now()) // others may lend
		l.refused(k.refuseOne(l.class), lacking)
	}
	return p
}

// passed is the permit of a call that shadow mode lets pass.
func (l *Limiter) passed(s *window.Segment, n int64) Permit {
	g := s.Grant
	g.Epoch = 0
	return l.permit(g, n, 0)
}
