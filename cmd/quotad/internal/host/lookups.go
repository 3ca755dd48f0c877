package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// lookupEvery is the least time between two questions to etcd whether a provider
	// exists: a stranger that invents names costs etcd no more than that.
	lookupEvery = 5 * time.Millisecond
	// lookupWait is the longest that a caller waits for the questions of others.
	lookupWait = 5 * time.Second
	// unknownFor is the time for which an unknown name is not looked up again, and
	// maxUnknown the number of names that are remembered.
	unknownFor = time.Second
	maxUnknown = 1024
)

// lookups finds out which providers exist, one at a time.
type lookups struct {
	ask     func(ctx context.Context, provider string) error
	turn    chan struct{}
	unknown *lru.Cache[string, time.Time] // since when
}

func newLookups(ask func(context.Context, string) error) lookups {
	unknown, _ := lru.New[string, time.Time](maxUnknown) // fails for a size below 1 only
	return lookups{ask, make(chan struct{}, 1), unknown}
}

// known returns nil, or why the provider cannot be opened.
func (l *lookups) known(ctx context.Context, name string) error {
	if err := l.remembered(name); err != nil {
		return err
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lookupWait):
		return fmt.Errorf("etcd has not answered within %v whether others exist, so %s waits", lookupWait, name)
	}
	defer func() { time.AfterFunc(lookupEvery, func() { <-l.turn }) }()
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
		return fmt.Errorf("%w %s: set its policy with quota-admin set", ErrUnknown, name)
	}
	return nil
}
