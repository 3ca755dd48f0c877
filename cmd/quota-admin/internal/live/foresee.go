package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Foresight is what limits would have refused of the permits that were asked for.
type Foresight struct {
	// Limits are those that were compared: of windows of at most a minute.
	Limits string `json:"limits"`
	// Known is how many seconds the comparison covers; 0: the past is not known.
	Known   float64 `json:"known_seconds"`
	Asked   float64 `json:"asked"`
	Refused float64 `json:"refused"`
	// Would is how many permits the limits would have refused, if calls had asked for the same.
	Would float64 `json:"would_refuse"`
}

// Foresee compares limits with what was asked for in the points, each of that length. It
// issues at each point what the windows of all limits still have. Calls that wait, and those
// that come again after a refusal, would have changed what was asked for.
func Foresee(points []Point, length time.Duration, limits []quota.Limit) (f Foresight) {
	limits = slices.DeleteFunc(slices.Clone(limits), func(l quota.Limit) bool { return l.Window > quota.MaxWindow || protocol.Free(l) })
	if len(limits) == 0 {
		return f
	}
	f.Limits = quota.FormatLimits(limits)
	ends, left := make([]int64, len(limits)), make([]float64, len(limits))
	for _, p := range points {
		if p.Total == nil {
			continue
		}
		asked, at := (*p.Total+p.Refused)*length.Seconds(), p.At*int64(time.Millisecond)
		issued := asked
		for i, l := range limits {
			if at >= ends[i] {
				ends[i], left[i] = quota.WindowAt(l.Window, at).End(), float64(l.Permits)*max(1, length.Seconds()/l.Window.Seconds())
			}
			issued = min(issued, left[i])
		}
		for i := range left {
			left[i] -= issued
		}
		f.Known += length.Seconds()
		f.Asked, f.Refused, f.Would = f.Asked+asked, f.Refused+p.Refused*length.Seconds(), f.Would+asked-issued
	}
	f.Known, f.Asked, f.Refused, f.Would = round(f.Known), round(f.Asked), round(f.Refused), round(f.Would)
	return f
}

// String is the comparison in one sentence; "" if nothing was compared.
func (f Foresight) String() string {
	past := fmt.Sprintf("in the last %v that the dashboard knows", time.Duration(f.Known*float64(time.Second)))
	switch {
	case f.Known <= 0:
		return ""
	case f.Asked <= 0:
		return "No permits were asked for " + past + "."
	}
	return fmt.Sprintf("Of %.0f permits asked for %s, %.0f were refused; %s would have refused about %.0f, if callers had asked for the same.",
		f.Asked, past, f.Refused, strings.ReplaceAll(f.Limits, ",", ", "), f.Would)
}
