package window

import (
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// TestReturnedIsASetThatForgets compares with a map: nothing is forgotten within a window's
// length, and all after two that came without a break.
func TestReturnedIsASetThatForgets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		second := quota.Window{Length: time.Second}
		l := &ledger{Account: Account{windows: &plans.Windows{Running: []quota.Window{second}}, spans: []span{{Count: shape.Count{Window: second}}}}}
		var r returned
		seen := map[uint64]int64{}
		base := rapid.SampledFrom([]uint64{0, pageBits - 2, 1 << 40}).Draw(t, "base")
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			l.now += rapid.Int64Range(0, int64(200*time.Millisecond)).Draw(t, "later")
			serial := base + rapid.Uint64Range(0, 70).Draw(t, "serial")*rapid.SampledFrom([]uint64{1, 64, pageBits}).Draw(t, "apart")
			first := r.first(serial, l)
			switch at, known := seen[serial]; {
			case !known && !first:
				t.Fatalf("%d comes for the first time, and was seen before", serial)
			case known && l.now-at < int64(time.Second) && first:
				t.Fatalf("%d was forgotten within a window", serial)
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
