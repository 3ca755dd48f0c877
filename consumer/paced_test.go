package consumer_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// maxWait bounds the wait, and Delay tells when a permit can be had, where
// permits are paced.
func TestPacedWaitsAreBounded(t *testing.T) {
	for _, limit := range []string{"10/s", "100/s"} {
		p := policyOf(t, limit)
		p.Pacing = quota.PacingEven
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			r := rand.New(rand.NewPCG(1, 2))
			late, wrong := 0, 0
			for range 400 {
				pass(time.Duration(r.Int64N(int64(30 * time.Millisecond))))
				if d := delay(l, 1); d == 0 && !l.TryAcquire() {
					wrong++
				}
				maxWait := time.Duration(r.Int64N(int64(200 * time.Millisecond)))
				if a := ask(ctx, l, 1, maxWait).within(2 * time.Second); a.never || a.after > maxWait {
					late++
				}
			}
			if late > 0 || wrong > 0 {
				t.Errorf("%s: %d of 400 decided after maxWait, %d refused though Delay was 0", limit, late, wrong)
			}
		})
	}
}

// Pacing even: a request for more than one release was never served.
func TestPacingServesRequestsForMoreThanOneRelease(t *testing.T) {
	for _, c := range []struct {
		limit string
		n     int64
	}{{"1000/s", 17}, {"60/s", 2}, {"10/s", 3}, {"1000/s", 1000}} {
		p := policyOf(t, c.limit)
		p.Pacing = quota.PacingEven
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			pass(350 * time.Millisecond)
			foretold := delay(l, c.n)
			if foretold > 2*time.Second {
				t.Errorf("%s: Delay(%d) is %v", c.limit, c.n, foretold)
			}
			if a := ask(ctx, l, c.n, 2*time.Second).within(3 * time.Second); a.never || a.err != nil || a.after > foretold+slice {
				t.Errorf("%s: %d permits: %v, foretold was %v", c.limit, c.n, a, foretold)
			}
			if a := ask(ctx, l, 1, 2*time.Second).within(3 * time.Second); a.never || a.err != nil {
				t.Errorf("%s: one permit after them: %v", c.limit, a)
			}
		})
	}
}

// slice is the time in which pacing releases permits together.
const slice = 10 * time.Millisecond

// Of callers that keep asking, all of the limit is issued, also if some want
// many at once.
func TestPacingWastesNothing(t *testing.T) {
	for _, c := range []struct {
		name, limit string
		callers     int
		size        func(r *rand.Rand) int64
		most        float64 // lost
	}{
		{"one caller in a loop", "20/s", 1, func(*rand.Rand) int64 { return 1 }, 0},
		{"5% large", "1000/s", 40, func(r *rand.Rand) int64 {
			if r.IntN(20) == 0 {
				return 17
			}
			return 1
		}, 0.017},
		{"two at once", "60/s", 4, func(*rand.Rand) int64 { return 2 }, 0.02},
	} {
		p := policyOf(t, c.limit)
		p.Pacing = quota.PacingEven
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			ctx, cancel := context.WithCancel(ctx)
			for i := range c.callers {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				go func() {
					for take(ctx, l, c.size(r), forever) == nil {
					}
				}()
			}
			pass(2 * time.Second)
			before := l.Status().Issued
			pass(10 * time.Second)
			used := float64(l.Status().Issued-before) / float64(10*p.Limits[0].Permits)
			if used < 1-c.most {
				t.Errorf("%s: %.3f of the limit issued", c.name, used)
			}
			cancel()
		})
	}
}

// Callers that never wait get all of a paced limit if they try often enough.
func TestPacingServesThoseThatNeverWait(t *testing.T) {
	p := policyOf(t, "100/s")
	p.Pacing = quota.PacingEven
	bubble(t, p, func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		got := 0
		for range 5000 {
			if pass(time.Millisecond); l.TryAcquire() {
				got++
			}
		}
		if got < 495 {
			t.Errorf("%d of 500 in 5 s", got)
		}
	})
}

// Whoever comes seldom finds a permit that is long due.
func TestPacingServesThoseThatComeSeldom(t *testing.T) {
	p := policyOf(t, "10/s")
	p.Pacing = quota.PacingEven
	bubble(t, p, func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		for _, pause := range []time.Duration{1370 * time.Millisecond, 370 * time.Millisecond, 2100 * time.Millisecond} {
			got := 0
			for range 100 {
				if pass(pause); l.TryAcquire() {
					got++
				}
			}
			// It may come before the first permit of its window.
			if got < 80 {
				t.Errorf("every %v: %d of 100, and 10 a second are allowed", pause, got)
			}
		}
	})
}
