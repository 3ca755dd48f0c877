package consumer_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
)

// asleep returns a source whose operating system's clock is ahead by what the test
// stores: as after a suspension, in which the monotonic clock stood still.
func asleep() (s *told, slept *atomic.Int64) {
	slept = new(atomic.Int64)
	return &told{clock: clock.NewSkewed(func(int64) time.Duration { return time.Duration(slept.Load()) })}, slept
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

// Etcd's next answer ends a window that ended while the machine was suspended, also under hold: by the monotonic clock the
// window would go on for nearly a minute.
func TestAProofFollowsASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slept := asleep()
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		s.start(policyOf(t, "10/m"), 1)
		tryTake(l, 4)
		slept.Store(int64(3 * time.Minute))
		time.Sleep(time.Second) // until the next probe
		s.prove()
		p := l.TryTake(10)
		if at := time.Now().Add(3 * time.Minute); p.N() != 10 || at.Before(start(p)) || !at.Before(until(p)) {
			t.Errorf("%d permits of %v to %v, and the clock says %v; want 10 of its window", p.N(), start(p), until(p), at)
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
