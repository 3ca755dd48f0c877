package share_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func fleet(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("worker-%d.694d9a%06x.1", i, i*7919)
	}
	return ids
}

func second(index int64) quota.Window { return quota.Window{Length: time.Second, Index: index} }

// TestSplitGoldenValues: the hash is part of the protocol; two builds that
// disagree here would hand out a permit twice.
func TestSplitGoldenValues(t *testing.T) {
	// Who gets the one permit, in 32 windows in a row.
	ids := []string{"", "a", "worker-7.694d9a8c1f.1", "größe", "d"}
	name := map[string]string{"": "-", "a": "a", "worker-7.694d9a8c1f.1": "w", "größe": "g", "d": "d"}
	for _, c := range []struct {
		first quota.Window
		want  string
	}{
		{second(0), "ad---gg-w--awwga--aadadgdwaw-gwg"},
		{second(1_700_000_000), "w-ggwwd-w-ggdd-wwdagwdwgaw-daad-"},
		{second(-16), "gad-waa-g---wdddad---gg-w--awwga"},
		{quota.Window{Length: time.Minute, Index: 28_333_333}, "w-gwdwgww-waagggwgaw--g-waaadgaw"},
		{quota.Window{Length: 100 * time.Millisecond, Index: math.MaxInt64 - 31}, "dgad--add-wgadwg-awgwggdaagagdg-"},
	} {
		got := ""
		for i := range int64(32) {
			w := c.first
			w.Index += i
			for id, s := range share.Equal(1, ids, w) {
				if s == 1 {
					got += name[id]
				}
			}
		}
		if got != c.want {
			t.Errorf("from %v: %s, want %s", c.first, got, c.want)
		}
	}
}

// TestSplitEqualsTheNaiveDeal also holds the sum: it is the total, always.
func TestSplitEqualsTheNaiveDeal(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	totals := []int64{0, 1, 10, 95, 96, 97, 300_000, quota.MaxPermits, math.MaxInt64}
	for n := 1; n <= 120; n++ {
		ids := fleet(n)
		for _, total := range append(totals, r.Int64N(quota.MaxPermits), r.Int64N(200)) {
			w := quota.Window{Length: time.Duration(1+r.Int64N(60_000)) * time.Millisecond, Index: r.Int64()}
			got, want := share.Equal(total, ids, w), naiveSplit(total, ids, w)
			if !maps.Equal(got, want) {
				t.Fatalf("seed %d: Equal(%d among %d, %v) = %v, dealt one by one %v", seed, total, n, w, got, want)
			}
			var sum int64
			low, high := int64(math.MaxInt64), int64(0)
			for _, s := range got {
				sum, low, high = sum+s, min(low, s), max(high, s)
			}
			if sum != total || high-low > 1 || low < 0 {
				t.Fatalf("seed %d: %d among %d in %v: sum %d, from %d to %d", seed, total, n, w, sum, low, high)
			}
		}
	}
	if got := share.Equal(10, nil, second(1)); len(got) != 0 {
		t.Errorf("nobody shares, and gets %v", got)
	}
	if got := share.Equal(-5, []string{"a"}, second(1)); got["a"] != 0 {
		t.Errorf("a negative total gives %v", got)
	}
}

func TestSplitDoesNotDependOnOrder(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, seed))
	ids := fleet(50)
	for k := range int64(200) {
		want := share.Equal(1013, ids, second(k))
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		if got := share.Equal(1013, ids, second(k)); !maps.Equal(got, want) {
			t.Fatalf("seed %d window %d: %v after a shuffle, %v before", seed, k, got, want)
		}
	}
}

// TestExtraPermitsReachEverybodyInTurn: 10 permits a second among 96. If ranks
// are random, each instance's count over N windows is binomial with p = 10/96,
// and the sum of squared deviations over N*p*(1-p)*n/(n-1) is chi-square with
// 95 degrees of freedom: mean 95, standard deviation sqrt(190) = 13.8. Five
// standard deviations either way pass with a fair hash and catch an unfair one;
// a hash that is too even would be as wrong as one that is too uneven.
func TestExtraPermitsReachEverybodyInTurn(t *testing.T) {
	const n, total, windows = 96, 10, 20_000
	ids := fleet(n)
	counts, last, longest := map[string]float64{}, map[string]int64{}, int64(0)
	for k := range int64(windows) {
		for id, s := range share.Equal(total, ids, second(1_700_000_000+k)) {
			if s > 0 {
				counts[id]++
				longest, last[id] = max(longest, k-last[id]), k
			}
		}
	}
	p := float64(total) / n
	var chi float64
	for _, id := range ids {
		d := counts[id] - windows*p
		chi += d * d / (windows * p * (1 - p)) * (n - 1) / n
	}
	if spread := math.Sqrt(2 * (n - 1)); math.Abs(chi-(n-1)) > 5*spread {
		t.Errorf("chi-square %.1f, want %d within %.1f", chi, n-1, 5*spread)
	}
	// A given wait exceeds 200 windows with (1-p)^200 = 3e-10; there are 2e5.
	if longest > 200 {
		t.Errorf("somebody waited %d windows for a permit", longest)
	}
	t.Logf("chi-square %.1f, longest wait %d windows", chi, longest)
}

// TestJoinTakesOnlyWhatItNeeds: a join raises nobody else's share, so the
// others lose together exactly the joiner's share, and at most that many of
// them lose anything. A leave is the same backwards.
func TestJoinTakesOnlyWhatItNeeds(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, seed))
	for range 3000 {
		ids := fleet(2 + r.IntN(150))
		total, w := r.Int64N(400), second(r.Int64())
		joiner := ids[len(ids)-1]
		before, after := share.Equal(total, ids[:len(ids)-1], w), share.Equal(total, ids, w)
		var changed int64
		for id, b := range before {
			if after[id] > b {
				t.Fatalf("seed %d: %s rises from %d to %d when another joins", seed, id, b, after[id])
			}
			if after[id] != b {
				changed++
			}
		}
		if changed > after[joiner] {
			t.Fatalf("seed %d: %d of %d change for a joiner that gets %d", seed, changed, len(before), after[joiner])
		}
	}
}

func TestSharesOfAView(t *testing.T) {
	v := view(7, 10, "a", "b", "c")
	w := second(1_700_000_000)
	v.Instances[2].From = time.Unix(1_700_000_001, 0)
	total, shares, ok := share.Of(&v, w)
	if want := map[string]int64{"a": 5, "b": 5, "c": 0}; !ok || total != 10 || !maps.Equal(shares, want) {
		t.Errorf("before c's From: %d %v %v", total, shares, ok)
	}
	if _, shares, _ = share.Of(&v, second(1_700_000_001)); slices.Min(slices.Collect(maps.Values(shares))) != 3 {
		t.Errorf("from c's From on: %v", shares)
	}
	if _, _, ok = share.Of(&v, quota.Window{Length: time.Minute}); ok {
		t.Error("a window length without a limit has shares")
	}
	v.Policy.Mode = quota.ModePause
	if total, shares, ok = share.Of(&v, w); !ok || total != 10 || shares["a"] != 0 || len(shares) != 3 {
		t.Errorf("paused: %d %v %v", total, shares, ok)
	}
	v.Policy = nil
	if _, _, ok = share.Of(&v, w); ok {
		t.Error("no policy, but shares")
	}
}
