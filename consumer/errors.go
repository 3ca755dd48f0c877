package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// The reasons for a refusal, all for errors.Is. Errors of a context come back
// as they are.
var (
	// ErrLimited: no permit now, or none in time. Every such error is a
	// *LimitError, which tells when to try again.
	ErrLimited = errors.New("limited")
	// ErrTooLarge: more permits at once than any window's share will hold, as
	// long as the policy and the number of instances stay as they are.
	ErrTooLarge = errors.New("more permits than a whole share")
	// ErrInvalid: an argument that can never be right.
	ErrInvalid = errors.New("invalid argument")
	// ErrQueueFull: Options.MaxWaiters callers wait already.
	ErrQueueFull = errors.New("too many callers wait")
	// ErrClosed: the limiter, or its source, is closed.
	ErrClosed = errors.New("limiter is closed")
	// ErrNoPolicy: no policy is set for the provider, or none that this version
	// can apply. It heals itself when one is set.
	ErrNoPolicy = errors.New("no policy is set")
	// ErrStale: the policy's outage rule is stop, and this instance cannot prove
	// its view recent, or has measured its clock to err by more than the policy's
	// clock_error. It heals itself when etcd can be reached, and the clock is right.
	ErrStale = errors.New("cannot prove that the share is still right")
)

// Reason says in one word why nothing was issued.
type Reason string

// The reasons of a LimitError.
const (
	// ReasonSpent: the window's share is used up, or others wait for it.
	ReasonSpent Reason = "share spent"
	// ReasonJoining: this instance has no share yet.
	ReasonJoining Reason = "joining"
	// ReasonDraining: the provider asked for a pause, see Limiter.Drain.
	ReasonDraining Reason = "draining"
	// ReasonPaused: the operator paused the provider.
	ReasonPaused Reason = "paused"
)

// The reasons of the other errors, by which Status counts refusals too.
const (
	ReasonTooLarge  Reason = "too large"  // ErrTooLarge
	ReasonQueueFull Reason = "queue full" // ErrQueueFull
	ReasonClosed    Reason = "closed"     // ErrClosed
	ReasonNoPolicy  Reason = "no policy"  // ErrNoPolicy
	ReasonStale     Reason = "stale"      // ErrStale
)

// LimitError is the ErrLimited that tells more. One is made per window and
// returned to everybody who is refused in it: do not change it.
type LimitError struct {
	Provider string
	// Total is the provider's limit per window, Share this instance's part of
	// it, Instances the number of those who share. They are of the limit with
	// the shortest window.
	Total, Share int64
	Instances    int
	// Window is that limit's window.
	Window quota.Window
	Reason Reason
	// RetryAt is the earliest instant at which a permit may be had, as far as is
	// known. Zero: not known.
	RetryAt time.Time
}

// Error names the total and the share, so that nobody takes one for the other.
func (e *LimitError) Error() string {
	return fmt.Sprintf("consumer: %s: %s: %s (this instance's share is %d of %d permits per %v, among %d instances)",
		e.Provider, ErrLimited, e.Reason, e.Share, e.Total, e.Window.Length, e.Instances)
}

// Is reports that the error is ErrLimited.
func (e *LimitError) Is(target error) bool { return target == ErrLimited }

// providerError is a sentinel with the provider's name, made once per limiter.
type providerError struct {
	provider string
	kind     error
	hint     string
}

func (e *providerError) Error() string {
	return "consumer: " + e.provider + ": " + e.kind.Error() + e.hint
}

func (e *providerError) Unwrap() error { return e.kind }
