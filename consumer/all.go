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
	// try takes n permits if they are there. If not, it waits for nothing, and counts no refusal.
	try(ctx context.Context, n int64) (p Permit, ok bool)
	delay(n int64) time.Duration   // as Limiter.Delay
	inFlight() bool                // the provider has a limit in flight, as far as is known
	names() (provider, key string) // the provider is empty if the value cannot be used
}

func (l *Limiter) names() (provider, key string) {
	if l == nil {
		return "", ""
	}
	return l.core.provider, ""
}

func (l *Limiter) delay(n int64) time.Duration { return l.Delay(n) }

func (l *Limiter) inFlight() bool { return l.core.gate.Segment().Grant.InFlight() }

func (l *Limiter) try(ctx context.Context, n int64) (p Permit, ok bool) {
	if !l.open(ctx) {
		return p, false
	}
	if s, now := l.core.segmentNow(); !s.Leaves(n) && s.Take(now, n, l.class) { // a large call goes by the queue
		l.counted(n)
		return l.permit(s.Grant, n, n), true
	}
	return p, false
}

// open reports whether a call with ctx may take something of the limiter at once.
func (l *Limiter) open(ctx context.Context) bool {
	return !l.bad && ctx != nil && ctx.Err() == nil && !l.all.closed.Load()
}

func (y Key) names() (provider, key string) {
	if provider, _ = y.limiter.names(); y.limiter == nil {
		return "", ""
	}
	return provider, y.state.key.Name
}

func (y Key) inFlight() bool { return y.limiter.inFlight() }

func (y Key) try(ctx context.Context, n int64) (p Permit, ok bool) {
	return p, y.limiter.open(ctx) && y.limiter.core.tryKey(y, n, trial, &p).found == granted
}

// TakeAll acquires from several limiters or keys, all or none: requests and tokens of one
// API, or a team's limit and its organisation's. wants has the number of permits for each.
// The returned permits are settled or released one by one. maxWait bounds the whole call, as
// in Acquire. Each key also takes permits of its provider.
//
// The limiter with the longest Delay is asked first, limits in flight come last, and each serves
// its queue in order. While TakeAll waits for one, it holds nothing that it had from others at once, and
// no call in flight, unless it waits for another call in flight. What it has waited for it holds as long
// as its window lasts (a call in flight: its hold) or, while it waits for a call in flight, for 7/8 of the
// rest of that; and it acquires again what has ended meanwhile. So callers cannot block each other. If a limiter refuses,
// TakeAll releases all permits and returns that limiter's error. It does the same if two limiters have no
// room in the same window within maxWait. So it may be where others use up the one all the time, and the
// wait for a call in flight is longer than a window of it.
func TakeAll(ctx context.Context, maxWait time.Duration, wants map[Taker]int64) (map[Taker]Permit, error) {
	order, err := inOrder(wants)
	if err != nil {
		return nil, err
	}
	slowestFirst(order, wants)
	w, began := waitedFor{permits: map[Taker]Permit{}, gaveUp: map[Taker]bool{}}, time.Now()
	for {
		permits, lacks := w.andNow(ctx, order, wants)
		if lacks == nil {
			return permits, nil
		}
		left := w.keep(lacks)
		wait, bounded := maxWait-time.Since(began), false
		if !lacks.inFlight() && left < wait { // no longer than what is held is of use
			wait, bounded = left, true
		}
		p, err := w.take(ctx, lacks, wants[lacks], wait)
		switch {
		case err == nil:
			w.permits[lacks] = p
		case !bounded, !errors.Is(err, ErrLimited):
			w.release()
			return nil, err
		default:
			w.release()
			slowestFirst(order, wants)
		}
	}
}

// waitedFor has the permits for which a call of TakeAll has waited, while it lacks others.
type waitedFor struct {
	permits map[Taker]Permit
	gaveUp  map[Taker]bool // those that keep has given up once
}

