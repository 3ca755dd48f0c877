package consumer

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// The reasons for a refusal, all for errors.Is. Errors of a context come back
// as they are.
var (
	// ErrLimited: no permit now, or none in time. Every such error is a LimitError, which
	// has the time to try again.
	ErrLimited = errors.New("limited")
	// ErrTooLarge: one call wants more permits than the limit has. Where nothing is lent, it
	// wants more than any share of the coming windows, unless the policy or the other
	// instances change. Every such error is a TooLargeError, which has the largest number.
	// Ask for fewer, or use TryTake. Permit.Settle returns it for a cost above ten windows of the
	// smallest limit.
	ErrTooLarge = errors.New("more permits than a share will hold")
	// ErrTooManyKeys: the key is new, and the instance has as many in use as the policy's
	// keys.most. The limiter recovers when windows of other keys have ended.
	ErrTooManyKeys = errors.New("too many keys are in use")
	// ErrInvalid: an argument that is never valid, such as 0 permits or an empty name of a
	// key. The error names the value and the remedy.
	ErrInvalid = errors.New("invalid argument")
	// ErrQueueFull: Options.MaxWaiters callers wait already, or one of a higher class took
	// the caller's place.
	ErrQueueFull = errors.New("too many callers wait")
	// ErrClosed: the limiter, or its source, is closed.
	ErrClosed = errors.New("limiter is closed")
	// ErrNoPolicy: no policy is set for the provider, or none that this version can
	// apply, or, for a key, none with limits by key. The limiter recovers when one is set.
	ErrNoPolicy = errors.New("no policy is set")
	// ErrStale: the policy's outage rule is stop, and this instance cannot prove its view
	// recent, or its measured clock error exceeds the policy's clock_error. It is also
	// the cause of a LimitError if the permits taken of a long limit are spent and etcd
	// is away. The limiter recovers when etcd can be reached and the clock is right.
	ErrStale = errors.New("cannot prove that the share is still right")
)

var errNilContext = fmt.Errorf("%w: ctx is nil: use context.Background()", ErrInvalid)

// Reason says in a word or two why nothing was issued.
type Reason string

// The reasons of a LimitError.
const (
	// ReasonSpent: the window's share is used up, or what is left is kept for critical calls,
	// or others of the same or a higher class wait for it.
	ReasonSpent Reason = "share spent"
	// ReasonDebt: earlier calls cost more than the permits that were taken for them. Their debt
	// is paid first: see Permit.Settle and LimitError.Debt.
	ReasonDebt Reason = "debt"
	// ReasonJoining: this instance has no share yet, and its borrowed permits are spent. Or
	// it has owned the key for less than the settle time.
	ReasonJoining Reason = "joining"
	// ReasonDraining: the provider asked for a pause, or the application did: see
	// Limiter.Throttled and Limiter.PauseUntil.
	ReasonDraining Reason = "draining"
	// ReasonPaused: the operator paused the provider.
	ReasonPaused Reason = "paused"
)

// The reasons of the other errors, by which Status counts refusals too.
const (
	ReasonTooLarge  Reason = "too large"  // ErrTooLarge, within the limit: see Status.Impossible
	ReasonQueueFull Reason = "queue full" // ErrQueueFull
	ReasonClosed    Reason = "closed"     // ErrClosed
	ReasonNoPolicy  Reason = "no policy"  // ErrNoPolicy
	ReasonStale     Reason = "stale"      // ErrStale
)

