package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
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

// lookups finds out which providers exist, one at a time. Users take turns, and the
// processes of a user do: names that one invents do not hold up the others.
type lookups struct {
	ask     func(ctx context.Context, provider string) error
	turns   *fair.Turns
	unknown *lru.Cache[string, time.Time] // since when
}

func newLookups(ask func(context.Context, string) error) lookups {
	unknown, _ := lru.New[string, time.Time](maxUnknown) // fails for a size below 1 only
	return lookups{ask, fair.NewTurns(), unknown}
}

// known returns nil, or why the provider cannot be opened.
func (l *lookups) known(ctx context.Context, of fair.Client, name string) error {
	if err := l.remembered(name); err != nil {
		return err
	}
	switch err := l.turns.Enter(ctx, of, 1, lookupWait); {
	case errors.Is(err, fair.ErrLate):
		return fmt.Errorf("etcd has not answered within %v whether others exist, so %s waits", lookupWait, name)
	case err != nil:
		return err
	}
	defer func() { time.AfterFunc(lookupEvery, l.turns.Leave) }()
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