// andNow returns the permits that are held and last, and those that can be had at once. If something lacks, these are given
// back again, and lacks is the first limiter in order that has too little.
func (w *waitedFor) andNow(ctx context.Context, order []Taker, wants map[Taker]int64) (permits map[Taker]Permit, lacks Taker) {
	maps.DeleteFunc(w.permits, func(_ Taker, p Permit) bool {
		over := p.left() <= 0
		if over {
			p.Release() // under some shapes it still counts
		}
		return over
	})
	permits = maps.Clone(w.permits)
	for _, l := range order {
		p, ok := permits[l]
		if !ok {
			p, ok = l.try(ctx, wants[l])
		}
		if !ok {
			maps.DeleteFunc(permits, func(l Taker, _ Permit) bool { _, held := w.permits[l]; return held })
			release(permits)
			return nil, l
		}
		permits[l] = p
	}
	return permits, nil
}

// keep gives up the calls in flight, which are not held while this call waits for lacks, and returns how long all that is
// held still lasts. But while it waits for one call in flight it holds another that it has given up once: if others wait for
// each of the two all the time, it would never have both. It then asks for them in the order of their names, so that no two
// calls wait for each other.
func (w *waitedFor) keep(lacks Taker) (left time.Duration) {
	left = math.MaxInt64
	for l, p := range w.permits {
		if p.InFlight() && (!lacks.inFlight() || !w.gaveUp[l] || byName(l, lacks) > 0) {
			w.gaveUp[l] = true
			p.Release()
			delete(w.permits, l)
		} else {
			left = min(left, p.left())
		}
	}
	return left
}

// handOver is the time before a permit's end by which it is given up at the latest, so that it is before the end also on a
// busy machine.
const handOver = 5 * time.Millisecond

// take is lacks.Take. Nobody knows when calls in flight end. So while this call waits for one, it gives up each permit that it
// holds before that is over: others can use it then, and it does not count in a longer window.
func (w *waitedFor) take(ctx context.Context, lacks Taker, n int64, wait time.Duration) (Permit, error) {
	early := map[Taker]*time.Timer{}
	if lacks.inFlight() {
		for l, p := range w.permits {
			left := p.left()
			early[l] = time.AfterFunc(left-max(left/8, handOver), func() { p.Release() }) // at once if that is past
		}
	}
	taken, err := lacks.Take(ctx, n, wait)
	for l, timer := range early {
		if !timer.Stop() {
			w.permits[l].Release()
			delete(w.permits, l)
		}
	}
	return taken, err
}

// release gives up what is held.
func (w *waitedFor) release() {
	release(w.permits)
	clear(w.permits)
}

func release(permits map[Taker]Permit) {
	for _, p := range permits {
		p.Release()
	}
}

// slowestFirst orders limiters by the wait that they foresee, the longest first: permits of
// the others are then not lost while it waits. Limits in flight come last. Equal ones keep their order.
func slowestFirst(order []Taker, wants map[Taker]int64) {
	delays := make(map[Taker]time.Duration, len(order))
	for _, l := range order {
		if delays[l] = l.delay(wants[l]); l.inFlight() {
			delays[l] = -1
		}
	}
	slices.SortStableFunc(order, func(a, b Taker) int { return cmp.Compare(delays[b], delays[a]) })
}

// inOrder returns the limiters and keys in the order of their names.
func inOrder(wants map[Taker]int64) ([]Taker, error) {
	if len(wants) == 0 {
		return nil, fmt.Errorf("consumer: %w: TakeAll without a limiter: name one at least", ErrInvalid)
	}
	type name struct{ provider, key string }
	seen := map[name]bool{}
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
			seen[of] = true
		}
	}
	return slices.SortedFunc(maps.Keys(wants), byName), nil
}

// byName compares limiters and keys by their names.
func byName(a, b Taker) int {
	provider, key := a.names()
	other, otherKey := b.names()
	return cmp.Or(cmp.Compare(provider, other), cmp.Compare(key, otherKey))
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
