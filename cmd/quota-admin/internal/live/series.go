package live

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxApart is how far two reports of an instance may be apart so that what
	// happened in between is told by second: it is longer where nobody looked, or
	// etcd was away.
	maxApart = 5 * time.Second
	// maxMean is how far they may be apart so that a mean is told.
	maxMean = 15 * time.Minute
)

// sample is a count of an instance in all. Of permits issued it is in windows that began
// before at.
type sample struct {
	at    int64 // nanoseconds since the Unix epoch
	count int64
}

// series are the samples of a count, in order of time.
type series []sample

// add adds a sample, and returns the rate since the one before. ok is false for one that
// no instance of ours writes, and for one that is no news.
func (s *series) add(next sample) (perSecond float64, ok bool) {
	if next.count < 0 {
		return 0, false
	}
	if n := len(*s); n > 0 {
		last := (*s)[n-1]
		if next.at <= last.at {
			return 0, false
		}
		perSecond = max(0, float64(next.count-last.count)/time.Duration(next.at-last.at).Seconds())
		if next.count < last.count { // it counts anew
			*s = nil
		}
	}
	*s = append(*s, next)
	return perSecond, true
}

func (s series) covers(at int64) bool { return len(s) > 0 && s[len(s)-1].at >= at }

// edge is what is known of a count at an instant.
type edge struct {
	known       bool
	n           float64 // by a guess, where the instant lies between two samples
	least, most float64 // the counts of these samples; n where one is of the instant itself
	apart       bool    // they are more than maxApart apart
}

// at returns what is known of an instant. Between two samples the count is divided by part if
// they are more than maxApart apart, and evenly if not.
func (s series) at(when int64, part func(from, to, at int64) float64) edge {
	i, found := slices.BinarySearchFunc(s, when, func(s sample, at int64) int { return cmp.Compare(s.at, at) })
	switch {
	case i == len(s):
		return edge{}
	case found:
		n := float64(s[i].count)
		return edge{known: true, n: n, least: n, most: n, apart: i > 0 && s[i].at-s[i-1].at > int64(maxApart)}
	case i == 0 || s[i].at-s[i-1].at > int64(maxMean):
		return edge{}
	}
	last, next := s[i-1], s[i]
	divide, apart := evenly, next.at-last.at > int64(maxApart)
	if apart {
		divide = part
	}
	least, most := float64(last.count), float64(next.count)
	return edge{true, least + (most-least)*divide(last.at, next.at, when), least, most, apart}
}

// forget drops what no later question needs.
func (s *series) forget(before int64) {
	for len(*s) > 1 && (*s)[1].at <= before {
		*s = (*s)[1:]
	}
}

// evenly is the part of a span that is over at an instant.
func evenly(from, to, at int64) float64 { return float64(at-from) / float64(to-from) }

// weights divide what was issued in a long span in proportion to the limit. Divided evenly
// it would exceed the limit where a lower one begins to bind within the span.
type weights struct {
	first int64     // the bucket of sums[0]
	sums  []float64 // of the limits of all buckets from first on, that of the index included
}

// extend adds the limits of the buckets before until; nil is none. It begins at first.
func (w *weights) extend(first, until int64, limit func(bucket int64) *float64) {
	if len(w.sums) == 0 || w.first+int64(len(w.sums)) < first {
		*w = weights{first: first}
	}
	for k := w.first + int64(len(w.sums)); k < until; k++ {
		weight := 1.0
		if l := limit(k); l != nil {
			weight = *l
		}
		if n := len(w.sums); n > 0 {
			weight += w.sums[n-1]
		}
		w.sums = append(w.sums, weight)
	}
	if n := len(w.sums); n > 2*weightsAtMost {
		w.first += int64(n - weightsAtMost)
		w.sums = slices.Clone(w.sums[n-weightsAtMost:])
	}
}

// weightsAtMost are kept at least; twice as many at most.
const weightsAtMost = 2 * PointsAtMost

// part is the part of a span's permits that is issued by an instant.
func (w *weights) part(length time.Duration, from, to, at int64) float64 {
	a, b, c := w.sum(length, from), w.sum(length, to), w.sum(length, at)
	if a < 0 || b <= a || c < 0 {
		return evenly(from, to, at)
	}
	return (c - a) / (b - a)
}

// sum is the sum of the limits until an instant; negative if it is not known.
func (w *weights) sum(length time.Duration, at int64) float64 {
	k := at/int64(length) - w.first
	if k < 1 || k > int64(len(w.sums)) {
		return -1
	}
	before, after := w.sums[k-1], w.sums[min(k, int64(len(w.sums))-1)]
	return before + (after-before)*float64(at%int64(length))/float64(length)
}
