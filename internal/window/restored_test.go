package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// TestWhatALostStoreGaveIsNotIssuedAgain: permits that were issued before etcd was restored, and come back after it, are not
// in hand again: an operator's count of the new store knows nothing of them. Those that were issued after it are, also if a
// shorter window has ended since, which only shapes allow.
func TestWhatALostStoreGaveIsNotIssuedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape    shape.Shape
		restored time.Duration // 0: never
		offset   time.Duration // by which corrected time goes on at 1.5 s
		taken    time.Duration
		back     time.Duration
		want     int64
	}{
		{shape.Shape{}, 0, 0, 100 * ms, 200 * ms, 5},
		{shape.Shape{}, 150 * ms, 0, 100 * ms, 200 * ms, 0},
		{shape.Shape{}, 100 * ms, 0, 150 * ms, 200 * ms, 5},
		{sliding, 0, 0, 900 * ms, 1800 * ms, 5},
		{sliding, 950 * ms, 0, 900 * ms, 960 * ms, 0},
		{sliding, 950 * ms, 0, 900 * ms, 1800 * ms, 0},
		{sliding, 950 * ms, second, 900 * ms, 1800 * ms, 0},
		{sliding, 900 * ms, 0, 950 * ms, 1800 * ms, 5},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			g, f := shapedGate(map[time.Duration]int64{second: 100}, 0, c.shape, nil)
			f.set(func() { f.long = quota.Limit{Permits: 10_000, Window: time.Hour} })
			g.Changed(at(0))
			restore := func(now time.Duration) {
				if c.restored == now {
					g.Restored(at(now))
				}
			}
			if c.restored < c.taken && c.restored != 0 {
				restore(c.restored)
			}
			funds(g, c.taken-1, protocol.BudgetAt(f.long, time.UTC, 0), 5, 9000)
			grant, ok := take(g, at(c.taken), 5)
			if !ok {
				t.Fatal("nothing is issued")
			}
			if c.restored > c.taken {
				restore(c.restored)
			}
			if c.back > 1500*ms {
				f.set(func() { f.plan.Offset = int64(c.offset) })
				g.Changed(at(1500 * ms))
			}
			refund(g, at(c.back), grant, 5)
			if n := upTo(g, at(c.back), 100); n != c.want {
				t.Errorf("%d are issued again, want %d", n, c.want)
			}
		})
	}
}

// TestWhatDoesNotCountIsNotIssuedAgain: a permit that comes back under a shape is not in hand of a long limit again if it was
// issued in the window before, or while that limit did not bind.
func TestWhatDoesNotCountIsNotIssuedAgain(t *testing.T) {
	t.Parallel()
	long := quota.Limit{Permits: 10_000, Window: time.Hour}
	for _, bound := range []bool{true, false} {
		g, f := shapedGate(map[time.Duration]int64{second: 100}, 0, sliding, nil)
		if bound {
			f.set(func() { f.long = long })
			g.Changed(at(1))
			funds(g, time.Hour-60*ms, protocol.BudgetAt(long, time.UTC, 0), 5, 9000)
		}
		grant, ok := take(g, at(time.Hour-50*ms), 5)
		f.set(func() { f.long = long })
		g.Changed(at(time.Hour + 1))
		funds(g, time.Hour+2, protocol.BudgetAt(long, time.UTC, hour), 3, 9000)
		if n := upTo(g, at(time.Hour+3), 100); !ok || n != 3 {
			t.Fatalf("%d are issued, want 3", n)
		}
		if refund(g, at(time.Hour+4), grant, 5); upTo(g, at(time.Hour+5), 100) != 0 {
			t.Errorf("it bound before %v: what came back is issued again", bound)
		}
	}
}
