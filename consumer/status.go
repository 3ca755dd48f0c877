package consumer

import (
	"context"
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/warrant"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// Status is what a limiter knows and does at one moment.
type Status struct {
	Provider string
	State    quota.State
	// Problem says what is wrong, in a sentence; empty if nothing is.
	Problem string
	// Incarnation is the key of this instance; it changes when the instance had
	// to register anew.
	Incarnation string
	// Limits are the provider's limits in force, shortest window first.
	Limits []quota.Limit
	// Total and Share are the permits of the shortest limit's current window:
	// of the whole fleet, and of this instance.
	Total, Share int64
	// Instances is the number of those who share it.
	Instances int
	// Revision is the newest etcd revision applied, PolicyRevision that of the
	// policy.
	Revision, PolicyRevision int64
	// WindowStart and WindowEnd bound the current window of the shortest limit.
	WindowStart, WindowEnd time.Time
	// Used is the number of permits issued in it.
	Used int64
	// Issued and Refused count permits since the limiter was opened; Shadowed
	// those that were refused but passed, in shadow mode.
	Issued, Refused, Shadowed int64
	// RefusedBy divides Refused by reason; a reason that never was is missing.
	RefusedBy map[Reason]int64
	// Beyond counts permits issued beyond what the share allowed at that moment,
	// by a check of its own. It is 0, or there is a bug.
	Beyond int64
	// StateChanges counts the changes of State that were noticed.
	StateChanges int64
	// Waiting is the number of callers that wait.
	Waiting int
	// ClockError bounds the error of the clock, if ClockErrorKnown.
	ClockError      time.Duration
	ClockErrorKnown bool
	// ClockErrorBound is what the policy allows for it; 0 without a policy.
	ClockErrorBound time.Duration
	// ClockSource is what the clock follows: "ntp", servers of the session's own;
	// "kernel", the operating system's clock, whose error the kernel bounds; or
	// "system", that clock, of unknown error.
	ClockSource string
	// ProofAge is the age of the newest proof that the view is recent; negative
	// if there is none.
	ProofAge time.Duration
}

// Status returns what the limiter knows and does now.
func (l *Limiter) Status() Status {
	st := l.core.status(l.core.clock.Now())
	if l.closed.Load() {
		st.State = quota.StateClosed
	}
	return st
}

func (k *core) status(now clock.Instant) Status {
	use := k.gate.Usage(now)
	k.mu.Lock()
	defer k.mu.Unlock()
	policy, revision := k.mu.warrant.Policy()
	st := Status{
		Provider: k.provider, State: k.stateLocked(now), Incarnation: k.mu.self,
		Revision: k.mu.warrant.Revision(), PolicyRevision: revision,
		Instances: k.mu.warrant.Instances(),
		Share:     use.Share, Used: use.Used, Issued: use.Issued, Waiting: use.Waiting,
		Shadowed: k.shadowed.Load(), Beyond: use.Beyond, StateChanges: k.mu.logged.changes,
		ProofAge: -1,
	}
	st.Refused, st.RefusedBy = k.refused.count()
	if use.End > 0 {
		st.WindowStart, st.WindowEnd = time.Unix(0, use.Start), time.Unix(0, use.End)
	}
	if b := k.limitsLocked(now); len(b) > 0 {
		st.Total, st.Instances = b[0].Total, b[0].Instances
	}
	if policy != nil {
		st.ClockErrorBound = policy.ClockError
		st.Limits = append([]quota.Limit(nil), policy.LimitsAt(now.Mono+k.Offset())...)
	}
	if proof, ok := k.mu.warrant.Proof(); ok {
		st.ProofAge = time.Duration(max(0, now.Mono-proof.Mono, now.Wall-proof.Wall))
	}
	st.ClockError, st.ClockErrorKnown = k.clock.ErrorAt(now.Mono)
	st.ClockSource = string(k.clock.Health().Source)
	st.Problem = k.problemLocked(now)
	return st
}

// stateLocked returns the state at an instant; it depends on time alone once
// the views and the proof are given.
func (k *core) stateLocked(now clock.Instant) quota.State {
	if k.mu.closed {
		return quota.StateClosed
	}
	policy, _ := k.mu.warrant.Policy()
	if policy == nil {
		return quota.StateJoining
	}
	if policy.Mode == quota.ModePause {
		return quota.StatePaused
	}
	_, proved := k.mu.warrant.Proof()
	until, wallUntil := k.mu.warrant.FreshUntil(k.rulesLocked(now), k.clock)
	if proved && (now.Mono >= until || now.Wall >= wallUntil) {
		return quota.StateStale
	}
	if k.mu.drain > now.Mono {
		return quota.StateDraining
	}
	bounds := k.limitsLocked(now)
	if !proved || len(bounds) == 0 {
		return quota.StateJoining
	}
	for _, b := range bounds {
		if b.Reason != share.ReasonShare {
			return quota.StateJoining
		}
	}
	return quota.StateActive
}

// problemLocked says in a sentence what keeps the limiter from its share.
func (k *core) problemLocked(now clock.Instant) string {
	if k.mu.trouble != nil {
		return k.mu.trouble.Error()
	}
	if !k.mu.warrant.Started() {
		return "nothing was heard of etcd yet"
	}
	policy, _ := k.mu.warrant.Policy()
	if policy == nil {
		return "no policy is set"
	}
	for _, b := range k.limitsLocked(now) {
		switch b.Reason {
		case share.ReasonUnsupported:
			return "the policy needs what this version does not know"
		case share.ReasonNoPolicy:
			return "the policy is not in force, or not for the settle time yet"
		case share.ReasonJoining:
			return "waits until the other instances have settled"
		case share.ReasonLeft:
			return "has left"
		}
	}
	rules := k.rulesLocked(now)
	if _, wrong := warrant.ClockWrong(rules, k.clock); wrong {
		return k.clockProblem(rules)
	}
	if k.stateLocked(now) == quota.StateStale {
		return "cannot prove the view recent: etcd is out of reach, or lags"
	}
	return k.clockProblem(rules)
}

// Report implements feed.Sink.
func (k *core) Report(now clock.Instant) quota.Report {
	k.noteState(now)
	k.noteClock(now)
	st, use := k.status(now), k.gate.Usage(now)
	k.mu.Lock()
	demand := k.mu.demand.Observe(now.Mono, window.Calls{
		Issued: use.Issued, Refused: st.Refused + st.Shadowed, InVain: k.refused.inVain.Load(), Waiting: use.WaitingFor,
	})
	k.mu.Unlock()
	r := quota.Report{
		Schema: quota.Schema, State: st.State, Revision: st.Revision, PolicyRevision: st.PolicyRevision,
		Total: st.Total, Share: st.Share, Instances: st.Instances,
		Used: use.Issued, Refused: st.Refused, Shadowed: st.Shadowed, Waiting: int64(st.Waiting), Demand: demand,
		ClockError: "unknown", ClockSource: st.ClockSource, ProofAge: "none", Problem: st.Problem,
		Window: st.WindowEnd.Sub(st.WindowStart),
		Time:   time.Unix(0, k.clock.WallAt(now.Mono)).UTC(),
	}
	if use.End > 0 {
		r.WindowStart, r.UsedBefore = time.Unix(0, use.Start).UTC(), use.Issued-use.Used
	}
	if st.ClockErrorKnown {
		r.ClockError = st.ClockError.Round(time.Microsecond).String()
	}
	if st.ProofAge >= 0 {
		r.ProofAge = st.ProofAge.Round(time.Millisecond).String()
	}
	return r
}

// Ready waits until the limiter may issue permits: it is active, or shadow mode
// lets everything pass. It returns an error of ctx, or ErrClosed.
func (l *Limiter) Ready(ctx context.Context) error {
	k := l.core
	for {
		now := k.clock.Now()
		k.mu.Lock()
		state, changed := k.stateLocked(now), k.mu.changed
		edge := k.nextEdgeLocked(now)
		k.mu.Unlock()
		switch {
		case l.closed.Load() || state == quota.StateClosed:
			return k.errs.closed
		case state == quota.StateActive || k.shadow.Load():
			k.noteState(now)
			return nil
		}
		timer := time.NewTimer(time.Duration(edge - now.Mono))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// nextEdgeLocked returns the next instant at which time alone can change the
// state: the start of a window, or the end of a drain.
func (k *core) nextEdgeLocked(now clock.Instant) int64 {
	edge := now.Mono + int64(quota.MaxWindow)
	for _, b := range k.limitsLocked(now) {
		edge = min(edge, b.window.End()-k.Offset())
	}
	if k.mu.drain > now.Mono {
		edge = min(edge, k.mu.drain)
	}
	return max(edge, now.Mono+1)
}

// Delay estimates how long a newcomer who asks for one permit now would wait: 0
// if there is one, and math.MaxInt64 if no end can be told. It suits a decision
// to pause a partition rather than to wait.
func (l *Limiter) Delay() time.Duration { return l.DelayN(1) }

// DelayN is Delay for n permits at once. For more than a whole share
// (ErrTooLarge) it is math.MaxInt64; for n <= 0 it is 0.
func (l *Limiter) DelayN(n int64) time.Duration {
	k := l.core
	if n <= 0 {
		return 0
	}
	if c := k.ceiling.Load(); l.closed.Load() || n > 1 && c > 0 && n > c {
		return math.MaxInt64
	}
	now := k.clock.Now()
	when, known := k.gate.Estimate(now, n)
	if !known {
		return math.MaxInt64
	}
	return time.Duration(max(0, when-now.Mono))
}

// Drain makes this instance issue nothing until the given instant, because the
// provider asked for it (429 with Retry-After). The latest call wins; an
// instant that has passed ends the pause.
func (l *Limiter) Drain(until time.Time) {
	k := l.core
	k.mu.Lock()
	k.mu.drain = 0
	if d := time.Until(until); d > 0 {
		now := k.clock.Mono()
		k.mu.drain = now + min(int64(d), math.MaxInt64-now)
	}
	k.signalLocked()
	k.news()
}