// LimitError is ErrLimited with its numbers. It is a value: changing it affects no other
// caller.
type LimitError struct {
	Provider string
	// Key is the key that has too few permits; empty if it is the provider.
	Key string
	// Owner is the name of the instance that owns the key, if this one does not and so has
	// only permits that others lend: see Key.Owner.
	Owner  string
	Reason Reason
	// Asked is the number of permits requested.
	Asked int64
	// Total is the limit that has too few permits left, per window. Share is this
	// instance's part of it, or the permits that it has taken of a long limit. Instances
	// is the number of instances that share it. All are 0 if no limit is known. Total and
	// Share are 0 too if all windows are above quota.MaxWindow and have enough left.
	Total, Share int64
	Instances    int
	// Remaining, of a window above quota.MaxWindow, is the number of permits that no
	// instance had taken at the last read of etcd. It is negative before the first read,
	// and 0 for other windows. Taking says that more is being taken.
	Remaining int64
	Taking    bool
	// Window is that limit's window.
	Window quota.Window
	// RetryAt is the earliest known time at which Asked permits may be available; zero if
	// unknown.
	RetryAt time.Time
	// Debt, with ReasonDebt, is the number of permits that earlier calls have cost beyond those
	// taken for them, and that are still to be paid. DebtUntil is about when the own share alone
	// has paid them; zero if unknown. What others lend pays sooner.
	Debt      int64
	DebtUntil time.Time
	// Cause is the reason why the instance has no share, such as missing rights in
	// etcd; nil if nothing is wrong.
	Cause error
}

