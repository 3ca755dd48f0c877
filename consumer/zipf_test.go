package consumer_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// playUneven lets a fleet share 2,000/s. Callers do not wait, and want 1.3 times that, of each
// instance a part. It returns the part of the limit that was used after the first three seconds,
// and how often an instance asked others, per second of all. In fake time processors take no
// time, so what is not used is what the rules leave with instances that do not need it.
func playUneven(t *testing.T, n, seconds int, part func(i, second int) float64) (used, asks float64) {
	const total, begins = 2000, 3
	synctest.Test(t, func(t *testing.T) {
		fleet, err := limittest.New(quota.Policy{Limits: []quota.Limit{{Permits: total, Window: time.Second}}}, n)
		if err != nil {
			t.Fatal(err)
		}
		all := openAll(t, fleet)
		var owed []float64
		for k := range all {
			owed = append(owed, math.Mod(float64(k)*math.Phi, 1)) // callers are not in step
		}
		got := int64(0)
		for tick := range seconds * 500 {
			for i, l := range all {
				owed[i] += 1.3 * total / 500 * part(i, tick/500)
				k := int64(owed[i])
				owed[i] -= float64(k)
				if p := l.TryTake(k); tick >= begins*500 {
					got += p.N()
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
		for _, l := range all {
			asks += float64(l.Status().Asks) / float64(seconds)
		}
		used = float64(got) / float64(seconds-begins) / total
		t.Logf("%.4f of the limit was used, with %.0f asks a second", used, asks)
	})
	return used, asks
}

// TestSmallSharesAreUsed: shares are of 20 permits, the i-th instance has 1/i of the calls, and
// each 5 s others are first.
func TestSmallSharesAreUsed(t *testing.T) {
	const n = 96
	harmonic := 0.0
	for i := range n {
		harmonic += 1 / float64(i+1)
	}
	used, asks := playUneven(t, n, 23, func(i, second int) float64 { return 1 / harmonic / float64((i+second/5*37)%n+1) })
	if used < 0.97 || used > 1 || asks > 180 {
		t.Errorf("%.4f of the limit was used, want 0.97 to 1, with %.0f asks a second, want 180 at most", used, asks)
	}
}

// TestABusyFleetAsksSeldom: once a second each at most, also when it begins to be busy.
func TestABusyFleetAsksSeldom(t *testing.T) {
	const n = 96
	used, asks := playUneven(t, n, 15, func(int, int) float64 { return 1.0 / n })
	if used < 0.999 || used > 1 || asks > n {
		t.Errorf("%.4f of the limit was used, want 0.999 to 1, with %.0f asks a second, want %d at most", used, asks, n)
	}
}
