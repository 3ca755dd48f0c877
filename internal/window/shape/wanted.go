package shape

import "github.com/quotient-limiter/quotient/quota"

// Wanted is the largest request that was refused, or was told when to come, in the running
// window of the shortest limit, and in the one before: pacing lets so many permits accumulate,
// so that a caller that asks again when it was told to finds them.
type Wanted struct {
	window      quota.Window
	now, before int64
}

// Note notes such a request for n permits.
func (w *Wanted) Note(n int64) { w.now = max(w.now, n) }

// Roll moves on to a window.
func (w *Wanted) Roll(to quota.Window) {
	if w.window == to {
		return
	}
	w.window.Index++
	if w.before = 0; w.window == to {
		w.before = w.now
	}
	w.window, w.now = to, 0
}

// Most returns how many permits the largest request wants.
func (w *Wanted) Most() int64 { return max(w.now, w.before) }
