package window

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// TestReturnedIsASetThatForgets compares with a map: nothing is forgotten within the shortest window's
// length, and knows is false for what was forgotten, however long the shortest window is later.
func TestReturnedIsASetThatForgets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &ledger{Account: Account{windows: &plans.Windows{Running: make([]quota.Window, 1)}, spans: make([]span, 1)}}
		var r returned
		seen := map[uint64]int64{}
		base := rapid.SampledFrom([]uint64{0, pageBits - 2, 1 << 40}).Draw(t, "base")
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			l.now += rapid.Int64Range(0, int64(200*time.Millisecond)).Draw(t, "later")
			w := quota.Window{Length: rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Second, 3 * time.Second}).Draw(t, "length")}
			l.windows.Running[0], l.spans[0].Window = w, w
			serial := base + rapid.Uint64Range(0, 70).Draw(t, "serial")*rapid.SampledFrom([]uint64{1, 64, pageBits}).Draw(t, "apart")
			first := r.first(serial, l)
			switch at, known := seen[serial]; {
			case !known && !first:
				t.Fatalf("%d comes for the first time, and was seen before", serial)
			case known && l.now-at < int64(time.Second) && first:
				t.Fatalf("%d was forgotten within a window", serial)
			case known && first && r.knows(at):
				t.Fatalf("%d was forgotten, and might be given back again", serial)
			}
			if first {
				seen[serial] = l.now
			}
		}
	})
}

// TestReturnedIsSmall: a bit for each permit, not 38 bytes.
func TestReturnedIsSmall(t *testing.T) {
	l := &ledger{}
	var r returned
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for serial := range uint64(1_000_000) {
		r.first(serial, l)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 2<<20 {
		t.Errorf("a million serial numbers took %d bytes", after.TotalAlloc-before.TotalAlloc)
	}
}

// TestReturnedOnceWhenTheShortestLimitGoes: under shapes that are not aligned, a permit that was given back is not given
// back again after the shortest limit has gone, though it still counts under the longer one.
func TestReturnedOnceWhenTheShortestLimitGoes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[shape.Shape]int64{sliding: 15, accrues: 17} { // of 20, less 5; in 8 s two have accrued
		t.Run(fmt.Sprintf("%+v", kind), func(t *testing.T) {
			g, f := shapedGate(map[time.Duration]int64{second: 10, time.Minute: 20}, 0, kind, nil)
			grant, ok := take(g, at(100*ms), 5)
			if got := upTo(g, at(100*ms), 5); got != 5 { // these stay used
				t.Fatalf("%d more permits, want 5", got)
			}
			serial := serials.Add(1)
			if first, back := g.Correct(at(200*ms), grant, serial, 5, 0); !ok || !first || !back {
				t.Fatalf("issued %v; given back: first %v, back %v", ok, first, back)
			}
			for _, later := range []time.Duration{1300 * ms, 2400 * ms} { // others come, and the first is forgotten
				other, ok := take(g, at(later), 1)
				if !ok || !refund(g, at(later), other, 1) {
					t.Fatalf("at %v: issued %v, or not given back", later, ok)
				}
			}
			f.set(func() { delete(f.shares, second) })
			g.Changed(at(2500 * ms))
			g.Changed(at(8 * second)) // by now nothing counts in the second any more
			if _, back := g.Correct(at(8*second), grant, serial, 5, 0); back {
				t.Error("5 permits were given back a second time")
			}
			if got := upTo(g, at(8*second), 100); got != want {
				t.Errorf("%d permits are left after that, want %d", got, want)
			}
			late, _ := take(g, at(80*second), 1)
			if !refund(g, at(81*second), late, 1) {
				t.Error("a permit that nobody gave back before did not come back")
			}
		})
	}
}
