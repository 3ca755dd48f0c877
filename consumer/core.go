package consumer

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/consumer/internal/alarm"
	"github.com/quotient-limiter/quotient/consumer/internal/tally"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// core is the one counter of a provider in a source: all limiters that were
// opened for it share it. It is the sink of the source's news, and makes the
// gate's plans from them.
//
// Lock order: the gate's lock, then mu. Nothing that holds mu calls the gate.
type core struct {
	provider string
	clock    *clock.Clock
	gate     *window.Gate
	alarm    alarm.Alarm
	dispatch dispatcher
	classes  [queue.Classes]origin // of permits

	limiters atomic.Uint32 // numbers the limiters
	serials  atomic.Uint64 // numbers the permits
	refused  *refusals     // apart from the fields that the hot path reads
	shadowed atomic.Int64  // permits refused that shadow mode let pass, since the start
	refusal  [queue.Classes]atomic.Pointer[refusal]
	// served says that a waiter was told an outcome, and may not run yet. See
	// stepAside.
	served  atomic.Bool
	parked  sync.Pool   // of *queue.Waiter, for goroutines
	outcome lastOutcome // as last told to a waiter of the gate; guarded by the gate's lock
	asks    chan protocol.Ask
	wanting chan struct{} // holds one when more of a budget is wanted
	need    atomic.Pointer[func()]

	// options are replaced under mu by the first limiter that is opened; read by
	// everybody.
	options atomic.Pointer[Options]
	// carrier brings asks and loans, if the planner lends.
	carrier atomic.Pointer[feed.Carrier]
	looker  alarm.Alarm // looks for what to ask for, while callers want more than there is
	noise   noise
	keys    keys
	labels  labels

	mu struct {
		sync.Mutex
		open    int // limiters that are not closed
		planner share.Planner
		pauses  pauses
		rate    tally.Refusals
		// throttle is the newest view's.
		throttle *protocol.Throttle
		self     string
		withheld map[string]bool // the provider's long limits of which something was withheld, by etcd's latest answer
		had      string          // the last policy (cause.Was), noted when it went; empty if there never was one
		trouble  error
		troubled int64 // monotonic instant since when there is a trouble
		logged   stateLog
		// clockWrong says, as last logged, that the clock's error exceeds the
		// policy's bound.
		clockWrong bool
		// forgotten is Status.Forgotten as last logged, and forgottenAt the monotonic instant of that.
		forgotten, forgottenAt int64
		// owes says, as last logged, that there is a debt that lasts.
		owes bool
		// changed is closed, and replaced, when news may have changed the state.
		changed chan struct{}
		closed  bool
		// borrowed is the monotonic instant until which what was lent can be used, or 0.
		borrowed int64
	}
}

func newCore(provider string, c *clock.Clock, o Options) *core {
	k := &core{provider: provider, clock: c, refused: new(refusals), asks: make(chan protocol.Ask, 1), wanting: make(chan struct{}, 1)}
	k.gate = window.NewGate(k, k.decided, func(wake int64) { k.alarm.Set(c, wake) })
	k.gate.Lent = k.lent
	k.gate.Arm = func(at int64) { k.looker.Set(c, at) }
	k.gate.LendsTo = k.lendsTo
	k.gate.Refused, k.gate.RefusedLarge, k.gate.Called = k.refused.sum, k.refused.large.Load, k.called
	k.gate.Wanting = k.wants
	for i := range k.classes {
		k.classes[i] = origin{k, queue.Class(i), nil}
	}
	k.Needs(func() {})
	k.alarm.Begin(k.tick)
	k.looker.Begin(k.look)
	k.keys.begin(k)
	k.parked.New = newParked
	k.mu.planner = share.Planner{Clock: c}
	now := c.Mono()
	k.keys.busiest.Begin(now)
	k.labels.busiest.Begin(now)
	k.mu.changed = make(chan struct{})
	k.mu.logged = stateLog{state: quota.StateJoining, seen: quota.StateJoining}
	k.options.Store(&o)
	return k
}

// Trace has booked told what is booked of each window, as window.Gate.Booked; and with the name of a
// key what is booked of that, whenever a debt of it may have been paid. It is called before the
// first news. Package internal/trace calls it.
func (k *core) Trace(booked func(key string, uses []window.Use)) {
	k.keys.booked = booked
	k.gate.Booked = func(uses []window.Use) { booked("", uses) }
}

// enter counts one more limiter with these options. The first one's are in
// force; the others must leave them out or give the same. OnWait is no concern of the core.
func (k *core) enter(o Options) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.open == 0 {
		k.options.Store(&o)
	} else if what := o.differs(*k.options.Load()); what != "" {
		return fmt.Errorf("consumer: open %s: %w: another limiter of this source has it open with another %s; leave it out, or give the same", k.provider, ErrInvalid, what)
	}
	k.mu.open++
	return nil
}

// leave counts one limiter less.
func (k *core) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.open--
	k.signalLocked()
}

// differs names an option that is given and is not as the one in force.
func (o Options) differs(inForce Options) string {
	switch {
	case o.MaxWaiters != 0 && o.MaxWaiters != inForce.MaxWaiters:
		return fmt.Sprintf("MaxWaiters (%d, not %d)", inForce.MaxWaiters, o.MaxWaiters)
	case o.Logger != nil && o.Logger != inForce.Logger:
		return "Logger"
	}
	return ""
}

