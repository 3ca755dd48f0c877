// Package admit is what the integrations share: a call takes its permits, and what
// the other side answers pauses the limiter.
package admit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// errNoLimiter is returned where nothing is configured: to let everything pass would
// hide the mistake.
var errNoLimiter = errors.New("there is no limiter: set Limiter or Pick")

// Options are the fields of which a client or a server has some; R is its request.
type Options[R any] struct {
	Package string // whose errors they are
	Limiter *consumer.Limiter
	Pick    func(R) *consumer.Limiter
	Key     func(R) string
	Cost    func(R) int64
	MaxWait time.Duration
	Margin  time.Duration
}

// ErrKey is the refusal of a request whose key has a name that no key can have. It is
// consumer.ErrInvalid too.
var ErrKey = fmt.Errorf("%w: the request's key", consumer.ErrInvalid)

// From returns the limiter, or its key with a name, if that is not empty.
func From(limiter *consumer.Limiter, key string) (consumer.Taker, error) {
	if key == "" {
		return limiter, nil
	}
	if err := protocol.ValidateKey(key); err != nil {
		return nil, fmt.Errorf("consumer: %w: %w", ErrKey, err)
	}
	return limiter.Key(key), nil
}

// Label returns the limiter's handle for a label, if that is not empty.
func Label(limiter *consumer.Limiter, label string) (*consumer.Limiter, error) {
	if label == "" {
		return limiter, nil
	}
	if err := protocol.ValidateLabel(label); err != nil {
		return nil, fmt.Errorf("consumer: %w: the request's %w", consumer.ErrInvalid, err)
	}
	return limiter.Label(label), nil
}

// Admitted is what a request has taken; the zero value if it needs nothing.
type Admitted struct {
	Limiter *consumer.Limiter
	From    consumer.Taker // Limiter, or a key of it
	Permit  consumer.Permit
}

// Take takes the request's permits.
func (o Options[R]) Take(ctx context.Context, r R) (a Admitted, err error) {
	limiter := o.Limiter
	if o.Pick != nil {
		limiter = o.Pick(r)
	} else if limiter == nil {
		return a, fmt.Errorf("%s: %w", o.Package, errNoLimiter)
	}
	cost := Cost(o.Cost, r)
	if limiter == nil || cost <= 0 {
		return a, nil
	}
	key := ""
	if o.Key != nil {
		key = o.Key(r)
	}
	a.Limiter = limiter
	if a.From, err = From(limiter, key); err != nil {
		return a, err
	}
	if o.Margin > 0 {
		a.Permit, err = o.takeValid(ctx, limiter, key, a.From, cost)
	} else {
		a.Permit, err = a.From.Take(ctx, cost, o.MaxWait)
	}
	return a, err
}

// Cost returns how many permits a request takes.
func Cost[R any](cost func(R) int64, r R) int64 {
	if cost == nil {
		return 1
	}
	return cost(r)
}

// takeValid takes permits whose window does not end within o.Margin. Permits that
// come too late are released and taken again: at once if newer ones can be had, and
// otherwise in the next window. from is the limiter, or its key.
func (o Options[R]) takeValid(ctx context.Context, limiter *consumer.Limiter, key string, from consumer.Taker, n int64) (p consumer.Permit, err error) {
	began, last := time.Now(), time.Time{}
	for {
		left := o.MaxWait
		if o.MaxWait != consumer.Forever {
			left -= time.Since(began)
		}
		p, err = from.Take(ctx, n, left)
		if err != nil || p.Valid(o.Margin) {
			return p, err
		}
		p.Release()
		if window := longest(p, limiter, from); o.Margin >= window {
			return p, fmt.Errorf("%s: %w: a margin of %v leaves nothing of a window of %v", o.Package, consumer.ErrInvalid, o.Margin, window)
		}
		if !p.Until().Equal(last) {
			last = p.Until()
			continue
		}
		// The window ends within the margin, also if the machine's clock is not the limiter's.
		wait := max(min(time.Until(last), o.Margin), time.Millisecond)
		if deadline, ok := ctx.Deadline(); wait > left || ok && wait > time.Until(deadline) {
			return p, consumer.LimitError{Provider: limiter.Status().Provider, Key: key, Reason: consumer.ReasonSpent, Asked: n, RetryAt: last}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return p, ctx.Err()
		}
	}
}

// longest returns the most time that permits like p can last: the shortest limit's window. A
// key's permits often have less, the part that the windows of the provider and the key share.
func longest(p consumer.Permit, limiter *consumer.Limiter, from consumer.Taker) time.Duration {
	key, ok := from.(consumer.Key)
	if !ok {
		return p.Until().Sub(p.Start())
	}
	var of quota.Policy
	for _, u := range limiter.Status().Limits {
		of.Limits = append(of.Limits, u.Limit)
	}
	window := consumer.Forever
	for _, l := range protocol.Short(&of) { // a second, if the provider's limits are all long
		window = min(window, l.Window)
	}
	for _, u := range key.Limits() {
		window = min(window, u.Limit.Window)
	}
	return window
}

// Throttled tells the limiter of a pause, at most of the given time. 0 stands for as
// long as the policy allows; a negative one means that the provider cannot ask for any.
func Throttled(limiter *consumer.Limiter, retryAfter, most time.Duration, why string) {
	if most > 0 {
		retryAfter = min(retryAfter, most)
	}
	if most >= 0 {
		limiter.Throttled(retryAfter, why)
	}
}

// Exhausted reports whether an error of a limiter is about the number of permits
// that were asked for, and not about the limiter's state.
func Exhausted(err error) bool {
	return errors.Is(err, consumer.ErrLimited) || errors.Is(err, consumer.ErrTooLarge) || errors.Is(err, consumer.ErrQueueFull)
}
