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

// TakeAll acquires from several limiters, all or none: requests and tokens of one API,
// or a team's limit and its organisation's. wants has the number of permits for each
// limiter. The returned permits are settled or released one by one. maxWait bounds the
// whole call, as in Acquire.
//
// The limiter with the longest Delay is asked first, and each serves its queue in order.
// TakeAll holds permits while it waits for others, as long as their windows last, and
// acquires those again that have ended meanwhile. So callers cannot block each other. If a
// limiter refuses, TakeAll releases all permits and returns that limiter's error. It
// does the same if two limiters have no room in the same window within maxWait.
func TakeAll(ctx context.Context, maxWait time.Duration, wants map[*Limiter]int64) (map[*Limiter]Permit, error) {
	order, err := inOrder(wants)
	if err != nil {
		return nil, err
	}
	slowestFirst(order, wants)
	permits, began := make(map[*Limiter]Permit, len(wants)), time.Now()
	for {
		i := slices.IndexFunc(order, func(l *Limiter) bool { return permits[l].left() <= 0 })
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
func slowestFirst(order []*Limiter, wants map[*Limiter]int64) {
	delays := make(map[*Limiter]time.Duration, len(order))
	for _, l := range order {
		delays[l] = l.Delay(wants[l])
	}
	slices.SortStableFunc(order, func(a, b *Limiter) int { return cmp.Compare(delays[b], delays[a]) })
}

// inOrder returns the limiters in the order of their providers' names.
func inOrder(wants map[*Limiter]int64) ([]*Limiter, error) {
	if len(wants) == 0 {
		return nil, fmt.Errorf("consumer: %w: TakeAll without a limiter: name one at least", ErrInvalid)
	}
	if _, ok := wants[nil]; ok {
		return nil, fmt.Errorf("consumer: %w: TakeAll with a nil limiter: open it first", ErrInvalid)
	}
	order := slices.SortedFunc(maps.Keys(wants), func(a, b *Limiter) int { return cmp.Compare(a.core.provider, b.core.provider) })
	for i, l := range order {
		if wants[l] <= 0 {
			return nil, fmt.Errorf("%w of %s", invalid(wants[l]), l.core.provider)
		}
		if i > 0 && order[i-1].core.provider == l.core.provider {
			return nil, fmt.Errorf("consumer: %w: TakeAll with two limiters of %s: ask one of them for the sum", ErrInvalid, l.core.provider)
		}
	}
	return order, nil
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
