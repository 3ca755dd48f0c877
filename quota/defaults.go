package quota

import (
	"maps"
	"math"
	"slices"
	"time"
)

// WithDefaults returns the policy with defaults in place of zero fields and
// limits sorted by window. The receiver is not changed.
func (p Policy) WithDefaults() Policy {
	p = p.Clone()
	def(&p.Share, ShareEqual)
	if p.Share == ShareDemand {
		def(&p.Floor, defaultFloor)
	}
	def(&p.Mode, ModeEnforce)
	def(&p.Settle, DefaultSettle)
	def(&p.ClockError, DefaultClockError)
	def(&p.Freshness, p.defaultFreshness())
	def(&p.Outage, OutageHold)
	def(&p.Pacing, PacingOff)
	def(&p.Shape, ShapeFixed)
	p.Requires = p.unimplied()
	sortLimits(p.Limits)
	for _, c := range p.Next {
		sortLimits(c.Limits)
	}
	return p
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Clone returns a copy that shares nothing with p.
func (p Policy) Clone() Policy {
	p.Limits = slices.Clone(p.Limits)
	p.Requires = slices.Clone(p.Requires)
	p.Weights = maps.Clone(p.Weights)
	p.Next = slices.Clone(p.Next)
	for i := range p.Next {
		p.Next[i].Limits = slices.Clone(p.Next[i].Limits)
	}
	return p
}

// Unsupported returns what the policy needs and this version does not know, in
// words; nil if it knows all. An instance that lacks any of it gives itself a
// share of 0: to guess could break the sum.
func (p *Policy) Unsupported() (missing []string) {
	for _, r := range p.Requires {
		if r != featureGuardAuto && r != featureShapes {
			missing = append(missing, r)
		}
	}
	missing = unknown(missing, "share", p.Share, ShareEqual, ShareWeighted, ShareDemand)
	missing = unknown(missing, "mode", p.Mode, ModeEnforce, ModeShadow, ModePause)
	missing = unknown(missing, "outage", p.Outage, OutageHold, OutageStop)
	missing = unknown(missing, "pacing", p.Pacing, PacingOff, PacingEven)
	return unknown(missing, "shape", p.Shape, ShapeFixed, ShapeSliding, ShapeBucket)
}

func unknown[T ~string](missing []string, field string, value T, known ...T) []string {
	if value == "" || slices.Contains(known, value) {
		return missing
	}
	return append(missing, field+" "+shorten(string(value)))
}

// LongestWindow returns the longest window of all limits, announced ones
// included; 0 if there are none.
func (p *Policy) LongestWindow() time.Duration {
	longest, _ := p.windows()
	return longest
}

// windows returns the longest and the shortest window of all limits, announced
// ones included; 0 if there are none.
func (p *Policy) windows() (longest, shortest time.Duration) {
	shortest = math.MaxInt64
	see := func(limits []Limit) {
		for _, l := range limits {
			longest, shortest = max(longest, l.Window), min(shortest, l.Window)
		}
	}
	see(p.Limits)
	for _, c := range p.Next {
		see(c.Limits)
	}
	return longest, min(longest, shortest)
}
