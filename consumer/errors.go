package consumer

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/share"
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
	ErrNoPolicy = errors.New("no limit is set")
	// ErrStale: the policy's outage rule is stop, and this instance cannot prove its view
	// recent, or its measured clock error exceeds the policy's clock_error. It is also
	// the cause of a LimitError if the permits taken of a long limit are spent and etcd
	// is away. The limiter recovers when etcd can be reached and the clock is right.
	ErrStale = errors.New("stopped by the outage rule stop")
)

var errNilContext = fmt.Errorf("%w: ctx is nil: use context.Background()", ErrInvalid)

// Reason says in a word or two why nothing was issued.
type Reason string

// The reasons of a LimitError: what decided the refusal.
const (
	// ReasonSpent: this instance's share of a limit is used up, or holds fewer permits than the
	// call wants.
	ReasonSpent Reason = "share spent"
	// ReasonDebt: an earlier call cost more than it reserved, which is paid first: see
	// Permit.Settle and LimitError.Debt.
	ReasonDebt Reason = "debt"
	// ReasonQueue: callers of the same or a higher class wait before this one, and the first wants
	// more than there is: see LimitError.Ahead and First.
	ReasonQueue Reason = "queue"
	// ReasonKept: what is left of the window is kept for critical calls: see LimitError.Kept.
	ReasonKept Reason = "kept"
	// ReasonPacing: the window has more permits, and the policy releases them evenly.
	ReasonPacing Reason = "pacing"
	// ReasonJoining: this instance has no share, because it is new or is registered no more, and
	// its borrowed permits are spent. Or it has owned the key for less than the settle time.
	ReasonJoining Reason = "joining"
	// ReasonPause: the provider asked for a pause, or the application did: see
	// Limiter.Throttled and Limiter.PauseUntil.
	ReasonPause Reason = "pause"
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
	// Ahead, with ReasonQueue, is how many callers are before this one, and First how many permits
	// the first of them wants. Kept, with ReasonKept, is what is kept for critical calls.
	Ahead       int
	First, Kept int64
	// Cause says who asked for a pause, or why the instance has no share, such as missing rights
	// in etcd; nil if there is nothing to say.
	Cause error
}

// Error says what decided the refusal, the numbers, and when to try again.
func (e LimitError) Error() string {
	s := fmt.Sprintf("consumer: %s: no permit", e.Provider)
	if e.Key != "" {
		s += fmt.Sprintf(" for key %q", e.Key)
	}
	s += ": " + e.what()
	if _, ends := errors.AsType[ends](e.Cause); !ends && !e.RetryAt.IsZero() && e.DebtUntil.IsZero() {
		form := "15:04:05.000 UTC"
		if e.Window.Length >= 24*time.Hour {
			form = "2006-01-02 15:04 UTC"
		}
		s += "; next at " + e.RetryAt.UTC().Format(form)
	}
	return s
}

// ends is a cause whose text says until when it lasts.
type ends string

func (e ends) Error() string { return string(e) }

// worded is an error with a text of its own, and with what it is for errors.Is.
type worded struct {
	text string
	is   []error
}

func (e *worded) Error() string   { return e.text }
func (e *worded) Unwrap() []error { return e.is }

// what says what decided the refusal.
func (e *LimitError) what() string {
	limit, long := quota.Limit{Permits: e.Total, Window: e.Window.Length}, e.Window.Length > quota.MaxWindow
	switch {
	case e.Reason == ReasonDebt:
		return cause.Debt(e.Debt, e.DebtUntil)
	case e.Reason == ReasonQueue:
		return fmt.Sprintf("%s ahead, and the first wants %d", counted(e.Ahead, "caller is", "callers are"), e.First)
	case e.Reason == ReasonKept:
		return fmt.Sprintf("the last %d of this window are kept for critical calls", e.Kept)
	case e.Reason == ReasonPacing:
		return "the policy releases permits evenly, and callers that can wait should use Acquire"
	case e.Cause != nil:
		return e.Cause.Error()
	case e.Reason == ReasonJoining:
		return "this instance has no share yet, and nothing borrowed is left"
	case e.Reason == ReasonPause:
		return "the provider asked for a pause"
	case e.Reason == ReasonPaused:
		return cause.Paused(e.Provider, "", "", time.Time{})
	case long:
		return e.ofLong(limit)
	case e.Owner != "":
		return fmt.Sprintf("its owner %s has lent none; send the call there, or wait", e.Owner)
	case e.Window.Length == 0:
		return "the limit is used up"
	case e.Asked > e.Share && e.Instances > 1:
		return fmt.Sprintf("%d asked for, and this instance's share is %d of %v (%s); others may lend the rest within a window (maxWait), or ask for fewer",
			e.Asked, e.Share, limit, counted(e.Instances, "instance", "instances"))
	}
	what := "is used up"
	if e.Asked > 1 {
		what = fmt.Sprintf("has fewer than %d left", e.Asked)
	}
	if e.Instances == 1 {
		return fmt.Sprintf("the limit of %v %s", limit, what)
	}
	return fmt.Sprintf("this instance's share %s (%d of %v, %s)", what, e.Share, limit, counted(e.Instances, "instance", "instances"))
}

