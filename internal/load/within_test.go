package load

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// Against adding up by hand: the means are of the whole windows, none is lost, and
// the most is of one window.
func TestFoldWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bucket = 10 * time.Millisecond
		window := time.Duration(rapid.SampledFrom([]int{100, 125, 1000, 7000, 60000}).Draw(t, "window")) * time.Millisecond
		start := rapid.Int64Range(0, 3*int64(window)).Draw(t, "start")
		end := start + rapid.Int64Range(0, 5*int64(window)).Draw(t, "length")
		var counts []Count
		var sum int64
		whole := int64(0)
		first := (start + int64(window) - 1) / int64(window)
		for first+whole < end/int64(window) {
			whole++
		}
		for i := range rapid.IntRange(0, 50).Draw(t, "counts") {
			c := Count{Index: int64(i) * rapid.Int64Range(1, 300).Draw(t, "gap"), Issued: rapid.Int64Range(0, 100).Draw(t, "issued")}
			counts = append(counts, c)
			if k := c.Index * int64(bucket) / int64(window); first <= k && k < first+whole {
				sum += c.Issued
			}
		}
		r := Run{Start: start, End: end, Own: Own{Came: Merge(counts), Cell: bucket},
			Timeline: Timeline{Changes: []Change{{Limits: []quota.Limit{{Permits: 1, Window: window}}}}}}
		w := r.Within()
		if whole <= 0 {
			if w != nil {
				t.Fatalf("no whole window, but %+v", w)
			}
			return
		}
		if len(w.Mean) > mostPlaces || len(w.Mean) != len(w.Most) || int64(len(w.Mean)) != (int64(window)+w.BucketNs-1)/w.BucketNs {
			t.Fatalf("%d means, %d mosts of %v", len(w.Mean), len(w.Most), time.Duration(w.BucketNs))
		}
		total := 0.0
		for i, mean := range w.Mean {
			total += mean * float64(whole)
			if mean > float64(w.Most[i])+1e-9 || float64(w.Most[i]) > mean*float64(whole)+1e-9 {
				t.Fatalf("place %d: mean %v, most %d, of %d windows", i, mean, w.Most[i], whole)
			}
		}
		if diff := total - float64(sum); diff > 1e-6 || diff < -1e-6 {
			t.Fatalf("%v permits, want %d", total, sum)
		}
	})
}
