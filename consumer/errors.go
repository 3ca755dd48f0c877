package consumer

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
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
	// instances change: while only etcd's silence prevents loans, that is ErrStale. Every such
	// error is a TooLargeError, which has the largest number. Ask for fewer, or use TryTake.
	// Permit.Settle returns it for a cost above ten windows of the smallest limit.
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
	// the cause of a LimitError if etcd is away, and no permits of a long limit are in hand, no places of
	// one in flight, or too few for a large call, which others would lend. The limiter recovers when
	// etcd can be reached and the clock is right.
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
	// ReasonInFlight: as many calls are under way as the limit allows, or the other instances have
	// what is left of it in hand. RetryAt is zero, since it is not known when a call ends, unless
	// more is being taken.
	ReasonInFlight Reason = "in flight"
	// ReasonJoining: this instance has no share, because it is new or is registered no more, and
	// its borrowed permits are spent. Or it has owned the key for less than the settle time, or the
	// provider's first limits by key have been set for less.
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
	// instance's part of it, or the permits that it has taken of a long limit: quota.Limit.Long.
	// Instances is the number of instances that share it. All are 0 if no limit is known. Total
	// and Share are 0 too if all limits are long and have enough left.
	Total, Share int64
	Instances    int
	// Remaining, of a long limit, is the number of permits that no instance had taken at the
	// last read of etcd. It is negative before the first read, and 0 for other limits. Taking
	// says that more is being taken.
	Remaining int64
	Taking    bool
	// Window is that limit's window. Phase, Sliding and InFlight are as in quota.Limit: Window has no
	// phase, a limit that slides counts in each window of its length, and one in flight in none.
	Window            quota.Window
	Phase             time.Duration
	Sliding, InFlight bool
	// Removed says that the policy has that limit no more. It still binds, until its window ends.
	Removed bool
	// RetryAt is the earliest known time at which Asked permits may be available; zero if
	// unknown, as while an operator has paused the provider, or is to give the count of a limit
	// after a restore of etcd, and for a limit of 0. Where others may lend, it is the next window: they
	// have them if they are idle. So it is of a key that another instance owns. Of a key whose owner has
	// crashed it is when the new owner's share begins, unless another owner may lend.
	// A call for more than Share also needs a wait of its own: see Limiter.Take.
	RetryAt time.Time
	// Debt, with ReasonDebt, is the number of permits that earlier calls have cost beyond those
	// taken for them, and that are still to be paid. DebtUntil is about when they are, and RetryAt is not
	// before. It is zero if unknown: where others lend, a whole window shows first how much they do.
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
	if _, ends := errors.AsType[ends](e.Cause); !ends && !e.aboveShare() && !e.RetryAt.IsZero() && !e.RetryAt.Equal(e.DebtUntil) && e.Reason != ReasonStale { // then RetryAt is when etcd is asked again
		form := "15:04:05.000 UTC"
		if e.Window.Length >= 24*time.Hour {
			form = "2006-01-02 15:04 UTC"
		}
		s += "; next at " + e.RetryAt.Round(time.Millisecond).UTC().Format(form) // an edge of a window shows as such
	}
	return s
}

// ends is a cause whose text says until when it lasts, or that it is over.
type ends string

func (e ends) Error() string { return string(e) }