// ofLong says what is left of a limit of more than a minute.
func (e *LimitError) ofLong(limit quota.Limit) string {
	switch {
	case e.Taking && e.Remaining > 0:
		return fmt.Sprintf("none in hand of %v; %d are left and more are being fetched", limit, e.Remaining)
	case e.Taking:
		return fmt.Sprintf("none in hand of %v; more are being fetched", limit)
	case e.Remaining > 0:
		return fmt.Sprintf("%d left of %v, too few for %d", e.Remaining, limit, e.Asked)
	}
	return fmt.Sprintf("the limit of %v is used up", limit)
}

// counted returns a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
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
	// Key is the key that can have too few; empty if it is the provider.
	Key string
	// Asked is the number of permits requested. Largest is the most that one request can have
	// in the coming windows, those of announced limits included. From Settle, Asked is the cost of
	// the call, and Largest what is booked of it.
	Asked, Largest int64
	// Settled is the smallest limit, the provider's or the key's, of which ten windows are the most
	// that one call can cost. It is zero, but for an error of Settle.
	Settled quota.Limit
	// Limit is the smallest limit that has fewer permits than Asked; zero if all have more, and
	// only a share is too small.
	Limit quota.Limit
}

// Error names the number that decided.
func (e TooLargeError) Error() string {
	if e.Settled.Permits > 0 {
		return fmt.Sprintf("consumer: %s: settle: %d permits are booked of a cost of %d, which is above ten windows of %v: is the unit right?", e.Provider, e.Largest, e.Asked, e.Settled)
	}
	of := ""
	if e.Key != "" {
		of = fmt.Sprintf("key %q: ", e.Key)
	}
	if e.Limit.Permits > 0 {
		return fmt.Sprintf("consumer: %s: %s%d permits asked for, the limit is %v", e.Provider, of, e.Asked, e.Limit)
	}
	return fmt.Sprintf("consumer: %s: %s%d permits asked for, and this instance can have %d at once, as nothing is lent: ask for fewer, or use TryTake", e.Provider, of, e.Asked, e.Largest)
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

// refuseOne returns a class's refusal of one permit now, of a call that has taken what there was.
func (k *core) refuseOne(c window.Class) *refusal {
	if r := k.refusedIn(k.gate.Segment(), 1, c); r != nil {
		return r
	}
	return k.refuse(k.gate.Why(k.clock.Now(), 1, c), 1, c)
}

// refuse returns a class's refusal of n permits with a verdict.
func (k *core) refuse(v window.Verdict, n int64, c window.Class) *refusal {
	s := k.gate.Segment()
	if v.Refused() {
		if r := k.refusedIn(s, n, c); r != nil {
			return r
		}
	}
	reason, err := k.explain(v, n, c)
	r := &refusal{s, n, err, k.refused.of(c, reason)}
	if v.Refused() && k.gate.Lasts(c) {
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
	use := k.gate.Usage(now)
	switch v {
	case window.Closed:
		return ReasonClosed, named(ErrClosed, ": this program called Close or Shutdown")
	case window.Full:
		return ReasonQueueFull, named(ErrQueueFull, ": %d wait already (Options.MaxWaiters)", k.options.Load().MaxWaiters)
	case window.Displaced:
		return ReasonQueueFull, named(ErrQueueFull, ": displaced by a call of a higher class: %d wait (Options.MaxWaiters)", k.options.Load().MaxWaiters)
	case window.TooLarge:
		e := TooLargeError{Provider: k.provider, Asked: n, Largest: k.gate.Largest(now)}
		for _, u := range use.Limits {
			if n > u.Limit.Limit && (e.Limit.Permits == 0 || u.Limit.Limit < e.Limit.Permits) {
				e.Limit = quota.Limit{Permits: u.Limit.Limit, Window: u.Window.Length}
			}
		}
		return ReasonTooLarge, e
	}
	e := LimitError{Provider: k.provider, Asked: n, Reason: ReasonSpent}
	when, known := k.gate.Estimate(now, n, c)
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.mu.planner
	policy, _ := p.Policy()
	switch k.stateLocked(now) {
	case quota.StateClosed:
		return ReasonClosed, named(ErrClosed, ": this program called Close or Shutdown")
	case quota.StateStale:
		if err := k.staleLocked(now); err != nil {
			return ReasonStale, err
		}
	case quota.StatePausing:
		e.Reason, e.Cause = ReasonPause, ends(k.pauseLocked())
		when, known = max(when, p.PausedUntil()), true // also beyond the forecast
	case quota.StatePaused:
		e.Reason, e.Cause = ReasonPaused, k.pausedLocked()
	case quota.StateJoining:
		if p.Started() && (policy == nil || p.Reason(now.Mono) == share.ReasonUnsupported) {
			return ReasonNoPolicy, k.noPolicyLocked(now)
		}
		e.Reason, e.Cause = ReasonJoining, k.noShareLocked(now)
	}
	b := e.name(use.Limits, c)
	switch {
	case b == nil && e.Window.Length > 0 && e.Instances == 0 && e.Reason == ReasonSpent: // under hold, of a view without it
		e.Reason, e.Cause = ReasonJoining, k.noShareLocked(now)
	case e.Reason == ReasonSpent && v != window.Limited:
		e.decided(k, v, &use)
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

// decided names what decided a refusal beside a limit: see window.Verdict.
func (e *LimitError) decided(k *core, v window.Verdict, use *window.Usage) {
	switch v {
	case window.Owes:
		e.owes(k, use.Debt, use.DebtUntil)
	case window.Behind:
		e.Reason, e.Ahead, e.First = ReasonQueue, max(1, use.Waiting), use.Head
	case window.Kept:
		e.Reason = ReasonKept
		for _, u := range use.Limits {
			e.Kept = max(e.Kept, u.Kept)
		}
	case window.Paced:
		e.Reason = ReasonPacing
	}
}

// staleLocked says why this instance issues nothing under the outage rule stop; nil under another
// rule.
func (k *core) staleLocked(now clock.Instant) error {
	p := &k.mu.planner
	rules := p.Rules(now.Mono)
	if rules.Outage != quota.OutageStop {
		return nil
	}
	if bound, wrong := p.ClockWrong(rules); wrong {
		return fmt.Errorf("consumer: %s: %w: %s", k.provider, ErrStale, cause.Clock(bound, rules.ClockError))
	}
	return k.caused(fmt.Errorf("consumer: %s: %w: %s; it goes on by itself when etcd answers: quota-admin doctor", k.provider, ErrStale, k.silentLocked()))
}

// silentLocked says since when etcd has not answered.
func (k *core) silentLocked() string {
	proof, ok := k.mu.planner.Proved()
	if !ok {
		return cause.Unheard
	}
	return cause.Silent(time.Unix(0, proof.Wall))
}

// noPolicyLocked says why there is no limit that this instance can obey.
func (k *core) noPolicyLocked(now clock.Instant) error {
	if k.mu.trouble != nil {
		return k.caused(fmt.Errorf("consumer: %s: %w", k.provider, ErrNoPolicy))
	}
	return &worded{fmt.Sprintf("consumer: %s: %v", k.provider, k.problemLocked(now, quota.StateJoining)), []error{ErrNoPolicy}}
}

// noShareLocked says why this instance has no share: as Status.Problem, and since when that is so if
// it is a trouble.
func (k *core) noShareLocked(now clock.Instant) error {
	trouble := k.mu.trouble
	if trouble == nil {
		return k.problemLocked(now, k.stateLocked(now))
	}
	since := k.mu.troubled
	if began, _ := k.mu.planner.Began(); k.mu.planner.Started() {
		since = max(since, began)
	}
	return &worded{cause.NoShare(k.wall(since), trouble), []error{trouble}}
}

// pausedLocked says who paused the provider, when and why.
func (k *core) pausedLocked() error {
	policy, _ := k.mu.planner.Policy()
	return errors.New(cause.Paused(k.provider, policy.Author, policy.Reason, policy.Time))
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
			why = errors.New("etcd has not answered")
		}
		e.Reason, e.Cause = ReasonStale, &worded{fmt.Sprintf("none in hand of %s, and no more can be fetched: %v", b.Limit, why), []error{ErrStale, why}}
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
			e.Total, e.Share, e.Window, budget = u.Limit.Limit, u.Share, u.Window, u.Budget
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
