package quota

import (
	"math"
	"time"
)

// Bounds of a limit.
const (
	// MaxPermits is the largest number of permits in one window (10^12).
	// It leaves room to add two such totals, and to multiply one by 10^6, in
	// an int64.
	MaxPermits = int64(1_000_000_000_000)
	// MinWindow is the shortest window.
	MinWindow = 100 * time.Millisecond
	// MaxWindow is the longest window.
	MaxWindow = time.Minute
	// maxLimits is the largest number of limits in one policy.
	maxLimits = 8
)

// Limit is a number of permits for each window of one length. Within a policy
// the window length is the limit's identity: no two limits share one.
//
// Windows are aligned to the Unix epoch: window k of length w is
// [k*w, (k+1)*w).
type Limit struct {
	Permits int64         // per window, 0 to MaxPermits; 0 admits nothing
	Window  time.Duration // MinWindow to MaxWindow, whole milliseconds
}

// Window names one window: the k-th of length Length since the Unix epoch.
type Window struct {
	Length time.Duration
	Index  int64
}

// WindowAt returns the window of the given length that contains the wall-clock
// instant wall, in nanoseconds since the Unix epoch.
func WindowAt(length time.Duration, wall int64) Window {
	k := wall / int64(length)
	if wall%int64(length) < 0 {
		k-- // before 1970: round down, not towards zero
	}
	return Window{Length: length, Index: k}
}

// Start returns the window's first instant, in nanoseconds since the Unix epoch,
// held within int64.
func (w Window) Start() int64 { return times(w.Index, int64(w.Length)) }

// End returns the first instant after the window, in nanoseconds since the Unix
// epoch, held within int64.
func (w Window) End() int64 {
	if w.Index == math.MaxInt64 {
		return math.MaxInt64
	}
	return times(w.Index+1, int64(w.Length))
}

// times is a*b for b >= 0, held within int64.
func times(a, b int64) int64 {
	switch p := a * b; {
	case b == 0 || p/b == a:
		return p
	case a < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}
