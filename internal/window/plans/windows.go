package plans

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// Windows says in which windows permits are counted: those of a provider, or those of its keys. It
// belongs to a plan and, like it, never changes.
type Windows struct {
	// Running are the windows that run of limits up to quota.MaxWindow, shortest first, one for
	// each length that may bind.
	Running []quota.Window
	// Budgets are those of longer limits. For keys, whose limits may differ, there is one for each
	// length that a key may have, without permits.
	Budgets []protocol.Budget
	// Shut says that nothing is issued: within a guard, during a pause of the provider, or in a
	// window that was over before corrected time was set back.
	Shut bool
	// Offset is corrected wall time minus monotonic time, and Guard the time at either edge of a
	// window in which nothing is issued, both in nanoseconds. Shut enforces the guard; pacing
	// releases between the guards.
	Offset, Guard int64
	// Over is a corrected wall time: windows that ended by then never run again.
	Over int64
	// Lending says what may be lent and borrowed.
	Lending Lending
}

// Keys are the windows of a provider's keys. The next plan has the same Keys if the bounds of all
// keys are the same.
type Keys struct {
	Windows
	// Most bounds the keys in use.
	Most int64
	// Unheard says that nobody has told yet whether keys have limits: callers wait until somebody does.
	Unheard bool
}

// Unheard are the windows of keys before the first view of the provider. Nothing is issued in them.
var Unheard = &Keys{Most: mostUnheard, Unheard: true}

// mostUnheard is Keys.Most of Unheard: as many keys as a policy allows that does not say.
const mostUnheard = 100_000

// Spans goes over the start and the end of each window, in corrected wall time.
func (w *Windows) Spans(yield func(start, end int64) bool) {
	for _, r := range w.Running {
		if !yield(r.Start(), r.End()) {
			return
		}
	}
	for i := range w.Budgets {
		if !yield(w.Budgets[i].Start, w.Budgets[i].End) {
			return
		}
	}
}

// Opens returns the first monotonic instant after now at which an account may have more permits,
// if there is no news; clock.Forever if nothing is limited.
func (w *Windows) Opens(now int64) int64 {
	at := clock.Forever
	for start, end := range w.Spans {
		if opens := w.OpensAfter(start); opens > now {
			at = min(at, opens)
		} else if opens = w.OpensAfter(end); opens > now {
			at = min(at, opens)
		}
	}
	return at
}

// Late returns the monotonic instant from which a permit of a window is hardly of use to its owner any more.
func (w *Windows) Late(of quota.Window) int64 {
	return of.End() - w.Guard - w.Offset - int64(lending.Late*float64(time.Millisecond))
}

// OpensAfter returns the monotonic instant at which permits are issued after an edge of a window.
func (w *Windows) OpensAfter(edge int64) int64 { return edge + w.Guard - w.Offset }
