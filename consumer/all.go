package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Taker is a *Limiter or a Key: TakeAll takes from either.
type Taker interface {
	Take(ctx context.Context, n int64, maxWait time.Duration) (Permit, error)
	delay(n int64) time.Duration   // as Limiter.Delay
	names() (provider, key string) // the provider is empty if the value cannot be used
}

func (l *Limiter) names() (provider, key string) {
	if l == nil {
		return "", ""
	}
	return l.core.provider, ""
}

func (l *Limiter) delay(n int64) time.Duration { return l.Delay(n) }

func (y Key) names() (provider, key string) {
	if provider, _ = y.limiter.names(); y.limiter == nil {
		return "", ""
	}
	return provider, y.state.key.Name
}

// TakeAll acquires from several limiters or keys, all or none: requests and tokens of one
// API, or a team's limit and its organisation's. wants has the number of permits for each.
// The returned permits are settled or released one by one. maxWait bounds the whole call, as
// in Acquire. Each key also takes permits of its provider.
//
// The limiter with the longest Delay is asked first, and each serves its queue in order.
// TakeAll holds permits while it waits for others, as long as their windows last, and
// acquires those again that have ended meanwhile. So callers cannot block each other. If a
// limiter refuses, TakeAll releases all permits and returns that limiter's error. It
// does the same if two limiters have no room in the same window within maxWait.
func TakeAll(ctx context.Context, maxWait time.Duration, wants map[Taker]int64) (map[Taker]Permit, error) {
	order, err := inOrder(wants)
	if err != nil {
		return nil, err
	}
	slowestFirst(order, wants)
	permits, began := make(map[Taker]Permit, len(wants)), time.Now()
	for {
		i := slices.IndexFunc(order, func(l Taker) bool { return permits[l].left() <= 0 })
		if i < 0 {
			return permits, nil
		}
		l := order[i]
		permits[l].Release() // under some shapes it still counts
		delete(permits, l)
		wait := maxWait - time.Since(began)
		bounded := false
		for _, p := range permits { // no longer than what is held is of use
			if left := p.left(); left > 0 && left < wait {
				wait, bounded = left, true
			}
		}
		p, err := l.Take(ctx, wants[l], wait)
		if err == nil {
			permits[l] = p
			continue
		}
		for _, p := range permits {
			p.Release()
		}
		if !bounded || !errors.Is(err, ErrLimited) {
			return nil, err
		}
		clear(permits)
		slowestFirst(order, wants)
	}
}

// slowestFirst orders limiters by the wait that they foresee, the longest first: permits of
// the others are then not lost while it waits. Equal ones keep their order.
func slowestFirst(order []Taker, wants map[Taker]int64) {
	delays := make(map[Taker]time.Duration, len(order))
	for _, l := range order {
		delays[l] = l.delay(wants[l])
	}
	slices.SortStableFunc(order, func(a, b Taker) int { return cmp.Compare(delays[b], delays[a]) })
}

// inOrder returns the limiters and keys in the order of their names.
func inOrder(wants map[Taker]int64) ([]Taker, error) {
	if len(wants) == 0 {
		return nil, fmt.Errorf("consumer: %w: TakeAll without a limiter: name one at least", ErrInvalid)
	}
	type name struct{ provider, key string }
	names, seen := map[Taker]name{}, map[name]bool{}
	for l, n := range wants {
		if l == nil {
			l = (*Limiter)(nil)
		}
		provider, key := l.names()
		switch of := (name{provider, key}); {
		case provider == "":
			return nil, fmt.Errorf("consumer: %w: TakeAll with a nil limiter: open it first", ErrInvalid)
		case n <= 0:
			return nil, fmt.Errorf("%w of %s", invalid(n), provider)
		case seen[of] && key != "":
			return nil, fmt.Errorf("consumer: %w: TakeAll twice with key %q of %s: ask once for the sum", ErrInvalid, key, provider)
		case seen[of]:
			return nil, fmt.Errorf("consumer: %w: TakeAll with two limiters of %s: ask one of them for the sum", ErrInvalid, provider)
		default:
			names[l], seen[of] = of, true
		}
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b Taker) int {
		return cmp.Or(cmp.Compare(names[a].provider, names[b].provider), cmp.Compare(names[a].key, names[b].key))
	}), nil
}

// left returns how long the permit's window lasts; forever for a call that shadow mode
// let pass, and 0 for the zero Permit.
func (p Permit) left() time.Duration {
	switch {
	case p.of == nil:
		return 0
	case p.grant.Epoch == 0:
		return math.MaxInt64
	}
	return time.Duration(p.grant.End - p.of.core.clock.Wall())
}
