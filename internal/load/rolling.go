package load

import "time"

// mostMoments bounds how many moments Rolling tells.
const mostMoments = 400

// Moment is how many permits came to their callers in one window's length up to an
// instant, in nanoseconds since the Unix epoch.
type Moment struct {
	At      int64 `json:"at_ns"`
	Permits int64 `json:"permits"`
}

// Rolling returns how many permits came to their callers in each span of the shortest
// window's length in the measured time. Of spans that end near each other it returns
// the fullest. Nil if no span fits.
func (r *Run) Rolling(came []Count, cell time.Duration) []Moment {
	lengths := r.Timeline.Lengths()
	if r.Start == Never || len(lengths) == 0 {
		return nil
	}
	cells := int64(lengths[0] / cell)
	first, last := floorDiv(r.Start+int64(cell)-1, int64(cell)), floorDiv(r.End, int64(cell)) // [first, last)
	each := max(1, (last-first-cells+mostMoments)/mostMoments)
	var moments []Moment
	sum, in, out := int64(0), 0, 0 // of came[out:in]
	for end := first + cells; end <= last; end++ {
		for in < len(came) && came[in].Index < end {
			sum += came[in].Issued
			in++
		}
		for out < in && came[out].Index < end-cells {
			sum -= came[out].Issued
			out++
		}
		if (end-first-cells)%each == 0 {
			moments = append(moments, Moment{})
		}
		m := &moments[len(moments)-1]
		m.At, m.Permits = end*int64(cell), max(m.Permits, sum)
	}
	return moments
}

// SpanRatio returns Summary.MaxSpanRatio.
func (r *Run) SpanRatio(moments []Moment) float64 {
	if len(moments) == 0 {
		return 0
	}
	limit, _ := r.Timeline.mostIn(r.Timeline.Lengths()[0], r.Start-int64(r.Timeline.Settle), r.End)
	most := int64(0)
	for _, m := range moments {
		most = max(most, m.Permits)
	}
	return ratio(most, max(limit, 1))
}