// what says what decided the refusal.
func (e *LimitError) what() string {
	limit := e.limit()
	switch {
	case e.Reason == ReasonDebt:
		return cause.Debt(e.Debt, e.DebtUntil)
	case e.Reason == ReasonQueue:
		s := fmt.Sprintf("%s ahead, and the first wants %d", counted(e.Ahead, "caller is", "callers are"), e.First)
		if e.Share > 0 && e.First > e.Share && !limit.Long() {
			s += fmt.Sprintf(", more than this instance's share of %d", e.Share)
		}
		return s
	case e.Reason == ReasonKept:
		return fmt.Sprintf("the last %d of this window are kept for critical calls", e.Kept)
	case e.Reason == ReasonPacing:
		return "the policy releases permits evenly, and callers that can wait should use Acquire"
	case e.Cause != nil:
		return e.Cause.Error()
	case e.Reason == ReasonInFlight && !e.Taking:
		if e.Asked > 1 {
			return fmt.Sprintf("fewer than %d of %v are free", e.Asked, limit)
		}
		return fmt.Sprintf("all of %v are taken", limit)
	case e.Reason == ReasonJoining:
		return "this instance has no share yet, and nothing borrowed is left"
	case e.Reason == ReasonPause:
		return "the provider asked for a pause"
	case e.Reason == ReasonPaused:
		return cause.Paused(e.Provider, "", "", time.Time{})
	case e.blocked():
		by := "set " + cause.ShellWord(e.Provider)
		if e.Key != "" {
			by = "keys " + by + " " + cause.ShellWord(e.Key)
		}
		return fmt.Sprintf("%s: an operator raises it by quota-admin %s LIMITS", cause.PermitsNone(limit), by)
	case limit.Long():
		return e.ofLong(limit)
	case e.Owner != "":
		return fmt.Sprintf("its owner %s has lent none; send the call there, or wait", e.Owner)
	case e.Window.Length == 0:
		return "the limit is used up"
	case e.Removed:
		return fmt.Sprintf("this instance has not enough left of %v, a limit that was removed and still binds", limit)
	case e.Asked == 1 && e.Share == 0 && e.Total > 0 && e.Total < int64(e.Instances):
		return fmt.Sprintf("this instance's share is 0 of %v (%d instances); others may lend a permit within a window (maxWait), and each has one only by a longer window", limit, e.Instances)
	case e.Asked == 1 && e.Share == 0 && e.Total > 0 && e.Instances > 1:
		return fmt.Sprintf("this instance's share is 0 of %v (%d instances); others may lend a permit within a window (maxWait)", limit, e.Instances)
	case e.aboveShare():
		windows := (e.Asked-1)/max(1, e.Share) + 1
		return fmt.Sprintf("%d asked for, and this instance's share is %d of %v (%s); others lend the rest to about one such call in %d windows, if it waits for more than 2 (maxWait); or ask for fewer",
			e.Asked, e.Share, limit, counted(e.Instances, "instance", "instances"), windows)
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

// aboveShare reports whether a share below Asked decided. What RetryAt is then says little: see there.
func (e *LimitError) aboveShare() bool {
	if limit := e.limit(); e.Window.Length == 0 || e.Removed || limit.Long() {
		return false
	}
	return e.Reason == ReasonSpent && e.Cause == nil && e.Owner == "" && e.Instances > 1 && e.Asked > max(1, e.Share)
}

// blocked reports whether a limit without permits decided, by which operators block a provider or a key.
func (e *LimitError) blocked() bool {
	return e.Reason == ReasonSpent && e.Cause == nil && e.Window.Length > 0 && e.Total == 0 && !e.Removed
}

// limit returns the limit that it names; zero if that is none.
func (e *LimitError) limit() quota.Limit {
	return quota.Limit{Permits: e.Total, Window: e.Window.Length, Phase: e.Phase, Sliding: e.Sliding, InFlight: e.InFlight}
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
func counted[N int | int64](n N, one, many string) string {
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
	// Burst, under quota.ShapeBucket, is the policy's burst, if that is what is too small: Largest is this
	// instance's share of it, less what comes within the policy's guard. It is 0 otherwise.
	Burst int64
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
	if e.Burst > 0 {
		return fmt.Sprintf("consumer: %s: %s%d permits asked for, and this instance can have %d at once, its share of the burst of %d less the guard: ask for fewer, use TryTake, or raise --burst", e.Provider, of, e.Asked, e.Largest, e.Burst)
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
func (k *core) refusedIn(s *window.Segment, n int64, c queue.Class) *refusal {
	if r := k.refusal[c].Load(); r != nil && r.segment == s && r.n == n {
		return r
	}
	return nil
}

// forgetRefusals has the next calls asked for again, as if none had been refused.
func (k *core) forgetRefusals() {
	for i := range k.refusal {
		if r := &k.refusal[i]; r.Load() != nil {
			r.Store(nil)
		}
	}
}

// refuseOne returns a class's refusal of one permit now, of a call that has taken what there was.
func (k *core) refuseOne(c queue.Class) *refusal {
	if r := k.refusedIn(k.gate.Segment(), 1, c); r != nil {
		return r
	}
	r, _ := k.refuse(k.gate.Why(k.clock.Now(), 1, c), 1, c)
	return r
}

// refuse returns a class's refusal of n permits with a verdict. late says that they have come since that was
// given.
func (k *core) refuse(v queue.Verdict, n int64, c queue.Class) (r *refusal, late bool) {
	s := k.gate.Segment()
	if v.Refused() {
		if r := k.refusedIn(s, n, c); r != nil {
			return r, false
		}
	}
	reason, late, err := k.explain(v, n, c)
	r = &refusal{s, n, err, k.refused.of(c, reason)}
	if v.Refused() && !late && k.gate.Lasts(c) {
		k.refusal[c].Store(r)
		if !k.looker.IsSet() && k.gate.Borrows() {
			k.refusal[c].Store(nil) // look went quiet meanwhile: the next one arms it again
		}
	}
	return r, late
}
