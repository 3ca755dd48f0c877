package consumer

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/consumer/internal/tally"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// keys are a provider's keys in use. A key has no timer and no goroutine of its own.
//
// A state is forgotten only when nothing of it counts any more: a new one then means the
// same. New names cause that. A part of the map forgets when it has twice as many states as
// it kept the last time. All parts do when the bound is reached, once in a window and after
// each sixteenth of the bound in new names.
//
// Lock order: sweeping, then a part's, then a state's, then lines.mu or core.mu. Nothing that holds
// a state's calls the gate, and nothing that holds the gate's serves a line.
type keys struct {
	parts   [64]keyPart
	seed    maphash.Seed
	inUse   atomic.Int64 // by this instance's calls; keys.most bounds them
	guests  atomic.Int64 // only lent to others; as many at most
	refused atomic.Int64 // permits refused for want of a key's, or of room for it
	lent    atomic.Int64 // permits, to other instances
	got     atomic.Int64 // permits borrowed from them
	asked   atomic.Int64 // times that others were asked for permits of a key
	latest  *plans.Keys  // planned; guarded by core.mu
	lines   keyLines
	asks    keyAsks
	funds   keyFunds
	busiest tally.Busiest
	booked  func(key string, uses []window.Use) // see core.Trace; nil if nobody traces

	sweeping sync.Mutex
	swept    *plans.Keys  // when all parts were looked at; guarded by sweeping
	fresh    atomic.Int64 // new names since then, also those refused
}

// begin makes the keys of a new core.
func (m *keys) begin(k *core) {
	m.seed, m.latest = maphash.MakeSeed(), plans.Unheard
	m.lines.alarm.Begin(func() { m.lines.serveAll(k) })
	m.asks.alarm.Begin(func() { m.asks.lookAll(k) })
}

// planned has those that wait look again if keys may have more. The gate's lock is held.
func (m *keys) planned(k *core, plan *plans.Keys, now int64) {
	if plan != m.latest {
		m.latest = plan
		if m.lines.length.Load() > 0 {
			m.lines.alarm.Set(k.clock, now)
		}
	}
}

// close has all that wait look again: the gate is closed.
func (m *keys) close(k *core) {
	m.lines.alarm.Stop()
	m.asks.alarm.Stop()
	m.lines.serveAll(k)
}

type keyPart struct {
	sync.RWMutex
	states map[string]*keyState
	look   int // at all states when there are so many
}

// leastLook is the size of a part below which nothing is forgotten but at the bound.
const leastLook = 64

// keyState is one key in use.
type keyState struct {
	key share.Key

	// next is a later state of the name, for a Key that has this one; nil if none is known.
	next atomic.Pointer[keyState]

	front window.Front // what calls can have without mu

	mu      sync.Mutex     // hold takes it
	use     window.Account // counts all permits while mu is held
	gone    bool           // forgotten, or never in use: another state may have its name
	guest   bool           // only others want it, until a call of this instance does
	issued  uint8          // permits that the busiest keys do not count yet
	refused uint8          // the same of refused ones
	line    *queue.Queue   // nil if nobody waits for the key
	owner   *keyOwner      // nil until somebody asks for it
}

// found is the outcome of an attempt to take permits of a key.
type found uint8

const (
	granted       found = iota // all n
	keyLacks                   // the key has too few, or others wait for it
	providerLacks              // the key has enough, but the provider too few
	unusable                   // there is no such key: keys have no limits, or the name is none
	tooMany                    // there are too many keys to put it into use
	moved                      // it is to be made again: the segment is over
)

// keyTry is an attempt to take permits of a key. It is kept in registers, as long as it is this
// small.
type keyTry struct {
	state   *keyState
	segment *window.Segment // by which it was decided
	found   found
}

// way is what to take of n permits.
type way uint8

const (
	all     way = iota // n or none
	upTo               // as many as there are
	reserve            // n, or keep those of the key if the provider has too few
	queues             // the same for a call that may wait: if it is large it goes by the key's line
)

