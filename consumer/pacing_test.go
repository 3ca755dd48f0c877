package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// TestEvenPacingSpreadsThePermits: workers that take whatever they get are given
// a tenth of the permits in every tenth of the window, and all of them in it.
func TestEvenPacingSpreadsThePermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(t, "1000/s")
		p.Pacing = quota.PacingEven
		l := open(t, Fixed(p), Options{})
		ctx, stop := context.WithCancel(t.Context())
		var tenths [50]int
		begin := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for l.Acquire(ctx, Forever) == nil {
				if i := int(time.Since(begin) / (100 * time.Millisecond)); i < len(tenths) {
					tenths[i]++
				}
			}
		}()
		time.Sleep(5 * time.Second)
		stop()
		<-done
		for second := range 5 {
			sum := 0
			for i, n := range tenths[10*second : 10*second+10] {
				sum += n
				if n < 70 || n > 120 {
					t.Errorf("%d permits in tenth %d of second %d, want about 100", n, i, second)
				}
			}
			if sum != 1000 {
				t.Errorf("%d permits in second %d, want 1000", sum, second)
			}
		}
	})
}

// TestPacingKeepsWhatADelayWasToldOf: a caller that sleeps for Delay(n) finds n permits, if
// nobody else comes.
func TestPacingKeepsWhatADelayWasToldOf(t *testing.T) {
	for _, c := range []struct {
		limit string
		n     int64
	}{{"3/s", 2}, {"3/s", 3}, {"10/s", 3}, {"100/s", 7}, {"7/2s", 4}} {
		synctest.Test(t, func(t *testing.T) {
			p := policyOf(t, c.limit)
			p.Pacing = quota.PacingEven
			l := open(t, Fixed(p), Options{})
			for i := range 200 {
				wait := l.Delay(c.n)
				time.Sleep(wait)
				if take(t.Context(), l, c.n, 0) != nil {
					t.Fatalf("%s: round %d: no %d permits after a Delay of %v", c.limit, i, c.n, wait)
				}
			}
		})
	}
}

// TestPacingKnowsWhenAPermitComes: a caller that cannot be served in time is
// refused at once, also in the middle of a window.
func TestPacingKnowsWhenAPermitComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(t, "10/s")
		p.Pacing = quota.PacingEven
		l := open(t, Fixed(p), Options{})
		for range 3 {
			if err := l.Acquire(t.Context(), Forever); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		if err := l.Acquire(t.Context(), 10*time.Millisecond); err == nil {
			t.Error("a permit came within 10 ms, where one is due every 100 ms")
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("refused after %v, not at once", d)
		}
		if d := l.Delay(1); d < 50*time.Millisecond || d > 150*time.Millisecond {
			t.Errorf("the next permit is foreseen in %v, want about 100 ms", d)
		}
		if err := l.Acquire(t.Context(), 200*time.Millisecond); err != nil {
			t.Errorf("no permit within 200 ms: %v", err)
		}
	})
}
