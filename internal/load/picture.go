package load

import "slices"

const (
	// mostPlaces bounds how many places of a window are told apart.
	mostPlaces = 250
	// mostMoments bounds how many moments Rolling tells.
	mostMoments = 400
)

// dense returns what came in each cell of the measured time that lies in it from end
// to end, and the number of the first.
func (r *Run) dense() (first int64, cells []int64) {
	cell := int64(r.Own.Cell)
	if cell == 0 || r.Start == Never || r.End <= r.Start {
		return 0, nil
	}
	first = floorDiv(r.Start+cell-1, cell)
	cells = make([]int64, max(0, floorDiv(r.End, cell)-first))
	for _, c := range r.Own.Came {
		if i := c.Index - first; 0 <= i && i < int64(len(cells)) {
			cells[i] += c.Issued
		}
	}
	return first, cells
}

// peakToMean returns the largest count of permits in n cells over their mean, empty
// ones included; 0 without permits.
func (r *Run) peakToMean(n int) float64 {
	_, cells := r.dense()
	peak, whole := int64(0), len(cells)/n
	for some := range slices.Chunk(cells[:whole*n], n) {
		peak = max(peak, sumOf(some))
	}
	return ratio(peak*int64(whole), sumOf(cells[:whole*n]))
}

func sumOf(cells []int64) (sum int64) {
	for _, n := range cells {
		sum += n
	}
	return sum
}

// Within says when, within a window, permits are issued: a picture of all windows
// laid on top of each other.
type Within struct {
	BucketNs int64 `json:"bucket_ns"` // the length of a place
	// Mean is how many permits a window has at each place, on average, and Most
	// how many any window had there.
	Mean []float64 `json:"mean"`
	Most []int64   `json:"most"`
}

// Within lays the shortest limit's windows that lie in the measured time from end to
// end on top of each other. Cells are joined where a window has very many. nil if
// there is no such window.
func (r *Run) Within() *Within {
	lengths := r.Timeline.Lengths()
	if r.Start == Never || r.Own.Cell == 0 || len(lengths) == 0 {
		return nil
	}
	cell, window := int64(r.Own.Cell), int64(lengths[0])
	first, last := floorDiv(r.Start+window-1, window), floorDiv(r.End, window) // [first, last)
	if first >= last {
		return nil
	}
	length := cell * max(1, (window-1)/(cell*mostPlaces)+1)
	places := (window + length - 1) / length
	w := &Within{BucketNs: length, Mean: make([]float64, places), Most: make([]int64, places)}
	of, came := int64(0), make([]int64, places) // a window, and what came in it
	for _, c := range r.Own.Came {
		k := floorDiv(c.Index*cell, window)
		if k < first || k >= last {
			continue
		}
		if k != of {
			of = k
			clear(came)
		}
		i := (c.Index*cell - k*window) / length
		came[i] += c.Issued
		w.Mean[i] += float64(c.Issued) / float64(last-first)
		w.Most[i] = max(w.Most[i], came[i])
	}
	return w
}

// Moment is how many permits came to their callers in one window's length up to an
// instant, in nanoseconds since the Unix epoch.
type Moment struct {
	At      int64 `json:"at_ns"`
	Permits int64 `json:"permits"`
}

// Rolling returns how many permits came to their callers in each span of the shortest
// window's length in the measured time. Of spans that end near each other it returns
// the fullest. Nil if no span fits.
func (r *Run) Rolling() (moments []Moment) {
	first, cells := r.dense()
	if len(cells) == 0 {
		return nil
	}
	span := int(r.Timeline.Lengths()[0] / r.Own.Cell)
	each := max(1, (len(cells)-span+mostMoments)/mostMoments)
	sum := int64(0)
	for i, n := range cells {
		sum += n
		if i >= span {
			sum -= cells[i-span]
		}
		begun := i + 1 - span
		if begun < 0 {
			continue
		}
		if begun%each == 0 {
			moments = append(moments, Moment{})
		}
		m := &moments[len(moments)-1]
		m.At, m.Permits = (first+int64(i)+1)*int64(r.Own.Cell), max(m.Permits, sum)
	}
	return moments
}

func (r *Run) spanRatio() float64 {
	most := int64(0)
	for _, m := range r.Rolling() {
		most = max(most, m.Permits)
	}
	if most == 0 {
		return 0
	}
	limit, _ := r.Timeline.mostIn(r.Timeline.Lengths()[0], r.Start-int64(r.Timeline.Settle), r.End)
	return ratio(most, max(limit, 1))
}
