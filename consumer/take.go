package consumer

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/warrant"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// take is the hot path: one clock reading, compared with the segment's end, and
// one compare-and-swap. Only who finds the segment over takes the gate's lock.
func (k *core) take(n int64) (window.Grant, bool) {
	s := k.gate.Segment()
	if s.Strict {
		return k.takeStrict(s, n)
	}
	now := k.clock.Mono()
	if s.Take(now, n) {
		return s.Grant, true
	}
	if s.Open(now) {
		return window.Grant{}, false
	}
	return k.takeNext(k.clock.Now(), n)
}

// takeStrict also ages the proof by the wall clock, and checks that the two
// clocks have not parted, which costs a second reading: the monotonic clock
// stands still while a machine is suspended, and then neither tells how old a
// proof is, nor which window it is.
func (k *core) takeStrict(s *window.Segment, n int64) (window.Grant, bool) {
	now := k.clock.Now()
	if s.WallValid(now) {
		if s.Take(now.Mono, n) {
			return s.Grant, true
		}
		if s.Open(now.Mono) {
			return window.Grant{}, false
		}
	}
	return k.takeNext(now, n)
}

// takeNext takes from the segment that follows, doing the boundary's work if
// nobody did. Those who were served then go first: with all processors busy they
// would else run only when somebody is preempted, 10 ms later.
func (k *core) takeNext(now clock.Instant, n int64) (window.Grant, bool) {
	g, ok := k.gate.Take(now, n)
	k.stepAside()
	return g, ok
}

// stepAside lets those run who were told an outcome by this goroutine's doing.
func (k *core) stepAside() {
	if k.told.Load() && k.told.CompareAndSwap(true, false) {
		runtime.Gosched()
	}
}

// pass counts n refused permits and reports whether shadow mode lets them pass
// all the same.
func (k *core) pass(n int64) bool {
	if k.shadow.Load() {
		k.shadowed.Add(n)
		return true
	}
	k.refusalNow().count.Add(n)
	return false
}

// refusedIn returns the segment's refusal if somebody was refused in it before,
// or nil.
func (k *core) refusedIn(s *window.Segment) *refusal {
	if r := k.refusal.Load(); r != nil && r.segment == s {
		return r
	}
	return nil
}

// refusal is the error for everybody who is refused in one segment.
type refusal struct {
	segment *window.Segment
	err     error
	count   *atomic.Int64 // of the permits refused for this reason
}

// reject returns the error for a verdict on n permits, and counts it.
func (k *core) reject(v window.Verdict, n int64) error {
	reason, err := ReasonTooLarge, k.errs.tooLarge
	switch c := k.ceiling.Load(); {
	case v == window.TooLarge, v == window.Limited && n > 1 && c > 0 && n > c:
	case v == window.Full:
		reason, err = ReasonQueueFull, k.errs.queueFull
	case v == window.Closed:
		reason, err = ReasonClosed, k.errs.closed
	default:
		r := k.refusalNow()
		r.count.Add(n)
		return r.err
	}
	k.refused.of(reason).Add(n)
	return err
}

// refusalNow returns the refusal of the segment in force, made on first use.
func (k *core) refusalNow() *refusal {
	s := k.gate.Segment()
	if r := k.refusedIn(s); r != nil {
		return r
	}
	err := k.explain()
	r := &refusal{s, err, k.refused.of(reasonOf(err))}
	k.refusal.Store(r)
	return r
}

// explain says why nothing is issued now.
func (k *core) explain() error {
	now := k.clock.Now()
	when, known := k.gate.Estimate(now, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	e := &LimitError{Provider: k.provider, Reason: ReasonSpent}
	switch k.stateLocked(now) {
	case quota.StateClosed:
		return k.errs.closed
	case quota.StateStale:
		if k.strictLocked(now) {
			if _, wrong := warrant.ClockWrong(k.rulesLocked(now), k.clock); wrong {
				return k.errs.clock
			}
			return k.errs.stale
		}
	case quota.StateDraining:
		e.Reason = ReasonDraining
		when, known = max(when, k.mu.drain), true // also beyond what is forecast
	case quota.StatePaused:
		e.Reason = ReasonPaused
	case quota.StateJoining:
		if policy, _ := k.mu.warrant.Policy(); policy == nil && k.mu.warrant.Started() {
			return k.errs.noPolicy
		}
		e.Reason = ReasonJoining
	}
	if b := k.limitsLocked(now); len(b) > 0 {
		e.Total, e.Share, e.Instances, e.Window = b[0].Total, b[0].Permits, b[0].Instances, b[0].window
	}
	if known {
		e.RetryAt = time.Unix(0, k.clock.WallAt(when))
	}
	return e
}

func (k *core) strictLocked(now clock.Instant) bool {
	return k.mu.warrant.Rules(now.Mono, k.Offset()).Outage == quota.OutageStop
}
