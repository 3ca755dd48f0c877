package load

import "time"

// mostPlaces bounds how many places of a window are told apart.
const mostPlaces = 250

// Within says when, within a window, permits are issued: a picture of all windows
// laid on top of each other.
type Within struct {
	BucketNs int64 `json:"bucket_ns"` // the length of a place
	// Mean is how many permits a window has at each place, on average, and Most
	// how many any window had there.
	Mean []float64 `json:"mean"`
	Most []int64   `json:"most"`
	// Last is how many the last window had: a single one, for what differs from
	// window to window.
	Last []int64 `json:"last"`
}

// FoldWindows lays the buckets of the windows that lie in [start, end) from end to
// end on top of each other. Buckets are joined where a window has very many. nil
// if there is no such window.
func FoldWindows(counts []Count, bucket, window time.Duration, start, end int64) *Within {
	first, last := floorDiv(start+int64(window)-1, int64(window)), floorDiv(end, int64(window)) // [first, last)
	if first >= last {
		return nil
	}
	length := int64(bucket)
	for int64(window) > length*mostPlaces {
		length += int64(bucket)
	}
	places := (int64(window) + length - 1) / length
	w := &Within{BucketNs: length, Mean: make([]float64, places), Most: make([]int64, places), Last: make([]int64, places)}
	at := map[[2]int64]int64{}
	for _, c := range counts {
		if k := floorDiv(c.Index*int64(bucket), int64(window)); first <= k && k < last {
			at[[2]int64{k, (c.Index*int64(bucket) - k*int64(window)) / length}] += c.Issued
		}
	}
	for place, n := range at {
		w.Mean[place[1]] += float64(n)
		w.Most[place[1]] = max(w.Most[place[1]], n)
		if place[0] == last-1 {
			w.Last[place[1]] = n
		}
	}
	for i := range w.Mean {
		w.Mean[i] /= float64(last - first)
	}
	return w
}

// Coarser adds counts up into buckets of n times the length.
func Coarser(counts []Count, n int64) []Count {
	coarse := make([]Count, 0, len(counts))
	for _, c := range counts {
		c.Index = floorDiv(c.Index, n)
		coarse = append(coarse, c)
	}
	return Merge(coarse)
}
