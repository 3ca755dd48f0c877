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
	"github.com/quotient-limiter/quotient/quota"
)

// asleep returns a source whose operating system's clock is ahead by what the test
// stores: as after a suspension, in which the monotonic clock stood still.
func asleep() (s *told, slept *atomic.Int64) {
	slept = new(atomic.Int64)
	return &told{clock: clock.NewSkewed(func(int64) time.Duration { return time.Duration(slept.Load()) })}, slept
}

// kindsOfCalls ask for permits that must be there now, each in its own way.
var kindsOfCalls = map[string]func(ctx context.Context, l *consumer.Limiter) (int64, error){
	"TryAcquire": func(_ context.Context, l *consumer.Limiter) (int64, error) {
		if l.TryAcquire() {
			return 1, nil
		}
		return 0, nil
	},
	"TryTake": func(_ context.Context, l *consumer.Limiter) (int64, error) { return tryTake(l, 2), nil },
	"Acquire": func(ctx context.Context, l *consumer.Limiter) (int64, error) {
		err := l.Acquire(ctx, 0)
		return granted(1, err), err
	},
	"Take": func(ctx context.Context, l *consumer.Limiter) (int64, error) {
		p, err := l.Take(ctx, 2, 0)
		return count(p), err
	},
	"TakeFunc": func(_ context.Context, l *consumer.Limiter) (n int64, err error) {
		l.TakeFunc(2, 0, func(p consumer.Permit, failed error) { n, err = count(p), failed })
		synctest.Wait()
		return n, err
	},
}

// Under the rule stop every kind of call compares both clocks with the proof's end:
// nothing is issued by an old one, also after a suspension.
func TestUnderStopTheProofEndsByBothClocks(t *testing.T) {
	for _, c := range []struct {
		name       string
		pass, skip time.Duration // by both clocks, and by the wall clock alone
	}{
		{"a suspension", 0, 10 * time.Second},
		{"time", 2500 * time.Millisecond, 0},
		{"time, and a clock set back", 2500 * time.Millisecond, -10 * time.Second},
		{"time, mostly", 2485 * time.Millisecond, 20 * time.Millisecond}, // less than a step of the clock
	} {
		for name, take := range kindsOfCalls {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, slept := asleep()
					l := open(t, feed.Over[feed.Source](s), consumer.Options{})
					p := policyOf(t, "100/m")
					p.Outage = quota.OutageStop
					s.start(p, 1)
					time.Sleep(time.Second)
					s.prove()
					if n, err := take(t.Context(), l); n == 0 {
						t.Fatalf("refused while the proof is new: %v", err)
					}
					time.Sleep(c.pass)
					slept.Store(int64(c.skip))
					if n, err := take(t.Context(), l); n > 0 || err != nil && !errors.Is(err, consumer.ErrStale) {
						t.Errorf("%d permits by a proof that is too old, error %v", n, err)
					}
					time.Sleep(time.Millisecond)
					s.prove()
					if n, err := take(t.Context(), l); n == 0 {
						t.Errorf("refused after the next proof: %v", err)
					}
				})
			})
		}
	}
}

// What was held back while the view was stale, under the rule hold, may be issued
// as soon as there is a proof again.
func TestAProofFreesWhatWasHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		p := policyOf(t, "10/s")
		p.Shape = quota.ShapeSliding
		s.start(p, 2)
		time.Sleep(500 * time.Millisecond)
		s.prove()
		s.without("a")
		s.without("b")
		time.Sleep(20300 * time.Millisecond)
		if n := tryTake(l, 100); n != 5 {
			t.Errorf("%d permits while the view is stale, want 5", n)
		}
		time.Sleep(3 * time.Second)
		s.prove()
		if n := tryTake(l, 100); n != 10 {
			t.Errorf("%d permits after the proof, want 10", n)
		}
	})
}

func granted(n int64, err error) int64 {
	if err != nil {
		return 0
	}
	return n
}

