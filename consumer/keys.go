package consumer

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/consumer/internal/tally"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// keys are a provider's keys in use: each has a keyState (key.go). A key has no timer and no goroutine of its own.
//
// A key that nobody calls for is forgotten, but only when nothing of it counts any more: a new state then means the
// same. Keys are forgotten only when a new name comes. A part of the map does that when it has twice as many
// states as it kept the last time. All parts do it when plans.Keys.Most is reached: once in the windows of a plan,
// and again after each sixteenth of that bound in attempts to use new names.
//
// Lock order: sweeping, then a part's, then a state's, then any of core.mu, the mu of lines, asks and funds, and those
// of counters, alarms, the dispatcher and the carrier. While a state's lock is held nobody takes the gate's, and while
// the gate's is held nobody serves a line.
type keys struct {
	// quiet is the key whose front refuses without telling refused of it: so each of these calls changes one word that
	// others change, the front's. hold tells of them, and makes quiet nil. It is written under the state's lock, by a key
	// whose calls crowd, if it is nil.
	quiet   atomic.Pointer[keyState]
	parts   [64]keyPart
	seed    maphash.Seed // decides in which part a name is
	inUse   atomic.Int64 // keys that calls of this instance use; from plans.Keys.Most on a new name is refused
	guests  atomic.Int64 // keys that are in use only because others have asked to borrow; as many at most
	refused atomic.Int64 // permits refused since the start: the key had too few, or there was no room for it
	lent    atomic.Int64 // permits lent to other instances since the start
	got     atomic.Int64 // permits borrowed from them
	asked   atomic.Int64 // times that others were asked for permits of a key
	latest  *plans.Keys  // of the latest plan; guarded by core.mu
	lines   keyLines
	asks    keyAsks
	funds   keyFunds
	busiest tally.Busiest
	booked  func(key string, uses []window.Use) // see core.Trace; nil if nobody traces

	sweeping sync.Mutex
	swept    *plans.Keys  // the plan's when all parts forgot last; guarded by sweeping
	fresh    atomic.Int64 // attempts since then to put a name into use, also those that failed
}

// begin makes the keys of a new core ready.
func (m *keys) begin(k *core) {
	m.seed, m.latest = maphash.MakeSeed(), plans.Unheard
	m.lines.alarm.Begin(func() { m.lines.serveAll(k) })
	m.asks.alarm.Begin(func() { m.asks.lookAll(k) })
}

// planned has all lines served soon if the latest plan's Keys are others than those of the plan before: keys may have
// more then. The gate's lock and core.mu are held.
func (m *keys) planned(k *core, plan *plans.Keys, now int64) {
	if plan != m.latest {
		m.latest = plan
		if m.lines.length.Load() > 0 {
			m.lines.alarm.Set(k.clock, now)
		}
	}
}

// close has all calls that wait for keys start again, since the gate is closed: each then finds that, and ends.
func (m *keys) close(k *core) {
	m.lines.alarm.Stop()
	m.asks.alarm.Stop()
	m.lines.serveAll(k)
}

// keyPart is a part of the keys in use: so calls for different keys seldom wait for one lock.
type keyPart struct {
	sync.RWMutex
	states map[string]*keyState // by name; nil before the first
	look   int                  // with so many states, those of which nothing counts are forgotten
}

// leastLook is the least look: below it a part forgets only when plans.Keys.Most is reached.
const leastLook = 64

// find returns the state in use for a name, for a call or, with guest, for another instance that asks for a loan. If
// there is none it puts own into use or, if own is nil or was in use before, a new state. If it cannot, y is nil, and
// none says why: unusable if no key can have the name, tooMany if plans.Keys.Most is reached. The state may be gone
// again when the caller has its lock: then it is to ask again. The caller holds no lock of a key.
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

// known returns the state in use for a name; nil if there is none.
func (m *keys) known(name string) *keyState {
	part := m.part(name)
	part.RLock()
	defer part.RUnlock()
	return part.states[name]
}

// lock takes the lock of the state in use for a name, as keyState.lock does, and returns what that returns. y is nil if
// there is no such state.
func (m *keys) lock(k *core, name string) (y *keyState, s *window.Segment, now int64) {
	for y = m.known(name); y != nil; y = m.known(name) {
		if s, now = y.lock(k); !y.gone {
			break
		}
		y.mu.Unlock() // it was forgotten meanwhile
	}
	return y, s, now
}

// room counts one more key in use: by calls or, with guest, only by guests. It does not, and returns false, if plans.Keys.Most is
// reached. With keys nil there is no bound.
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

// counts notes that a state is wanted, by a guest or by a call. One that only guests wanted counts as a call's from the
// first call on. counts returns false if there is no room for that.
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

// sweep forgets in all parts. It does not if it has done so in the windows of this plan, and at most a sixteenth of
// Most were attempts to use new names since: so each of those costs a look at few states.
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

// add is find for a name that may be a key's, but it does not sweep. It returns nil if there is no room. With keys
// nil there always is.
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

// begin puts a state into use. It does not, and returns false, if y is nil, or was in use before: then its account is
// retired, and another state takes its place.
func (y *keyState) begin(guest bool) bool {
	if y == nil {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.gone || y.use.Used() {
		return false
	}
	y.gone, y.guest = false, guest
	return true
}

// forget ends the use of the keys of a part of which nothing counts any more. The part's lock is held.
func (m *keys) forget(part *keyPart, keys *plans.Keys) {
	for name, y := range part.states {
		y.hold(m)
		if y.gone = y.line == nil && y.use.Forget(&keys.Windows); y.gone {
			y.tellBusiest(m)
			delete(part.states, name)
			m.count(y.guest).Add(-1)
		}
		y.mu.Unlock()
	}
}

// unusable returns the error for a call whose attempt t has found no key to use: unusable or tooMany.
func (k *core) unusable(y Key, n int64, t *keyTry) error {
	name := y.state.key.Name
	if t.found == tooMany {
		return fmt.Errorf("consumer: %s: %w: key %q would be one more than %d, the most that an instance may have in use; wait until windows of other keys end, or raise the bound: quota-admin set %s LIMITS --keys-most N",
			k.provider, ErrTooManyKeys, name, t.segment.Keys.Most, cause.ShellWord(k.provider))
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
	if policy.InFlight() {
		return fmt.Errorf("consumer: %s: %w by key: under %s there is none; leave the key out, or set a provider for each account, such as: quota-admin set %s-ACCOUNT %s",
			k.provider, ErrNoPolicy, policy.Limits[0], cause.ShellWord(k.provider), cause.ShellWord(quota.FormatLimits(policy.Limits)))
	}
	return fmt.Errorf("consumer: %s: %w by key: add some with quota-admin set %s %s --keys LIMITS", k.provider, ErrNoPolicy, cause.ShellWord(k.provider), cause.ShellWord(quota.FormatLimits(policy.Limits)))
}
