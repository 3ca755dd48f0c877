package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// reasons are all that refusals are counted by.
var reasons = [...]Reason{
	ReasonSpent, ReasonJoining, ReasonDraining, ReasonPaused,
	ReasonTooLarge, ReasonQueueFull, ReasonClosed, ReasonNoPolicy, ReasonStale,
}

// Reasons returns all reasons by which Status counts refusals.
func Reasons() []Reason { return slices.Clone(reasons[:]) }

// refusals counts refused permits, since the start. Anybody adds; a reader sees
// each counter by itself, not all at one moment.
type refusals struct {
	by [len(reasons)]atomic.Int64 // one counter for each of reasons

	// inVain are the permits for which somebody was ready to wait and got none:
	// those of by that were not asked for with maxWait 0, and those whose context
	// ended first.
	inVain atomic.Int64
}

// of returns the counter of a reason.
func (r *refusals) of(why Reason) *atomic.Int64 {
	return &r.by[max(0, slices.Index(reasons[:], why))]
}

func (r *refusals) count() (total int64, by map[Reason]int64) {
	by = make(map[Reason]int64, len(reasons))
	for i, reason := range reasons {
		if n := r.by[i].Load(); n > 0 {
			by[reason] = n
			total += n
		}
	}
	return total, by
}

// reasonOf returns the reason for which an error of this package was given.
func reasonOf(err error) Reason {
	if limited, ok := errors.AsType[*LimitError](err); ok {
		return limited.Reason
	}
	switch {
	case errors.Is(err, ErrTooLarge):
		return ReasonTooLarge
	case errors.Is(err, ErrQueueFull):
		return ReasonQueueFull
	case errors.Is(err, ErrNoPolicy):
		return ReasonNoPolicy
	case errors.Is(err, ErrStale):
		return ReasonStale
	}
	return ReasonClosed
}

// timed returns f with the wait since the monotonic instant began reported
// before it.
func (k *core) timed(began int64, f func(Permit, error)) func(Permit, error) {
	return func(p Permit, err error) {
		k.waited(time.Duration(k.clock.Mono()-began), err)
		f(p, err)
	}
}

// LimitUse is what one limit of the policy holds in its current window.
type LimitUse struct {
	// Limit is the provider's, of which all instances together issue no more.
	Limit quota.Limit
	// Share is this instance's part of it, Used what it has issued, and Left what
	// this limit would let it issue now. Under the shapes sliding and bucket, Used
	// is what still counts: of the last window's length, and of the running one.
	Share, Used, Left int64
	// Start and End bound the window, in corrected wall-clock time. Under the
	// shapes sliding and bucket it is the one at whose end the next permit comes
	// back.
	Start, End time.Time
}

// Limits returns what each limit in force holds now, shortest window first. It
// costs less than Status.
func (l *Limiter) Limits() []LimitUse {
	k := l.core
	now := k.clock.Now()
	uses := k.gate.Windows(now)
	k.mu.Lock()
	defer k.mu.Unlock()
	policy, _ := k.mu.warrant.Policy()
	if policy == nil {
		return nil
	}
	var all []LimitUse
	for _, limit := range policy.LimitsAt(now.Mono + k.Offset()) {
		u := LimitUse{Limit: limit}
		for _, w := range uses {
			if w.Window.Length == limit.Window {
				u.Share, u.Used, u.Left = w.Share, w.Used, w.Left
				u.Start, u.End = time.Unix(0, w.Start), time.Unix(0, w.End)
			}
		}
		all = append(all, u)
	}
	return all
}

const (
	// stateLines is how many changes of state are logged within stateSpan. A
	// limiter that flaps would otherwise fill the log of everybody else; the
	// state in which it stays is logged in any case.
	stateLines = 5
	stateSpan  = 10 * time.Second
)

// stateLog bounds how often changes of state are logged.
type stateLog struct {
	changes int64 // noticed since the start
	quiet   int64 // of these, not logged since the last that was
	seen    quota.State
	span    int64 // monotonic instant at which the running span began
	lines   int   // logged in it
}

// admit notes that the state was seen at an instant, and reports whether it may
// be logged.
func (s *stateLog) admit(now int64, state quota.State) bool {
	if s.seen != state {
		s.seen = state
		s.changes++
		s.quiet++
	}
	if now-s.span >= int64(stateSpan) {
		s.span, s.lines = now, 0
	}
	return s.lines < stateLines
}

// noteState logs a change of state, once.
func (k *core) noteState(now clock.Instant) {
	k.mu.Lock()
	old, state := k.mu.state, k.stateLocked(now)
	log := k.mu.logged.admit(now.Mono, state) && old != state
	quiet := k.mu.logged.quiet - 1
	if log {
		k.mu.state = state
		k.mu.logged.quiet = 0
		k.mu.logged.lines++
	}
	k.mu.Unlock()
	if !log {
		return
	}
	level := slog.LevelInfo
	if state == quota.StateStale {
		level = slog.LevelWarn
	}
	st := k.status(now)
	attrs := []slog.Attr{
		slog.String("was", string(old)),
		slog.Int64("total", st.Total), slog.Int64("share", st.Share),
		slog.Int("instances", st.Instances), slog.Int64("revision", st.Revision),
	}
	if st.Problem != "" {
		attrs = append(attrs, slog.String("problem", st.Problem))
	}
	if todo := remedy(st); todo != "" {
		attrs = append(attrs, slog.String("todo", todo))
	}
	if quiet > 0 {
		attrs = append(attrs, slog.Int64("changes_not_logged", quiet))
	}
	k.log.LogAttrs(context.Background(), level, "limiter is "+string(state), attrs...)
}

// remedy says what somebody who reads of a state should do; empty for nothing.
func remedy(st Status) string {
	switch st.State {
	case quota.StateStale:
		return "see whether this host reaches etcd, and how long etcd takes to answer: quota-admin instances " + st.Provider
	case quota.StatePaused:
		return "none, if the operator meant it; quota-admin get " + st.Provider + " tells who and why"
	case quota.StateDraining:
		return "none: the provider asked for a pause; if it does so often, lower the limit"
	case quota.StateJoining:
		if st.PolicyRevision == 0 && st.Revision != 0 {
			return "set a limit: quota-admin set " + st.Provider + " 100/s"
		}
		return "none, unless it lasts longer than the settle time and one window"
	case quota.StateActive:
		if st.Share == 0 {
			return "none, if fewer permits than instances are meant; else raise the limit"
		}
	}
	return ""
}
