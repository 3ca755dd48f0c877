package fleet

import "time"

// waiting is for something that makes progress.
type waiting struct {
	since         time.Time
	atMost, still time.Duration // in all, and without progress

	most int       // the most progress there was
	last time.Time // when there was more progress
}

// inVain reports whether the wait must end at this instant, with so much progress made.
func (w *waiting) inVain(now time.Time, progress int) bool {
	if progress > w.most {
		w.most, w.last = progress, now
	}
	return now.Sub(w.last) > w.still || now.Sub(w.since) > w.atMost
}