// Error names both the total and the share: they are easily confused.
func (e LimitError) Error() string {
	s := fmt.Sprintf("consumer: %s: %s: ", e.Provider, ErrLimited)
	if e.Key != "" {
		s += fmt.Sprintf("key %q: ", e.Key)
	}
	if e.Window.Length > quota.MaxWindow && e.Reason == ReasonSpent {
		s += fmt.Sprintf("this instance has taken %d of %d permits per %v; %s", e.Share, e.Total, e.Window.Length, e.rest())
	} else if e.Owner != "" {
		s += "instance " + e.Owner + " owns it"
	} else if e.Reason == ReasonDebt {
		return s + inDebt(e.Debt, e.DebtUntil)
	} else {
		s += string(e.Reason)
	}
	if e.Window.Length > 0 && e.Window.Length <= quota.MaxWindow {
		s += fmt.Sprintf(": this instance's share is %d of %d permits per %v, among %d instances", e.Share, e.Total, e.Window.Length, e.Instances)
	}
	if !e.RetryAt.IsZero() {
		s += "; try again at " + e.RetryAt.UTC().Format("15:04:05.000 UTC")
	}
	if e.Reason == ReasonPaused {
		s += "; resume with quota-admin resume " + e.Provider
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// inDebt says a debt, and about until when it is paid.
func inDebt(debt int64, until time.Time) string {
	s := fmt.Sprintf("an earlier call cost more than it reserved; %d of that are still to be paid", debt)
	if !until.IsZero() {
		s += ", by about " + until.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return s
}

// rest says what becomes of the permits of a long limit that are not taken.
func (e *LimitError) rest() string {
	switch {
	case e.Taking && e.Remaining > 0:
		return fmt.Sprintf("%d left, taking more", e.Remaining)
	case e.Taking:
		return "taking more"
	case e.Remaining > 0:
		return fmt.Sprintf("%d left, too few for %d", e.Remaining, e.Asked)
	}
	return "none left"
}

// Unwrap returns ErrLimited, and the cause if there is one.
func (e LimitError) Unwrap() []error {
	if e.Cause == nil {
		return limited[:]
	}
	return []error{ErrLimited, e.Cause}
}

// limited is what most LimitErrors unwrap to, so that a look at one allocates nothing.
var limited = [...]error{ErrLimited}

// TooLargeError is ErrTooLarge with its numbers.
type TooLargeError struct {
	Provider string
	// Asked is the number of permits requested. Largest is the most that one request can have
	// in the coming windows, those of announced limits included. From Settle, Asked is the cost of
	// the call, and Largest what is booked of it.
	Asked, Largest int64
	// Settled is the smallest limit, the provider's or the key's, of which ten windows are the most
	// that one call can cost. It is zero, but for an error of Settle.
	Settled quota.Limit
}

// Error names both numbers.
func (e TooLargeError) Error() string {
	if e.Settled.Permits > 0 {
		return fmt.Sprintf("consumer: %s: settle: %d permits are booked of a cost of %d, which is above ten windows of %v: is the unit right?", e.Provider, e.Largest, e.Asked, e.Settled)
	}
	return fmt.Sprintf("consumer: %s: %v: %d asked for, at most %d can be had at once", e.Provider, ErrTooLarge, e.Asked, e.Largest)
}

// Unwrap returns ErrTooLarge.
func (e TooLargeError) Unwrap() error { return ErrTooLarge }

// refusal is the error for all calls of a class that are refused the same number of permits
// in one segment: made once, so that refusing allocates nothing.
type refusal struct {
	segment *window.Segment
	n       int64
	err     error
	count   *atomic.Int64 // of the permits refused for this reason
}

// refusedIn returns a class's refusal of n permits in the segment if it was made
// before, or nil.
func (k *core) refusedIn(s *window.Segment, n int64, c window.Class) *refusal {
	if r := k.refusal[c].Load(); r != nil && r.segment == s && r.n == n {
		return r
	}
	return nil
}

// forgetRefusals has the next calls asked for again, as if none had been refused.
func (k *core) forgetRefusals() {
	for i := range k.refusal {
		k.refusal[i].Store(nil)
	}
}

// refuse returns a class's refusal of n permits with a verdict.
func (k *core) refuse(v window.Verdict, n int64, c window.Class) *refusal {
	s := k.gate.Segment()
	if v == window.Limited {
		if r := k.refusedIn(s, n, c); r != nil {
			return r
		}
	}
	reason, err := k.explain(v, n, c)
	r := &refusal{s, n, err, k.refused.of(c, reason)}
	if v == window.Limited && k.gate.Lasts(c) {
		k.refusal[c].Store(r)
		if !k.looker.isSet() && k.gate.Borrows() {
			k.refusal[c].Store(nil) // look went quiet meanwhile: the next one arms it again
		}
	}
	return r
}

// explain is the one table from a verdict, and the state where the verdict is
// Limited, to an error.
func (k *core) explain(v window.Verdict, n int64, c window.Class) (Reason, error) {
	named := func(kind error, hint string, arguments ...any) error {
		return fmt.Errorf("consumer: %s: %w"+hint, append([]any{k.provider, kind}, arguments...)...)
	}
	now := k.clock.Now()
	switch v {
	case window.Closed:
		return ReasonClosed, named(ErrClosed, "")
	case window.Full:
		return ReasonQueueFull, named(ErrQueueFull, ": %d wait already", k.options.Load().MaxWaiters)
	case window.TooLarge:
		return ReasonTooLarge, TooLargeError{Provider: k.provider, Asked: n, Largest: k.gate.Largest(now)}
	}
	e := LimitError{Provider: k.provider, Asked: n, Reason: ReasonSpent}
	when, known := k.gate.Estimate(now, n, c)
	use := k.gate.Usage(now)
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.mu.planner
	policy, _ := p.Policy()
	switch k.stateLocked(now) {
	case quota.StateClosed:
		return ReasonClosed, named(ErrClosed, "")
	case quota.StateStale:
		rules := p.Rules(now.Mono)
		if _, wrong := p.ClockWrong(rules); wrong && rules.Outage == quota.OutageStop {
			return ReasonStale, named(ErrStale, " (outage rule stop): the clock's error exceeds the policy's clock_error")
		}
		if rules.Outage == quota.OutageStop {
			return ReasonStale, k.caused(named(ErrStale, " (outage rule stop): etcd cannot be reached"))
		}
	case quota.StateDraining:
		e.Reason = ReasonDraining
		when, known = max(when, p.PausedUntil()), true // also beyond the forecast
	case quota.StatePaused:
		e.Reason = ReasonPaused
	case quota.StateJoining:
		if policy == nil && p.Started() {
			return ReasonNoPolicy, k.caused(named(ErrNoPolicy, ": set one with quota-admin set"))
		}
		e.Reason, e.Cause = ReasonJoining, k.mu.trouble
	}
	b := e.name(use.Limits, c)
	switch {
	case b == nil && e.Window.Length > 0 && e.Instances == 0 && e.Reason == ReasonSpent: // under hold, of a view without it
		e.Reason, e.Cause = ReasonJoining, k.mu.trouble
	case use.Debt > 0 && e.Reason == ReasonSpent:
		e.owes(k, use.Debt, use.DebtUntil)
	case b != nil:
		when, known = k.explainBudgetLocked(&e, b, when, known)
	}
	if b == nil {
		e.leaveOut(use.Limits)
	}
	if known {
		e.RetryAt = k.wall(when)
	}
	return e.Reason, e
}

// explainBudgetLocked explains a refusal by a long limit, the provider's or that of a key. It returns
// when to try again, when by all that is known without etcd's next answer.
func (k *core) explainBudgetLocked(e *LimitError, b *protocol.BudgetUse, when int64, known bool) (int64, bool) {
	end := b.End - k.clock.Offset()
	switch {
	case b.Withheld != "" && e.Key != "":
		e.Cause = withheldKeyError(k.provider, e.Key, b)
	case b.Withheld != "":
		e.Cause = withheld(k.provider, b)
	case b.Spent || known && when >= end:
	case b.Away:
		why := k.mu.trouble
		if why == nil {
			why = errors.New("etcd cannot be reached")
		}
		e.Reason, e.Cause = ReasonStale, fmt.Errorf("%w: the permits taken of the limit per %v are spent, and no more can be taken: %w", ErrStale, b.Window, why)
		return end, true
	default: // it is being taken
		e.Taking = true
		return max(when, k.clock.Mono()+int64(taking)), true
	}
	return when, known
}

// owes gives a refusal the reason that a debt is paid first, until about a monotonic instant.
func (e *LimitError) owes(k *core, debt, until int64) {
	e.Reason, e.Debt, e.DebtUntil = ReasonDebt, debt, k.wallOf(until)
}

// wallOf is wall, or zero for Forever.
func (k *core) wallOf(at int64) (t time.Time) {
	if at != window.Forever {
		t = k.wall(at)
	}
	return t
}

// taking is about how long it takes to take more permits of a long limit.
const taking = 100 * time.Millisecond

// withheld says why nothing more of a long limit is handed out, and the way out.
func withheld(provider string, b *protocol.BudgetUse) error {
	return fmt.Errorf("nothing more of %s is handed out in this window: %s: give the provider's count: quota-admin budget %s --used N --limit %[1]s", b.Limit, b.Withheld, provider)
}

// withheldKeyError says why nothing more of a long limit of a key is handed out, and the way out.
func withheldKeyError(provider, key string, b *protocol.BudgetUse) error {
	return fmt.Errorf("nothing more of %s is handed out for this key in this window: %s: give the provider's count: quota-admin budget %s --key %q --used N --limit %[1]s, or --keys-unused if no key was used since the backup", b.Limit, b.Withheld, provider, key)
}

// caused adds to err the reason why the instance has no share, if it is known.
func (k *core) caused(err error) error {
	if k.mu.trouble == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, k.mu.trouble)
}

// leaveOut names no limit where nobody has set the shortest one.
func (e *LimitError) leaveOut(limits []window.LimitUsage) {
	if len(limits) > 0 && limits[0].Free() {
		e.Total, e.Share, e.Window = 0, 0, quota.Window{}
	}
}

// name names the limit that has too little left for the longest; the shortest one if none
// has. It returns the use of that, if it is a budget.
func (e *LimitError) name(limits []window.LimitUsage, c window.Class) (budget *protocol.BudgetUse) {
	ends := int64(0)
	for i, u := range limits {
		if c == window.Critical {
			u.Kept = 0
		}
		short, end := u.Left-u.Kept < e.Asked, u.Window.End()
		if u.Budget != nil {
			end = u.End // by the policy's zone
		}
		if i == 0 || short && end > ends {
			e.Total, e.Share, e.Window, budget = u.Total, u.Share, u.Window, u.Budget
			if e.Remaining = 0; budget == nil {
				e.Instances = u.Instances
			} else if !budget.Spent {
				e.Remaining = budget.Left
			}
		}
		if short {
			ends = max(ends, end)
		}
	}
	return budget
}
