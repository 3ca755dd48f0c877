package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
)

// A limiter that is closed while a caller is about to wait lets nobody wait. It is closed
// at each of the caller's readings of the clock: one is between the caller's look at
// whether the limiter is closed and its place in the queue.
func TestCloseBesideACallerThatBeginsToWait(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, l *consumer.Limiter) error{
		"Acquire": func(ctx context.Context, l *consumer.Limiter) error { return l.Acquire(ctx, forever) },
		"TakeFunc": func(_ context.Context, l *consumer.Limiter) error {
			result := make(chan error, 1)
			l.TakeFunc(1, forever, func(_ consumer.Permit, err error) { result <- err })
			return <-result
		},
	} {
		reading := int64(1)
		for closedAtReading(t, name, reading, wait) {
			reading++
		}
		if reading < 3 {
			t.Errorf("%s: the clock was read %d times", name, reading-1)
		}
	}
}

// closedAtReading closes the limiter of a caller at a reading of the clock. It returns
// false if there are not so many before the caller waits.
func closedAtReading(t *testing.T, name string, reading int64, wait func(ctx context.Context, l *consumer.Limiter) error) (read bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var readings atomic.Int64
		var closeIt func()
		s := &told{clock: clock.NewSkewed(func(int64) time.Duration {
			if closeIt != nil && readings.Add(1) == reading {
				closeIt()
			}
			return 0
		})}
		l, other := open(t, feed.Over[feed.Source](s), consumer.Options{}), open(t, feed.Over[feed.Source](s), consumer.Options{})
		s.start(policyOf(t, "1/m"), 1)
		tryTake(other, 1)
		closeIt = func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- wait(ctx, l) }()
		synctest.Wait()
		if read = readings.Load() >= reading; !read {
			closeIt()
			synctest.Wait()
		}
		select {
		case err := <-result:
			if !errors.Is(err, consumer.ErrClosed) {
				t.Errorf("%s, closed at reading %d: %v, want ErrClosed", name, reading, err)
			}
		default:
			t.Errorf("%s, closed at reading %d: waits on a closed limiter", name, reading)
			read = false
		}
		if st := other.Status(); st.Waiting != 0 {
			t.Errorf("%s, closed at reading %d: %d wait", name, reading, st.Waiting)
		}
	})
	return read
}

// late is a context that is found to have ended when a permit has come already,
// and nobody has looked.
type late struct {
	context.Context
	permit time.Duration // when it will have come
	over   bool
}

// Done implements context.Context.
func (c *late) Done() <-chan struct{} {
	time.Sleep(c.permit)
	c.over = true
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Err implements context.Context.
func (c *late) Err() error {
	if c.over {
		return context.Canceled
	}
	return nil
}

// A permit that comes at the moment of a cancellation goes to the next in line.
func TestAPermitThatComesWithTheCancellationIsNotLost(t *testing.T) {
	bubble(t, policyOf(t, "1/s"), func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		cancelled := 0
		for range 40 { // which of the two a select sees is chance
			time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()))
			tryTake(l, 1)
			err := l.Acquire(&late{Context: context.Background(), permit: 1200 * time.Millisecond}, forever)
			if left := tryTake(l, 1); (err != nil) != (left == 1) {
				t.Errorf("%v, and %d permits are left", err, left)
			}
			if err != nil {
				cancelled++
			}
		}
		if cancelled == 0 || cancelled == 40 {
			t.Errorf("%d of 40 were cancelled, want some", cancelled)
		}
	})
}
