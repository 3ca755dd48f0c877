package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

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