// tryKey takes n permits of a key and of the provider. It fills in p, if that is not nil. What the key
// lacks is counted as refused, but for reserve and queues: there the caller may wait.
//
// Most calls get them from the state's front, or are refused by it. The others hold the state's lock while
// they take the provider's, so the key is charged for what is issued and nothing else. If a segment gives
// permits, the bounds of its Keys are in force.
//
// A goroutine begins with a small stack, and copies it to a larger one when it calls too deep. So what most
// calls do not need stands in functions of its own: their frames stay out of the way to the front.
func (k *core) tryKey(key Key, n int64, how way, p *Permit) keyTry {
	s, now := k.segmentNow()
	if s.Keys == nil {
		return keyTry{segment: s, found: unusable}
	}
	of, y := &key.limiter.origin, key.state.latest()
	part, v := y.front.Take(s, now, n, of.class, how < reserve)
	switch v {
	case window.Taken:
		of.counted(n)
		if p != nil {
			p.ofFront(of, s, y, n, part)
		}
		return keyTry{y, s, granted}
	case window.Refused:
		of.lacksKey(n)
		return keyTry{y, s, keyLacks}
	case window.Torn:
		k.uncharge(y, part, s.Keys, n)
	}
	return of.tryHeld(key.state, s, now, n, how, p)
}

// latest returns the state that is in use for the name, as far as this one knows.
func (y *keyState) latest() *keyState {
	if later := y.next.Load(); later != nil {
		return later
	}
	return y
}

// ofFront makes p a permit of n that were taken of a key's front, by a segment.
func (p *Permit) ofFront(of *origin, s *window.Segment, y *keyState, n int64, part window.Part) {
	*p = of.permit(s.Grant, n, n)
	start, end := part.Span(&s.Keys.Windows)
	p.ofKey(y, start, end, part.Epoch())
}

