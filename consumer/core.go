package consumer

import (
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/warrant"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// core is the one counter of a provider in a source: all limiters that were
// opened for it share it. It is the sink of the source's news and answers the
// gate's questions about shares.
//
// Lock order: the gate's lock, then mu. Nothing that holds mu calls the gate.
type core struct {
	provider string
	clock    *clock.Clock
	log      *slog.Logger
	waited   func(time.Duration, error) // Options.Waited
	gate     *window.Gate
	phase    uint64 // of pacing

	owners   atomic.Uint32 // numbers the limiters
	refused  *refusals     // apart from the fields that the hot path reads
	told     atomic.Bool   // somebody was told an outcome, and may not run yet
	shadowed atomic.Int64  // refusals that shadow mode let pass, since the start
	shadow   atomic.Bool   // the policy's mode is shadow
	ceiling  atomic.Int64  // window.Terms.Ceiling, for callers that do not wait
	refusal  atomic.Pointer[refusal]
	errs     errorSet

	alarm    alarm
	dispatch dispatcher
	returned returns
	parked   sync.Pool       // of *window.Waiter, for goroutines
	outcome  *window.Outcome // as last told; guarded by the gate's lock

	mu struct {
		sync.Mutex
		warrant warrant.Warrant // the views held, and how recent they are
		demand  window.Demand   // what callers ask for
		drain   int64           // monotonic instant before which nothing is issued, or 0
		self    string
		trouble error
		state   quota.State // as last logged
		logged  stateLog

		clockWrong bool // as last logged: its error exceeds the policy's bound

		changed chan struct{}
		closed  bool
	}
}

// errorSet are the errors that name the provider, made once.
type errorSet struct{ tooLarge, queueFull, closed, noPolicy, stale, clock error }

func newCore(provider string, c *clock.Clock, o Options) *core {
	k := &core{provider: provider, clock: c, log: o.Logger, waited: o.Waited, phase: newPhase(), refused: new(refusals)}
	if k.log == nil {
		k.log = slog.Default()
	}
	k.log = k.log.With("provider", provider)
	k.gate = window.NewGate(k, o.MaxWaiters, k.decided)
	k.alarm.fire = k.tick
	k.alarm.armed.Store(math.MaxInt64)
	k.parked.New = newParked
	k.mu.changed = make(chan struct{})
	k.mu.state, k.mu.logged.seen = quota.StateJoining, quota.StateJoining
	named := func(kind error, hint string) error { return &providerError{provider, kind, hint} }
	k.errs = errorSet{
		tooLarge:  named(ErrTooLarge, ": ask for fewer at once, or use TryTakeUpTo"),
		queueFull: named(ErrQueueFull, ""),
		closed:    named(ErrClosed, ""),
		noPolicy:  named(ErrNoPolicy, ": set one with quota-admin set"),
		stale:     named(ErrStale, " (outage rule stop): etcd cannot be reached"),
		clock:     named(ErrStale, " (outage rule stop): the clock's error exceeds the policy's clock_error"),
	}
	return k
}

// Reset implements feed.Sink.
func (k *core) Reset(at clock.Instant, self string, v quota.View) {
	k.mu.Lock()
	k.mu.warrant.Reset(at, self, v)
	k.mu.self = self
	k.signalLocked()
	k.news()
}

// Apply implements feed.Sink.
func (k *core) Apply(at clock.Instant, c quota.Change) {
	k.mu.Lock()
	k.mu.warrant.Apply(at, c)
	if c.Policy != nil || c.PolicyDeleted || slices.ContainsFunc(c.Put, func(i quota.Instance) bool { return i.ID == k.mu.self }) {
		k.signalLocked() // others who come and go make nobody ready
	}
	k.news()
}

// Announce implements feed.Sink.
func (k *core) Announce(until int64) {
	k.mu.Lock()
	k.mu.warrant.Announce(until)
	k.signalLocked()
	k.news()
}

// Prove implements feed.Sink.
func (k *core) Prove(sent clock.Instant) {
	k.mu.Lock()
	if k.mu.warrant.Prove(sent) {
		k.signalLocked()
		k.news() // what was held back may be issued again
		return
	}
	k.mu.Unlock()
	k.gate.Proved(k.clock.Now())
	k.alarm.set(k.clock, k.gate.Wake())
}

// Trouble implements feed.Sink.
func (k *core) Trouble(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.trouble = err
	k.signalLocked()
}

// Close implements feed.Sink.
func (k *core) Close() {
	k.mu.Lock()
	k.mu.closed = true
	k.signalLocked()
	k.mu.Unlock()
	k.gate.Close()
	k.alarm.stop()
}

// news ends a change of what is known: it releases mu, which the caller holds,
// and lets the gate see it.
func (k *core) news() {
	policy, _ := k.mu.warrant.Policy()
	k.shadow.Store(policy != nil && policy.Mode == quota.ModeShadow)
	k.mu.Unlock()
	now := k.clock.Now()
	k.gate.Changed(now)
	k.alarm.set(k.clock, k.gate.Wake())
	k.noteState(now)
}

// signalLocked wakes those who wait for a state that time alone does not bring:
// see Ready.
func (k *core) signalLocked() {
	close(k.mu.changed)
	k.mu.changed = make(chan struct{})
}

// tick is the alarm's: the boundary's work where no caller did it.
func (k *core) tick() {
	k.gate.Tick(k.clock.Now())
	k.told.Store(false) // this goroutine ends, which is more than stepping aside
	k.alarm.set(k.clock, k.gate.Wake())
}

// Offset implements window.Shares.
func (k *core) Offset() int64 { return k.clock.Offset() }

// Lengths implements window.Shares.
func (k *core) Lengths(now int64) []time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.warrant.Lengths(now, k.Offset())
}

// Bound implements window.Shares.
func (k *core) Bound(w quota.Window, now int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.warrant.Bound(w, now, k.Offset()).Permits
}

// Burst implements window.Shares.
func (k *core) Burst(w quota.Window, now int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.warrant.Burst(w, now, k.Offset())
}

// Terms implements window.Shares.
func (k *core) Terms(at clock.Instant) window.Terms {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.mu.warrant.Terms(at, k.clock)
	t.ShutUntil = k.mu.drain
	t.Pacing = k.pacingLocked()
	if k.mu.warrant.Started() {
		t.Ceiling = k.ceilingLocked(at)
		k.ceiling.Store(t.Ceiling)
	}
	return t
}

// ceilingLocked returns the largest share that the present view can give to one
// instance, or 0 if that is not known.
func (k *core) ceilingLocked(at clock.Instant) int64 {
	ceiling := int64(0)
	for _, b := range k.limitsLocked(at) {
		if b.Total <= 0 || b.Instances <= 0 {
			return 0
		}
		if b.Most > 0 && (ceiling == 0 || b.Most < ceiling) {
			ceiling = b.Most
		}
	}
	return ceiling
}

// limitBound is one limit of the present policy with its bound now.
type limitBound struct {
	window quota.Window
	share.Bound
}

// limitsLocked returns the limits in force now, shortest window first.
func (k *core) limitsLocked(at clock.Instant) []limitBound {
	policy, _ := k.mu.warrant.Policy()
	if policy == nil {
		return nil
	}
	wall := at.Mono + k.Offset()
	var bounds []limitBound
	for _, l := range policy.LimitsAt(wall) {
		w := quota.WindowAt(l.Window, wall)
		bounds = append(bounds, limitBound{w, k.mu.warrant.Bound(w, at.Mono, k.Offset())})
	}
	return bounds
}

var (
	_ feed.Sink     = (*core)(nil)
	_ window.Shares = (*core)(nil)
)
