package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// Forever, as maxWait, means as long as the context allows.
const Forever time.Duration = math.MaxInt64

// Options of a limiter. The zero value is ready to use.
type Options struct {
	// MaxWaiters bounds the number of waiting callers; further callers get ErrQueueFull, or
	// take the place of the last caller of a lower class, which gets it: see Limiter.Class.
	// Those that wait for keys are bounded apart, by the same number for all keys together; there
	// only a caller of the same key is displaced.
	// 0 means no bound: a waiter costs 64 bytes, and a parked goroutine its stack.
	MaxWaiters int
	// Logger receives the changes of state; default slog.Default().
	Logger *slog.Logger
	// OnWait, if set, is called with the duration and result of each wait, and with the
	// caller's context, which may have ended; TakeFunc passes context.Background(). It
	// runs on the caller's goroutine, or before the function of TakeFunc, and must not
	// block. It is not called for callers that are served or refused immediately.
	OnWait func(ctx context.Context, d time.Duration, err error)
}

// Limiter issues this instance's share of a provider's limit. Its methods are
// safe for concurrent use. Make one with Open.
type Limiter struct {
	origin      // of its calls and their permits
	bad    bool // its label is no label: its calls are refused
	all    *handles
}

// handles are those of one limiter without a label: one for each class.
type handles struct {
	closed atomic.Bool
	by     [queue.Classes]Limiter
	leave  func() error // the source
	onWait func(ctx context.Context, d time.Duration, err error)
	id     uint32
}

// waited tells OnWait of a wait, if there was one.
func (h *handles) waited(ctx context.Context, d time.Duration, err error) {
	if h.onWait != nil && d != didNotWait {
		h.onWait(ctx, d, err)
	}
}

// Open returns a limiter for the provider, immediately. An instance that lacks permits borrows
// some from others, also a new one that has no share yet. Until it has a permit, callers wait
// or are refused, as in any window whose share is spent. Ready waits for the first permits.
//
// Opening a provider twice on one source gives two limiters with one counter and one
// queue. Open one limiter for the life of the process, not for each request: each first Open
// joins the fleet, which costs etcd three writes, and closing the last one leaves it.
// The first one's MaxWaiters and Logger count for both: a second Open leaves them zero or
// gives the same, and is refused otherwise. OnWait is each limiter's own. The limiter lives
// until Close, not until ctx ends.
//
// Open does not wait for etcd, and works while etcd is away. It returns an error of ctx,
// ErrInvalid for an option that cannot work, an error that names what is wrong with the
// provider's name, or the source's: a session that is closed, or has 1,000 providers open.
func Open(ctx context.Context, source Source, provider string, o Options) (*Limiter, error) {
	if v := reflect.ValueOf(source); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("consumer: open %q: %w: source is nil: use the *coordinator.Session that Join returned, or Fixed", provider, ErrInvalid)
	}
	if ctx == nil {
		return nil, fmt.Errorf("consumer: open %q: %w", provider, errNilContext)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := quota.ValidateProvider(provider); err != nil {
		return nil, fmt.Errorf("consumer: open: %w", err)
	}
	if o.MaxWaiters < 0 {
		return nil, fmt.Errorf("consumer: open %s: %w: MaxWaiters is %d, less than 0 (no bound)", provider, ErrInvalid, o.MaxWaiters)
	}
	from := feed.Inside(source)
	c := from.Clock()
	if c.Mono() < 0 {
		return nil, fmt.Errorf("consumer: open %s: %w: the source's clock began in the future: make the source inside the testing/synctest bubble that uses it", provider, ErrInvalid)
	}
	sink, leave, err := from.Subscribe(provider, func() feed.Sink { return newCore(provider, c, o) })
	if err != nil {
		return nil, fmt.Errorf("consumer: open %s: %w", provider, err)
	}
	k, ok := sink.(*core)
	if !ok {
		return nil, fmt.Errorf("consumer: open %s: the source serves it to something that is no limiter (%T)", provider, sink)
	}
	if err := k.enter(o); err != nil {
		_ = leave() // the other limiter keeps the provider open
		return nil, err
	}
	k.gate.Bound(k.options.Load().MaxWaiters)
	all := &handles{leave: leave, onWait: o.OnWait, id: k.limiters.Add(1)}
	for i := range all.by {
		all.by[i] = Limiter{origin: k.classes[i], all: all}
	}
	return &all.by[queue.Default], nil
}

