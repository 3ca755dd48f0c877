package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

const (
	// lookupEvery is the least time between two questions to etcd whether a provider
	// exists: whoever invents names costs etcd no more than that.
	lookupEvery = 5 * time.Millisecond
	// lookupWait is the longest that a question waits for those before it.
	lookupWait = 5 * time.Second
	// maxAsked bounds the providers that wait for that or are asked about: their callers may have gone.
	maxAsked = 1024
	// unknownFor is the time for which an unknown name is not looked up again, and
	// maxUnknown the number of names that are remembered.
	unknownFor = time.Second
	maxUnknown = 1024
)

// lookups finds out which providers exist, one at a time, in the order in which they are asked for.
type lookups struct {
	ask     func(ctx context.Context, provider string) error
	turn    *semaphore.Weighted
	unknown *lru.Cache[string, time.Time] // since when
}

func newLookups(ask func(context.Context, string) error) lookups {
	unknown, _ := lru.New[string, time.Time](maxUnknown) // fails for a size below 1 only
	return lookups{ask, semaphore.NewWeighted(1), unknown}
}

// known returns nil, or why the provider cannot be opened.
func (l *lookups) known(ctx context.Context, name string) error {
	if err := l.remembered(name); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	if err := l.turn.Acquire(waiting, 1); err != nil {
		if ctx.Err() != nil {
			return ErrClosed
		}
		return fmt.Errorf("etcd was asked about other providers for %v before %s: try again", lookupWait, name)
	}
	defer func() { time.AfterFunc(lookupEvery, func() { l.turn.Release(1) }) }()
	if err := l.remembered(name); err != nil { // somebody asked meanwhile
		return err
	}
	err := l.ask(ctx, name)
	if errors.Is(err, ErrUnknown) {
		l.unknown.Add(name, time.Now())
	}
	return err
}

func (l *lookups) remembered(name string) error {
	if since, ok := l.unknown.Get(name); ok && time.Since(since) < unknownFor {
		return Unknown(name)
	}
	return nil
}

// Forbidden returns the error, an ErrForbidden, of a provider which etcd, as it says, does not let quotad use.
func Forbidden(name, said string) error {
	return fmt.Errorf("%w %s: %s; %s", ErrForbidden, name, said, cause.GrantRole(name))
}

// Unknown returns the error, an ErrUnknown, of a provider that has no policy.
func Unknown(name string) error {
	return fmt.Errorf("%w for %q: quota-admin set %s LIMITS; quota-admin list shows all", ErrUnknown, name, cause.ShellWord(name))
}