// tryHeld is tryKey where the front does not do. known is the state that the Key has, and s the segment that
// ran at the instant now.
func (o *origin) tryHeld(known *keyState, s *window.Segment, now, n int64, how way, p *Permit) (t keyTry) {
	k := o.core
	for {
		t.segment = s
		if s.Keys == nil {
			t.found = unusable
			return t
		}
		y := known.latest()
		y.hold(&k.keys)
		if y.gone || y.guest {
			y.mu.Unlock()
			switch y, t.found = k.keys.find(known.key.Name, known, s.Keys, false); {
			case y != nil:
				if y != known {
					known.next.Store(y)
				}
				continue
			case t.found == tooMany && s.Shadow:
				t.found = keyLacks
			case t.found == tooMany:
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

// tryAccount is tryKey under the state's lock. It returns how many permits were taken, and moved if another
// segment may have more. Some of what it leaves lies in the front then, or the front refuses the next calls.
func (o *origin) tryAccount(y *keyState, s *window.Segment, now, n int64, how way) (f found, got int64) {
	k := o.core
	if y.use.Windows() != &s.Keys.Windows {
		y.adopt(k, s.Keys, now)
	}
	if s.Open(now) {
		y.lendAtEdge(k, s, now)
	}
	f = keyLacks
	switch left := min(n, y.room(k, now, o.class)); {
	case left == 0, left < n && how != upTo, how == queues && y.large(k, n):
		if k.gate.Segment() != s {
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
	case s.Take(now, n, o.class):
		got, f = n, granted
	case !s.Open(now): // its bounds may be others now
		return moved, 0
	default:
		if f = providerLacks; how >= reserve {
			y.use.Reserve(n)
		}
	}
	if got > 0 {
		y.use.Charge(got)
		y.use.Called(got, o.class, false)
		y.note(&k.keys, got, 0)
		y.afterIssue(k, now)
		y.open()
	}
	if f == keyLacks && how < reserve && !s.Shadow {
		o.refusedKey(y, n-got, how, now)
		y.front.Refuse(&y.use) // others were asked for some
	}
	return f, got
}

// room returns how many permits of the key a call of class c may have that did not wait for them. y.mu is held.
func (y *keyState) room(k *core, now int64, c queue.Class) int64 {
	if y.line.Ahead(c) == 0 {
		return y.use.Left()
	}
	l := y.lineNow(k, now)
	return l.Newcomer(c)
}

// segmentNow returns the segment that runs now, and the time.
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

// adopt brings the counts to the windows that run. The caller has the state's lock, or
// the state is nobody's yet.
func (y *keyState) adopt(k *core, keys *plans.Keys, now int64) {
	if y.use.Windows() == &keys.Windows {
		return
	}
	y.tellBusiest(&k.keys)
	y.use.Adopt(&keys.Windows, func(w quota.Window) int64 {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.mu.planner.Bound(y.key, w, now).Permits
	}, func() []protocol.Budget {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.mu.planner.KeyBudgets(y.key, now)
	})
	y.tellBooked(&k.keys)
}

// tellBooked tells what is booked of the key, if anybody traces it. It is called under the state's lock,
// after each step that may have paid a debt.
func (y *keyState) tellBooked(m *keys) {
	if m.booked != nil {
		m.booked(y.key.Name, y.use.Booked())
	}
}

// lock locks a key's state, and brings its counts to the windows that run. It returns the segment
// that runs, whose bounds are in force, and the time. Without limits by key the counts are as they
// were.
func (y *keyState) lock(k *core) (s *window.Segment, now int64) {
	for {
		s, now = k.segmentNow()
		y.hold(&k.keys)
		if s.Keys == nil {
			return s, now
		}
		if y.adopt(k, s.Keys, now); s.Open(now) {
			y.lendAtEdge(k, s, now)
			return s, now
		}
		y.mu.Unlock() // the bounds may be others now
	}
}

// ofAccount makes p a permit of n that a key's account was charged for just now, under the state's lock, by
// a segment.
func (p *Permit) ofAccount(of *origin, s *window.Segment, y *keyState, n int64) {
	*p = of.permit(s.Grant, n, n)
	p.bookedIn(y)
}

// bookedIn makes a permit one of a key that was charged for it just now, under the state's lock.
func (p *Permit) bookedIn(y *keyState) {
	start, end := y.use.Span()
	p.ofKey(y, start, end, y.use.Epoch())
}

// ofKey makes a permit of the provider's one of a key too, whose windows last from start until end. The
// permit's window is the part that both have in common.
func (p *Permit) ofKey(y *keyState, start, end int64, epoch uint32) {
	p.grant.Start, p.grant.End = max(p.grant.Start, start), min(p.grant.End, end)
	p.key, p.keyEpoch = y, epoch
}

// confirm charges the key for n permits of the grant that were reserved. It returns false if
// the key's bound is lower now, or the grant's window is over: then the permits must not be
// used.
func (o *origin) confirm(y *keyState, g queue.Grant, n int64) (p Permit, ok bool) {
	k := o.core
	s, now := y.lock(k)
	if s.Keys == nil || s.Grant.Epoch != g.Epoch && g.End <= now+s.Keys.Offset {
		y.use.Unreserve(n)
	} else if ok = y.use.Confirm(n); ok {
		y.use.Called(n, o.class, y.large(k, n))
		y.note(&k.keys, n, 0)
		y.afterIssue(k, now)
		p = o.permit(g, n, n)
		p.bookedIn(y)
	}
	y.mu.Unlock()
	if !ok {
		k.keys.lines.serve(k, y)
	}
	return p, ok
}

// lapses reports whether a key's permits that are reserved may be gone in its next windows.
func (k *core) lapses(y *keyState) bool {
	y.hold(&k.keys)
	defer y.mu.Unlock()
	return y.use.Lapses(y.totals(k))
}

// totals returns what tells the key's limit for a window, by which all instances together are bounded; 0
// if nobody knows.
func (y *keyState) totals(k *core) func(quota.Window) int64 {
	return func(w quota.Window) int64 {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.mu.planner.KeyTotal(y.key, w)
	}
}

// unreserve ends a reservation. Others may have the permits.
func (k *core) unreserve(y *keyState, n int64) {
	y.hold(&k.keys)
	y.use.Unreserve(n)
	y.mu.Unlock()
	k.keys.lines.serve(k, y)
}

// correct books that n permits of a key, issued in an epoch, cost actual permits.
func (k *core) correct(y *keyState, epoch uint32, n, actual int64) (back bool) {
	s, now := y.lock(k)
	for y.gone { // nothing is left of its windows, but a debt counts in later ones
		y.mu.Unlock()
		if actual <= n {
			return false
		}
		y = k.keys.add(y.key.Name, nil, nil, false) // beyond the bound, if need be
		s, now = y.lock(k)
	}
	if actual > n {
		if y.use.Owe(actual - n); s.Keys != nil {
			y.owes(k, now)
		}
	} else {
		back = y.use.Refund(n-actual, epoch)
	}
	y.tellBooked(&k.keys)
	y.mu.Unlock()
	k.keys.lines.serve(k, y)
	return back
}

// find returns the state of a key for a call, or for a guest that asks for a loan, and makes one
// if the bound allows that, or puts own into use, which a Key has of the name. Without a state it returns
// why there is none.
func (m *keys) find(name string, own *keyState, keys *plans.Keys, guest bool) (y *keyState, none found) {
	if y = m.known(name); y != nil && m.counts(y, keys, guest) {
		return y, 0
	}
	if protocol.ValidateKey(name) != nil {
		return nil, unusable
	}
	m.fresh.Add(1)
	if y = m.add(name, own, keys, guest); y == nil {
		m.sweep(keys)
		y = m.add(name, own, keys, guest)
	}
	return y, tooMany
}

// room counts one more key in use, by guests only or not. It returns false if the bound does not
// allow that; without keys there is none.
func (m *keys) room(keys *plans.Keys, guest bool) bool {
	n := m.count(guest)
	if now := n.Add(1); keys != nil && now > keys.Most {
		n.Add(-1)
		return false
	}
	return true
}

func (m *keys) count(guest bool) *atomic.Int64 {
	if guest {
		return &m.guests
	}
	return &m.inUse
}

// counts has a state that only guests wanted count as this instance's own, if a call wants it. It
// returns false if the bound does not allow that.
func (m *keys) counts(y *keyState, keys *plans.Keys, guest bool) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if guest || !y.guest || y.gone {
		return true
	}
	if !m.room(keys, false) {
		return false
	}
	m.guests.Add(-1)
	y.guest = false
	return true
}

// sweep forgets in all parts, unless it has done so in these windows and few names are new
// since: so each new name costs a look at few states.
func (m *keys) sweep(keys *plans.Keys) {
	m.sweeping.Lock()
	defer m.sweeping.Unlock()
	if m.swept == keys && m.fresh.Load() <= keys.Most/16 {
		return
	}
	m.swept = keys
	m.fresh.Store(0)
	for i := range m.parts {
		m.parts[i].Lock()
		m.forget(&m.parts[i], keys)
		m.parts[i].Unlock()
	}
}

func (m *keys) part(name string) *keyPart {
	return &m.parts[maphash.String(m.seed, name)%uint64(len(m.parts))]
}

// add returns the state of a key for a call or for a guest, and makes one if the bound allows
// that, or puts own into use; else nil. own may be nil. Without keys there is no bound.
func (m *keys) add(name string, own *keyState, keys *plans.Keys, guest bool) *keyState {
	part := m.part(name)
	part.Lock()
	defer part.Unlock()
	if y := part.states[name]; y != nil {
		if !m.counts(y, keys, guest) {
			return nil
		}
		return y
	}
	if len(part.states) >= max(part.look, leastLook) && keys != nil {
		m.forget(part, keys)
		part.look = 2 * len(part.states)
	}
	if !m.room(keys, guest) {
		return nil
	}
	if part.states == nil {
		part.states = map[string]*keyState{}
	}
	if !own.begin(guest) {
		own = newKeyState(name)
		own.begin(guest)
	}
	part.states[own.key.Name] = own
	return own
}

// newKeyState returns a state that is not in use yet.
func newKeyState(name string) *keyState {
	return &keyState{key: share.KeyOf(strings.Clone(name)), gone: true}
}

// begin puts a state into use. It returns false if there is none, or if it was in use before: what it counts
// belongs to windows that are over.
func (y *keyState) begin(guest bool) bool {
	if y == nil {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.gone || y.use.Windows() != nil {
		return false
	}
	y.gone, y.guest = false, guest
	return true
}

// forget drops the states of which nothing counts any more. The caller has the part's lock.
func (m *keys) forget(part *keyPart, keys *plans.Keys) {
	for name, y := range part.states {
		y.hold(m)
		if y.gone = y.line == nil && y.use.Over(&keys.Windows) && !y.asked(keys); y.gone {
			y.tellBusiest(m)
			delete(part.states, name)
			m.count(y.guest).Add(-1)
		}
		y.mu.Unlock()
	}
}

// unusable returns the error for a call for a key that there cannot be.
func (k *core) unusable(y Key, n int64, t *keyTry) error {
	name := y.state.key.Name
	if t.found == tooMany {
		return fmt.Errorf("consumer: %s: %w: key %q would be one more than %d, the most that an instance may have in use; wait until windows of other keys end, or raise the bound: quota-admin set %[1]s LIMITS --keys-most N",
			k.provider, ErrTooManyKeys, name, t.segment.Keys.Most)
	}
	if err := protocol.ValidateKey(name); err != nil && t.segment.Keys != nil {
		return fmt.Errorf("consumer: %s: %w: %w", k.provider, ErrInvalid, err)
	}
	k.mu.Lock()
	policy, _ := k.mu.planner.Policy()
	closed := k.mu.closed
	k.mu.Unlock()
	if policy == nil || closed {
		_, _, err := k.explain(queue.Limited, n, y.limiter.class)
		return err
	}
	return fmt.Errorf("consumer: %s: %w by key: add some with quota-admin set %[1]s 1000/s --keys 80/s", k.provider, ErrNoPolicy)
}
