package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// Key issues permits of one key of a provider, such as an account or a tenant, that has
// limits of its own: see quota.Keys. Each permit counts under the provider's limits and the
// key's; a call gets both or neither. A Key keeps nothing open and needs no Close: copy it,
// make one for each call, or keep one, which saves a look-up by name. Its methods are safe for
// concurrent use. Make one with Limiter.Key; the zero Key cannot be used.
type Key struct {
	limiter *Limiter
	state   *keyState // it may be gone: calls go by its latest
}

// Key returns the key with a name: 1 to 256 bytes of valid UTF-8 without control
// characters. Where keys have limits, calls with another name get ErrInvalid. The Key's calls have the
// limiter's class and label.
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
// and of one class in the order in which they came, unless smaller calls pass a larger one: see
// Limiter.Acquire. They wait first for the key and then, in the limiter's queue, for the provider: so
// a key that is spent holds up no other. If a window of the key ends while a caller waits for the
// provider, it may have to wait for the key again, behind the others.
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
// the Permit's N may be 0. It is 0 for n <= 0, after Close, where keys have no limits, and for a name
// that no key can have. Otherwise, in shadow mode, N is n. It never waits.
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

// acquire takes n permits of the key and of the provider, all or none. It fills in p, unless that is nil. A call
// that does not get them at once goes on in keycall.go.
func (y Key) acquire(ctx context.Context, n int64, maxWait time.Duration, p *Permit) error {
	l := y.limiter
	if n <= 0 || l.bad || ctx == nil {
		return l.invalid(ctx, n)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.all.closed.Load() {
		return l.answer(queue.Closed, n)
	}
	if t := l.core.tryKey(y, n, wayOf(maxWait), p); t.found != granted {
		return y.wait(ctx, n, maxWait, t, p)
	}
	return nil
}

// keyState is what this instance knows and counts of one key. While the key is in use, keys (keys.go) has the
// state by its name.
type keyState struct {
	key share.Key

	// next is the state that was in use when a Key that has this one last looked the name up: another one, or this
	// one itself. It may be forgotten by now. It is nil before the first look.
	next atomic.Pointer[keyState]

	front window.Front // permits that calls take without mu

	mu      sync.Mutex     // guards the fields below; hold takes it
	use     window.Account // counts all permits of the key while mu is held; else some are in front
	gone    bool           // not in use: forgotten (then use has nothing left), or never called for; another state may be in use for the name
	guest   bool           // in use only because other instances have asked to borrow; no call of this one came yet
	issued  uint8          // permits that the busiest keys do not count yet
	refused uint8          // permits refused that they do not count yet
	came    bool           // permits may have come since the line was served; false if nobody waits
	judge   bool           // calls may wait in vain: it is not known yet whether what is reserved comes back
	line    *queue.Queue   // of the calls that wait for the key; nil if there is none
	owner   *keyOwner      // as last told; nil until somebody asks for it
}

// hold takes mu and shuts the front. Until mu is released, use counts every permit of the key. mu is never taken in
// another way where the counts of use are looked at.
func (y *keyState) hold(m *keys) {
	y.mu.Lock()
	issued, refused := y.front.Shut(&y.use)
	if issued != 0 || refused > 0 {
		y.note(m, issued, refused)
	}
	if m.quiet.Load() == y {
		m.refused.Add(refused)
		m.quiet.Store(nil)
	}
}

// open lays some permits into the front, for calls that come after mu is released: at most as many as the busiest
// keys need not hear of yet. mu is held. Since it was taken, a segment with the account's windows has issued permits,
// and afterIssue was called: calls of the front do not look whether other instances are to be asked.
func (y *keyState) open() {
	if y.line == nil { // otherwise a newcomer would overtake those that wait
		y.front.Open(&y.use, noteBatch-int64(y.issued)-int64(y.refused))
	}
}

// crowded has permits of the provider back the front, since y's calls crowd on it, and lays more of the key's into it, also
// more than the busiest keys need not hear of. It does not wait for a lock. The caller holds none.
func (y *keyState) crowded(k *core, s *window.Segment) {
	k.gate.Back(s, &y.front)
	if y.mu.TryLock() { // the front stays open, which hold would shut
		if issued := y.front.More(&y.use); issued != 0 {
			y.note(&k.keys, issued, 0)
		}
		y.mu.Unlock()
	}
}

// found is the outcome of an attempt to take permits of a key.
type found uint8

const (
	granted       found = iota // all n
	keyLacks                   // the key has too few, others wait for it, or the call is large and is to go by the line
	providerLacks              // the key has enough, but the provider too few
	unusable                   // there is no such key: keys have no limits, or the name is none
	tooMany                    // there are too many keys to put it into use; in shadow mode that is keyLacks, without a state
	moved                      // none: the segment is over, and the attempt is to be made by the next one
)

// keyTry is an attempt to take permits of a key. It is as small as this so that it is returned in registers.
type keyTry struct {
	state   *keyState       // in use for the key; nil if there is none
	segment *window.Segment // by which it was decided
	found   found
}

// way says what an attempt for n permits is to take, and what becomes of a call that gets too few.
type way uint8

const (
	all     way = iota // n or none; the call is over
	upTo               // as many as there are, at most n; the call is over
	reserve            // n or none; if only the provider has too few, those of the key are reserved for the call
	queues             // the same for a call that may wait, which does so in the key's line if it is large
	trial              // n or none, and none for a large call; nothing is reserved or refused, and the call goes on
)

// wayOf returns the way of a call that may wait for maxWait.
func wayOf(maxWait time.Duration) way {
	if maxWait > 0 {
		return queues
	}
	return reserve
}

// tryKey takes n permits of a key and as many of the provider. It fills in p, unless that is nil. What the key lacks
// is counted as refused in the ways all and upTo; in the others the call may still get it. A name for which there is
// no room is counted in every way but trial. In shadow mode neither is counted.
//
// The provider's permits are in the gate's segment. While the segment gives some, no later plan is in force, so the
// key may have what the segment's Keys allow it. Most calls take the key's permits of its front, or are refused by
// it. After a new plan, or where the front has too few, a call takes the key's lock. The first call that has it
// after a new plan brings the account to that (adopt). A call that has the lock keeps it while it takes the
// provider's permits, so that the account is charged for what is issued, and for nothing else.
//
// A goroutine begins with a small stack, and copies it to a larger one when it calls too deep. So what most calls do
// not need stands in functions of its own: the frame of the way to the front stays small.
func (k *core) tryKey(key Key, n int64, how way, p *Permit) keyTry {
	s, now := k.segmentNow()
	if s.Keys == nil {
		return keyTry{segment: s, found: unusable}
	}
	of, y := &key.limiter.origin, key.state.latest()
	part, v := y.front.Take(s, now, n, of.class, how < reserve)
	switch v {
	case window.Taken, window.Crowded:
		if v == window.Crowded {
			y.crowded(k, s)
		}
		of.counted(n)
		if p != nil {
			p.ofFront(of, s, y, n, part)
		}
		return keyTry{y, s, granted}
	case window.Refused:
		if part.Quiet() {
			of.labelled(0, n)
		} else {
			of.lacksKey(n)
		}
		return keyTry{y, s, keyLacks}
	case window.Torn:
		k.uncharge(y, part, s.Keys, n)
	}
	return of.tryHeld(key.state, s, now, n, how, p)
}

// latest returns the state that was last known to be in use for the key's name: next or, before a look, this one.
func (y *keyState) latest() *keyState {
	if later := y.next.Load(); later != nil {
		return later
	}
	return y
}

// ofFront fills in p for n permits that were taken of a segment and of a key's front, whose state was part.
func (p *Permit) ofFront(of *origin, s *window.Segment, y *keyState, n int64, part window.Part) {
	*p = of.permit(s.Grant, n, n)
	start, end := part.Span(&s.Keys.Windows)
	p.ofKey(y, start, end, part.Epoch())
}

// tryHeld is tryKey for a call that the front has not decided. It puts the key into use if it is not. known is the
// state that the Key has, and s the segment that ran at the monotonic instant now.
func (o *origin) tryHeld(known *keyState, s *window.Segment, now, n int64, how way, p *Permit) (t keyTry) {
	k := o.core
	y := known.latest()
	if how == upTo && s.LeftFor(o.class) < n {
		k.gate.Unback(k.clock.Now(), s)
	}
	for {
		t.segment = s
		if s.Keys == nil {
			t.found = unusable
			return t
		}
		y.hold(&k.keys)
		if y.gone || y.guest {
			y.mu.Unlock()
			switch y, t.found = k.keys.find(known.key.Name, known, s.Keys, false); {
			case y != nil:
				known.next.Store(y)
				continue
			case t.found == tooMany && s.Shadow:
				t.found = keyLacks
			case t.found == tooMany && how != trial:
				o.lacksKey(n)
			}
			return t
		}
		t.state = y
		var got int64
		if t.found, got = o.tryAccount(y, s, now, n, how); got > 0 {
			o.counted(got)
			if p != nil {
				p.ofAccount(o, s, y, got)
			}
		}
		y.mu.Unlock()
		if t.found != moved {
			return t
		}
		s, now = k.segmentNow()
	}
}

// tryAccount is tryKey while y.mu is held, for a key in use. It returns how many permits were taken. Where it has
// issued some it opens the front for the next calls, and where the key has none left it has the front refuse them.
func (o *origin) tryAccount(y *keyState, s *window.Segment, now, n int64, how way) (f found, got int64) {
	k := o.core
	if y.use.Windows() != &s.Keys.Windows || y.use.Debt() > 0 {
		y.adopt(k, s, now)
	}
	if s.Open(now) {
		y.lendAtEdge(k, s, now)
	}
	f = keyLacks
	switch left := min(n, y.room(k, s, now, o.class)); {
	case left == 0, left < n && how != upTo, how >= queues && y.large(k, n):
		if !s.Open(now) { // the next one may leave more, and pay a debt that this one did not
			return moved, 0
		}
	case how == upTo:
		if got = s.TakeUpTo(now, left, o.class); got == 0 && !s.Open(now) {
			return moved, 0
		}
		if got < left {
			f = providerLacks
		} else if got == n {
			f = granted
		}
	case (how < queues || !s.Leaves(n)) && s.Take(now, n, o.class): // one that is large for the provider goes by its queue
		got, f = n, granted
	case !s.Open(now): // the key's bounds may be others now
		return moved, 0
	default:
		if f = providerLacks; how == reserve || how == queues {
			y.use.Reserve(n)
		}
	}
	if got > 0 {
		y.use.Charge(got)
		y.use.Called(got, o.class, false)
		y.note(&k.keys, got, 0)
		y.afterIssue(k, got, now)
		y.open()
	}
	if f == keyLacks && how < reserve && !s.Shadow {
		o.refusedKey(y, n-got, how, now)
		quiet := y.use.RefusedAtOnce() && k.keys.quiet.CompareAndSwap(nil, y)
		y.front.Refuse(&y.use, quiet) // others were asked for some
	}
	return f, got
}

// room returns how many permits of the key a call of class c gets that comes now, by the segment s at the monotonic
// instant now. Permits that have come since the line was served go to the line first. y.mu is held.
func (y *keyState) room(k *core, s *window.Segment, now int64, c queue.Class) int64 {
	if y.came && s.Open(now) {
		k.keys.lines.serveHeld(k, y, s, now)
	}
	if y.line.Ahead(c) == 0 {
		return y.use.Left()
	}
	return y.newcomer(k, now, c)
}

// newcomer is the part of room for a key in whose line others wait. It is apart because of its frame, as tryKey says.
func (y *keyState) newcomer(k *core, now int64, c queue.Class) int64 {
	l := y.lineNow(k, now)
	return l.Newcomer(c)
}

// segmentNow returns the segment that runs, and the monotonic instant. If the gate's segment is over it has the gate
// go on to the next one.
func (k *core) segmentNow() (s *window.Segment, now int64) {
	s = k.gate.Segment()
	if s.Strict {
		if at := k.clock.Now(); s.Open(at.Mono) && s.WallValid(at) {
			return s, at.Mono
		}
	} else if now = k.clock.Mono(); s.Open(now) {
		return s, now
	}
	at := k.clock.Now()
	s, _, _ = k.gate.TakeUpTo(at, 0, queue.Default)
	k.stepAside()
	return s, at.Mono
}

// adopt brings the account to the windows of keys of a segment, with the key's bounds there, and pays a debt. There may
// be 100,000 keys, so the gate does not do this for them at each new plan: the next call does, or whoever else needs the
// bounds of the present. Until then the rest goes by the windows that the account has. y.mu is held.
func (y *keyState) adopt(k *core, s *window.Segment, now int64) {
	if keys := s.Keys; y.use.Windows() != &keys.Windows {
		y.enter(k, keys, now)
	}
	y.pay(k, s, now)
}

// pay pays a debt of the key, as far as its bounds in a segment allow, which was open at the monotonic instant now. A
// payment is a use. So nothing is paid by a segment that is over or sealed, whose bounds may not be in force, nor by one
// whose proof is over: others may have this instance's share by then. y.mu is held.
func (y *keyState) pay(k *core, s *window.Segment, now int64) {
	if y.use.Debt() == 0 || s.Keys == nil || s.Stale || y.use.Windows() != &s.Keys.Windows || !s.Open(now) {
		return
	}
	if y.use.Pay() > 0 && k.keys.booked != nil {
		k.keys.booked(y.key.Name, y.use.Booked())
	}
}

// enter is the part of adopt that moves the account to other windows.
func (y *keyState) enter(k *core, keys *plans.Keys, now int64) {
	y.tellBusiest(&k.keys)
	k.mu.Lock()
	planner := &k.mu.planner
	y.use.Adopt(&keys.Windows,
		func(w quota.Window) int64 { return planner.Bound(y.key, w, now).Permits },
		func() []protocol.Budget { return planner.KeyBudgets(y.key, now) })
	k.mu.Unlock()
	y.came = y.line != nil
}

// lock is hold and adopt: it brings the account to the windows that run. If one of them has just begun it lends to
// others what is due at its start. It returns the segment that runs, whose bounds are in force, and the monotonic
// instant. If keys have no limits the account stays as it is.
func (y *keyState) lock(k *core) (s *window.Segment, now int64) {
	for {
		s, now = k.segmentNow()
		y.hold(&k.keys)
		if s.Keys == nil {
			return s, now
		}
		if y.adopt(k, s, now); s.Open(now) {
			y.lendAtEdge(k, s, now)
			return s, now
		}
		y.mu.Unlock() // the key's bounds may be others now
	}
}

// ofAccount fills in p for n permits that were taken of a segment and have just been charged to a key's account. y.mu
// is held.
func (p *Permit) ofAccount(of *origin, s *window.Segment, y *keyState, n int64) {
	*p = of.permit(s.Grant, n, n)
	p.bookedIn(y)
}

// bookedIn makes a permit of the provider one of a key too, whose account has just been charged for it. y.mu is held.
func (p *Permit) bookedIn(y *keyState) {
	start, end := y.use.Common()
	p.ofKey(y, start, end, y.use.Epoch())
}

// ofKey makes a permit of the provider one of a key too, whose windows all run from start until end, in corrected
// wall time. The permit's window is then what both have in common.
func (p *Permit) ofKey(y *keyState, start, end int64, epoch uint32) {
	p.grant.Start, p.grant.End = max(p.grant.Start, start), min(p.grant.End, end)
	p.key, p.keyEpoch = y, epoch
}

// uncharge gives n permits back to a key that were taken of its front in the state part: the segment gave none,
// as it had too few or had ended.
func (k *core) uncharge(y *keyState, part window.Part, keys *plans.Keys, n int64) {
	s, now := y.lock(k)
	y.use.Uncharge(n, part.Epoch(), &keys.Windows)
	y.pay(k, s, now)
	k.keys.busiest.Add(y.key.Name, -n, 0)
	k.keys.lines.brought(k, y)
}

// correct books with the key that n permits, issued in an epoch of its account, cost actual permits. If they cost
// less, the rest is given back, unless a window of theirs is over. large says that they were issued to a call that is
// large for the key.
func (k *core) correct(y *keyState, epoch uint32, n, actual int64, large bool) {
	if actual < n && !large && y.front.Return(k.gate.Segment(), n-actual, epoch) {
		return // nobody waits for the key, and it has no debt, or the front would be shut
	}
	s, now := y.lock(k)
	for y.gone { // its windows are over, but a debt counts in later ones
		y.mu.Unlock()
		if actual <= n {
			k.keys.busiest.Add(y.key.Name, actual-n, 0)
			return
		}
		y = k.keys.add(y.key.Name, nil, nil, false) // even beyond the bound on keys in use
		s, now = y.lock(k)
	}
	if actual > n {
		y.use.Owe(actual - n)
	} else {
		y.use.Refund(n-actual, epoch, large)
		y.note(&k.keys, actual-n, 0)
	}
	if y.pay(k, s, now); s.Keys != nil {
		y.owes(k, now)
	}
	k.keys.lines.brought(k, y)
}

// passed returns the permit of a call that shadow mode lets pass: none of n counts.
func (l *Limiter) passed(s *window.Segment, n int64) Permit {
	g := s.Grant
	g.Epoch = 0
	return l.permit(g, n, 0)
}