// Wait issues one permit, waiting as long as ctx allows. It is Acquire with
// Forever, by the name that golang.org/x/time/rate gives it.
func (l *Limiter) Wait(ctx context.Context) error { return l.Acquire(ctx, Forever) }

// Acquire issues one permit, waiting for at most maxWait and as long as ctx allows; 0 or
// less does not wait. It returns nil, an error of ctx, or one of this package's errors. A
// caller that cannot be served in time, unless something is changed, is refused immediately: so
// are those that would wait for a pause to end, for a policy to begin, or for the share of an
// instance that joins. Where other instances may lend, to one that joins too, this one does not
// know what they have left: there a caller waits until its deadline, unless this instance has issued
// the whole limit itself.
//
// Waiting only parks the goroutine. Callers are served in the order in which they came,
// unless they have classes: see Class. Where instances lend, one that wants more than there is
// is passed by smaller ones after a tenth of a window, with what it cannot use itself.
func (l *Limiter) Acquire(ctx context.Context, maxWait time.Duration) error {
	_, err := l.acquire(ctx, 1, maxWait)
	return err
}

// Take is Acquire for n permits of one window, all or none, and returns the Permit; n is at
// least 1, otherwise the error is ErrInvalid. It may be more than this instance's share:
// others may lend the rest. If all are busy, they leave it a part of a window once it has waited for up to two windows. In
// that way all such calls of this instance together get about its share. So give it a maxWait of more than two windows.
// More than the limit is refused with ErrTooLarge.
func (l *Limiter) Take(ctx context.Context, n int64, maxWait time.Duration) (Permit, error) {
	g, err := l.acquire(ctx, n, maxWait)
	if err != nil {
		return Permit{}, err
	}
	return l.permit(g, n, n), nil
}

// TryAcquire issues one permit if one is available. It never waits.
func (l *Limiter) TryAcquire() bool {
	_, err := l.acquire(context.Background(), 1, 0)
	return err == nil
}

// TryTake issues the available permits, at most n; the Permit's N may be 0, and is 0 for n <= 0
// and after Close. In shadow mode N is n. It never waits. Take with a maxWait of 0 issues all n or none.
func (l *Limiter) TryTake(n int64) Permit {
	k := l.core
	if n <= 0 || l.bad || l.all.closed.Load() {
		return Permit{}
	}
	now := k.clock.Now()
	s := k.gate.Segment()
	var got int64
	open := s.Open(now.Mono) && (!s.Strict || s.WallValid(now))
	if open {
		if got = s.TakeUpTo(now.Mono, n, l.class); got < n && k.gate.Unback(now, s) {
			got += s.TakeUpTo(now.Mono, n-got, l.class)
		}
	}
	grant := s.Grant
	switch unknown := s.Shadow || k.refusedIn(s, 1, l.class) == nil; { // once in a segment
	case !open, got == 0 && unknown:
		s, grant, got = k.gate.TakeUpTo(now, n, l.class)
		k.stepAside()
	case got < n && unknown:
		k.gate.Want(now)
	}
	l.counted(got)
	switch lacking := n - got; {
	case lacking == 0:
	case s.Shadow:
		k.shadowed.Add(lacking)
		return l.permit(grant, n, got)
	default:
		l.refused(k.refuseOne(l.class), lacking)
	}
	return l.permit(grant, got, got)
}

// Close ends the limiter: waiting and later callers get ErrClosed. Closing the last
// limiter of a provider removes the instance from the fleet. The others use its share
// from the next window of each limit. A second Close returns nil.
func (l *Limiter) Close() error {
	if !l.all.closed.CompareAndSwap(false, true) {
		return nil
	}
	l.core.gate.Evict(l.core.clock.Now(), l.all.id)
	l.core.keys.lines.evict(l.core, l.all.id)
	l.core.leave()
	return l.all.leave()
}

// after is the monotonic instant d after now, held within int64.
func after(now int64, d time.Duration) int64 {
	if int64(d) > math.MaxInt64-max(0, now) {
		return math.MaxInt64
	}
	return now + int64(d)
}
