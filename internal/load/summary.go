package load

import (
	"sort"
)

// add takes the windows of one limit into the summary.
func (s *Summary) add(windows []Window, shortest bool, fleet int) {
	var settled, all usage
	for i := range windows {
		w := &windows[i]
		if w.Over() {
			s.OverLimitWindows++
		}
		s.MaxOverRatio = max(s.MaxOverRatio, ratio(w.certain(), max(w.Most(), 1)))
		if !w.whole {
			continue
		}
		if shortest {
			s.Windows++
		}
		all.add(w)
		if !w.settling && w.Instances >= fleet {
			settled.add(w)
		}
	}
	s.Utilisation = max(s.Utilisation, settled.ratio())
	s.UtilisationAll = max(s.UtilisationAll, all.ratio())
}

// usage is what was issued of what could have been. A call that waited was
// offered in one window and got its permit in the next one, which may so have
// more permits than calls. A burst that came on top of the limit was possible.
type usage struct{ issued, possible int64 }

func (u *usage) add(w *Window) {
	u.issued += w.certain()
	u.possible += min(max(w.Limit, min(w.certain(), w.Allowed)), max(w.Offered, w.Issued))
}

func (u *usage) ratio() float64 { return ratio(u.issued, u.possible) }

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// sortWindows orders by start, and at one start by length.
func sortWindows(windows []Window) {
	sort.SliceStable(windows, func(i, j int) bool {
		return windows[i].Start.Before(windows[j].Start)
	})
}

// PeakToMean returns the largest count of permits over their mean, over the
// buckets that lie in [start, end), empty ones included; 0 without permits.
func PeakToMean(counts []Count, length, start, end int64) float64 {
	first, last := floorDiv(start+length-1, length), floorDiv(end, length) // [first, last)
	var peak, sum int64
	for _, c := range counts {
		if first <= c.Index && c.Index < last {
			peak = max(peak, c.Issued)
			sum += c.Issued
		}
	}
	if sum == 0 {
		return 0
	}
	return float64(peak) * float64(last-first) / float64(sum)
}
