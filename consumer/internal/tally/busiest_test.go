package tally

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Any key with more than 1/200 of all permits has a counter, which never says more than the
// key got, and the counters are no more than 200.
func TestTheBusiestKeysAreCounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b Busiest
		b.Rates(1, 50, "")
		names := rapid.IntRange(1, 2000).Draw(t, "names")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		zipf := rand.NewZipf(random, 1.2, 1, uint64(names-1))
		wanted, sum := map[string]int64{}, int64(0)
		for range 5000 {
			name, n := fmt.Sprint(zipf.Uint64()), random.Int64N(3)
			b.Add(name, n, 1)
			wanted[name] += n + 1
			sum += n + 1
		}
		if len(b.all) > Counters || len(b.by) != len(b.all) {
			t.Fatalf("%d counters, %d by name", len(b.all), len(b.by))
		}
		for name, n := range wanted {
			if i, counted := b.by[name]; n > sum/Counters && (!counted || b.all[i].key != name || b.all[i].weight < n) {
				t.Fatalf("%s wanted %d of %d permits: counted is %v, at %d", name, n, sum, counted, i)
			}
		}
		for _, c := range b.all {
			if c.issued+c.refused > wanted[c.key] {
				t.Fatalf("%s wanted %d, and %d are counted", c.key, wanted[c.key], c.issued+c.refused)
			}
		}
	})
}