func (k *core) log() *slog.Logger {
	l := k.options.Load().Logger
	if l == nil {
		l = slog.Default()
	}
	return l.With("provider", k.provider)
}

// Reset implements feed.Sink.
func (k *core) Reset(at clock.Instant, self string, v protocol.View) {
	k.mu.Lock()
	if v.Policy == nil {
		k.goesLocked()
	}
	had := k.mu.had
	k.mu.planner.Reset(at, self, v)
	k.mu.self = self
	k.throttleLocked(v.Throttle)
	k.news(true)
	switch {
	case v.Policy != nil:
	case had != "":
		k.log().Warn("no limit is set any more", "was", had, "do", cause.Command(cause.LostLimit(k.provider, had)))
	default: // maybe the name is misspelt
		k.log().Warn("no limit is set", "do", "quota-admin list shows the providers; quota-admin set "+k.provider+" LIMITS sets a limit, with --withhold if etcd has lost its data")
	}
}

// Apply implements feed.Sink.
func (k *core) Apply(at clock.Instant, c protocol.Change) {
	k.mu.Lock()
	if c.PolicyDeleted {
		k.goesLocked()
	}
	throttled := k.mu.planner.Apply(at, c) && (c.Throttle != nil || c.ThrottleDeleted) && k.throttleLocked(c.Throttle)
	// Joins and leaves of others make no limiter ready.
	k.news(c.Policy != nil || c.PolicyDeleted || throttled || slices.ContainsFunc(c.Put, func(i protocol.Instance) bool { return i.ID == k.mu.self }))
}

// Announce implements feed.Sink.
func (k *core) Announce(until int64) {
	k.mu.Lock()
	k.mu.planner.Announce(until)
	k.news(true)
}

// Prove implements feed.Sink.
func (k *core) Prove(sent clock.Instant) {
	k.mu.Lock()
	if k.mu.planner.Prove(sent) {
		k.news(true)
		k.wants() // what callers have asked for before it
		return
	}
	k.signalLocked() // the state may be another one from now on
	k.mu.Unlock()
	stale := k.gate.Segment().Stale
	if k.gate.Proved(k.clock.Now()); stale { // debts of keys can be paid again
		k.keys.lines.serveAll(k)
	}
}

// wants says that more of a budget is wanted.
func (k *core) wants() {
	select {
	case k.wanting <- struct{}{}:
		(*k.need.Load())()
	default:
	}
}

// Wanting implements feed.Sink.
func (k *core) Wanting() <-chan struct{} { return k.wanting }

// Needs implements feed.Sink.
func (k *core) Needs(need func()) { k.need.Store(&need) }

// Trouble implements feed.Sink.
func (k *core) Trouble(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.trouble == nil {
		k.mu.troubled = k.clock.Mono()
	}
	k.mu.trouble = err
	k.forgetRefusals() // its cause is another one now
}

// Close implements feed.Sink.
func (k *core) Close() {
	k.mu.Lock()
	k.mu.closed = true
	k.signalLocked()
	k.mu.Unlock()
	k.gate.Close()
	k.alarm.Stop()
	k.looker.Stop()
	k.keys.close(k)
	if debt := k.gate.Usage(k.clock.Now()).Debt; debt > 0 {
		k.log().Warn("limiter is closed with a debt: calls have cost more than their permits", "debt", debt,
			"do", "expect that the provider counts so many more; reserve more per call")
	}
}

// news ends a change: it releases mu, which the caller holds, and has the gate plan
// again. signal says that the state may be another one.
func (k *core) news(signal bool) {
	k.forgetRefusals()
	k.mu.Unlock()
	now := k.clock.Now()
	k.gate.Changed(now)
	k.noteState(now)
	if signal {
		k.mu.Lock()
		k.signalLocked()
		k.mu.Unlock()
	}
}

// signalLocked wakes those that wait for a state: see Ready.
func (k *core) signalLocked() {
	close(k.mu.changed)
	k.mu.changed = make(chan struct{})
}

// tick is the alarm's: the boundary's work where no caller did it.
func (k *core) tick() {
	k.gate.Tick(k.clock.Now())
	k.served.Store(false) // this goroutine ends, which is more than stepping aside
}

// Plan implements window.Planner.
func (k *core) Plan(at clock.Instant) plans.Plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.mu.planner.Plan(at)
	k.keys.planned(k, p.Keys, at.Mono)
	return p
}

// Foresee implements window.Planner.
func (k *core) Foresee(mono int64) plans.Plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.planner.Foresee(mono)
}

// stateLocked returns the state at an instant.
func (k *core) stateLocked(at clock.Instant) quota.State {
	if k.mu.closed {
		return quota.StateClosed
	}
	return k.mu.planner.State(at)
}

// wall returns corrected time at a monotonic instant, which may lie in the past.
func (k *core) wall(mono int64) time.Time {
	if mono < k.clock.Mono() { // WallAt tells nothing of before the last Observe
		return time.Unix(0, mono+k.clock.Offset())
	}
	return time.Unix(0, k.clock.WallAt(mono))
}

var (
	_ feed.Sink      = (*core)(nil)
	_ window.Planner = (*core)(nil)
)