// A new history has no proof, whatever was proved of the old one.
func TestAResetEndsTheProof(t *testing.T) {
	for _, outage := range []quota.Outage{quota.OutageStop, quota.OutageHold} {
		synctest.Test(t, func(t *testing.T) {
			s := &told{clock: clock.New()}
			l := open(t, feed.Over[feed.Source](s), consumer.Options{})
			p := policyOf(t, "100/s")
			p.Outage = outage
			s.start(p, 1)
			if !l.TryAcquire() {
				t.Fatal("refused before")
			}
			s.begin(p, 1)
			for range 3 {
				if l.TryAcquire() || takeNow(l, 2) == nil {
					t.Errorf("%s: a permit, and nothing is proved of the new history", outage)
				}
				time.Sleep(time.Second)
			}
			s.prove()
			if !l.TryAcquire() {
				t.Errorf("%s: refused after the proof", outage)
			}
		})
	}
}

// A limiter finds by itself that the machine was suspended, and goes on to the
// window of today.
func TestWindowsFollowASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slept := asleep()
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		s.start(policyOf(t, "10/s"), 1)
		tryTake(l, 10)
		slept.Store(int64(7300 * time.Millisecond))
		time.Sleep(1100 * time.Millisecond)
		p, err := l.Take(t.Context(), 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at := time.Now().Add(7300 * time.Millisecond); at.Before(start(p)) || !at.Before(until(p)) {
			t.Errorf("a permit of %v to %v, and the clock says %v", start(p), until(p), at)
		}
	})
}

// A permit is not valid any more if the machine was suspended beyond its end, also
// where nobody has observed the clock since.
func TestAPermitEndsInASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slept := asleep()
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		s.start(policyOf(t, "10/s"), 1)
		p, err := l.Take(t.Context(), 1, 0)
		if err != nil || !valid(p, 500*time.Millisecond) {
			t.Fatalf("%v, or not valid at the start of its window", err)
		}
		slept.Store(int64(2 * time.Second))
		if valid(p, 0) {
			t.Errorf("valid until %v, and the clock says %v", until(p), time.Now().Add(2*time.Second))
		}
	})
}

// Under other shapes than fixed windows a larger share counts a window, what
// clocks drift, and twice their error later: no span by any clock holds both what
// was issued before and the larger share.
func TestGrowthWaitsForTheClocksErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(t, "10/s")
		p.Shape, p.ClockError = quota.ShapeSliding, 50*time.Millisecond
		f := fleet(t, p, 2)
		l := open(t, f.Instances()[0], consumer.Options{})
		time.Sleep(500 * time.Millisecond)
		f.Instances()[1].Kill()
		held := 3500*time.Millisecond + time.Second + 2*2*time.Millisecond + 2*50*time.Millisecond
		time.Sleep(held - time.Millisecond)
		if u := limits(l); u[0].Share != 5 {
			t.Errorf("a share of %d, %v before it may grow", u[0].Share, time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond)
		if u := limits(l); u[0].Share != 10 {
			t.Errorf("a share of %d, %v after it may grow", u[0].Share, time.Millisecond)
		}
	})
}

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

// What comes back makes the head of the queue's turn come sooner.
func TestAReleaseBringsTheNextPermitNearer(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		p := policyOf(t, "10/10s")
		p.Shape = shape
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			kept, err := l.Take(ctx, 4, 0)
			if err != nil {
				t.Fatal(err)
			}
			tryTake(l, 6)
			head := ask(ctx, l, 8, forever)
			time.Sleep(1500 * time.Millisecond)
			if !release(l, kept) {
				t.Error("not taken back")
			}
			foretold := delay(l, 1)
			next := ask(ctx, l, 1, forever)
			// Under bucket what came back counts but for what has accrued since.
			due := map[quota.Shape]time.Duration{quota.ShapeFixed: 10 * time.Second, quota.ShapeSliding: 10*time.Second + 40*time.Millisecond, quota.ShapeBucket: 5600 * time.Millisecond}[shape]
			if a := head.within(20 * time.Second); a.never || a.err != nil || a.after > due {
				t.Errorf("%s: %v, due after %v", shape, a, due)
			}
			if a := next.within(20 * time.Second); a.never || a.err != nil || (a.after-foretold).Abs() > 20*time.Millisecond {
				t.Errorf("%s: the next: %v, foretold was %v", shape, a, foretold)
			}
		})
	}
}
