package limittest_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// usedBy has the i-th instance make rates[i] calls a second for a key, which wait so long. They come evenly, or at random.
// It returns the part of the key's limit of permits per second that was used in a minute.
func usedBy(t *testing.T, permits, owners int64, rates []float64, evenly bool, wait time.Duration) (used float64) {
	t.Helper()
	const warm, seconds = 4, 60
	type call struct {
		at time.Duration
		by string
	}
	var calls []call
	chance := rand.New(rand.NewPCG(1, 2))
	for i, rate := range rates {
		gap := chance.ExpFloat64
		at := gap() / rate
		if evenly {
			gap = func() float64 { return 1 }
		}
		for ; at < warm+seconds; at += gap() / rate {
			calls = append(calls, call{time.Duration(at * float64(time.Second)), fmt.Sprint("instance-", i)})
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	synctest.Test(t, func(t *testing.T) {
		f := newOwners(t, lendingKeys(permits, owners), len(rates))
		var c counted
		began := time.Now()
		for _, call := range calls {
			time.Sleep(time.Until(began.Add(call.at)))
			key := f.by[call.by].Key("key")
			go func() {
				p, _ := key.Take(t.Context(), 1, wait)
				c.add("key", p)
			}()
		}
		time.Sleep(wait)
		synctest.Wait()
		from := began.Unix() + warm
		used = float64(c.check(t, permits, from, from+seconds)["key"]) / float64(seconds*permits)
	})
	return used
}

// TestSmallKeysAreUsed: keys have a permit or two for each instance, or none for some. So one that an instance gets and
// does not use is a good part of the limit.
func TestSmallKeysAreUsed(t *testing.T) {
	const half = 500 * time.Millisecond
	alike := func(n int, rate float64) []float64 { return slices.Repeat([]float64{rate / float64(n)}, n) }
	twoBusy := func(rate float64) []float64 { return append([]float64{rate / 2, rate / 2}, make([]float64, 10)...) }
	oneBusy := append([]float64{30}, slices.Repeat([]float64{1}, 9)...)
	for _, test := range []struct {
		what            string
		permits, owners int64
		rates           []float64
		evenly          bool
		wait            time.Duration
		least           float64
	}{
		{"1 of 12, callers wait", 1, 0, alike(12, 2), false, half, 0.85},
		{"5 of 12", 5, 0, alike(12, 10), false, 0, 0.58},
		{"5 of 12, of which two are busy", 5, 0, twoBusy(7.5), false, 0, 0.8},
		{"5 of 12, evenly", 5, 0, alike(12, 10), true, 0, 0.78},
		{"20 of an owner among 12, evenly", 20, 1, alike(12, 40), true, 0, 0.95},
		{"5 of 12, callers wait", 5, 0, alike(12, 10), false, half, 0.92},
		{"5 of an owner among 12", 5, 1, alike(12, 10), false, 0, 0.38},
		{"5 of an owner among 12, which call evenly and much", 5, 1, alike(12, 20), true, 0, 0.95},
		{"5 of an owner among 12, callers wait", 5, 1, alike(12, 10), false, half, 0.94},
		{"20 of 12", 20, 0, alike(12, 40), false, 0, 0.9},
		{"20 of 12, callers wait", 20, 0, alike(12, 40), false, half, 0.98},
		{"20 of an owner among 12", 20, 1, alike(12, 40), false, 0, 0.86},
		{"20 of an owner among 12, callers wait", 20, 1, alike(12, 40), false, half, 0.98},
		{"20 of ten, of which one is busy", 20, 0, oneBusy, false, 0, 0.92},
		{"20 of an owner among 12, of which two are busy", 20, 1, twoBusy(30), false, 0, 0.98},
		{"20 of an owner among ten, of which one is busy", 20, 1, oneBusy, false, 0, 0.88},
	} {
		used := usedBy(t, test.permits, test.owners, test.rates, test.evenly, test.wait)
		if t.Logf("%s: %.3f of the limit was used", test.what, used); used < test.least {
			t.Errorf("%s: %.3f of the limit was used, want at least %.2f", test.what, used, test.least)
		}
	}
}
