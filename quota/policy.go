// Package quota is the vocabulary of Quotient: limits and policies, their text and JSON
// forms, and what makes them valid.
//
// It imports the standard library only, so every other package, and every
// application, may depend on it. Nothing in it does I/O or reads a clock; all
// values are safe to share between goroutines as long as nobody changes them.
package quota

import (
	"math"
	"slices"
	"time"
)

// Schema is the version of the JSON values that this package writes.
const Schema = 1

// Mode is a limiter's treatment of refusals.
type Mode string

// The modes.
const (
	// ModeEnforce refuses what exceeds the share.
	ModeEnforce Mode = "enforce"
	// ModeShadow counts as ModeEnforce does, but lets every call pass.
	ModeShadow Mode = "shadow"
	// ModePause issues nothing.
	ModePause Mode = "pause"
)

// Outage is the rule for an instance that cannot prove its view recent.
type Outage string

// The outage rules.
const (
	// OutageHold keeps the last share and never grows it. The sum stays exact while all
	// of etcd is away. If only some instances are cut off, it can exceed the total by
	// their shares.
	OutageHold Outage = "hold"
	// OutageStop issues nothing until the view is proved recent again. The sum
	// stays exact always.
	OutageStop Outage = "stop"
)

// Backoff is the scope of a provider's request for a pause: see
// consumer.Limiter.Throttled.
type Backoff string

// The back-off rules.
const (
	// BackoffInstance holds back the instance that the provider refused.
	BackoffInstance Backoff = "instance"
	// BackoffFleet holds back all instances when two of them were refused within 2 s; in
	// fleets of up to 3, one is enough.
	BackoffFleet Backoff = "fleet"
)

// Pacing is the release of permits within a window.
type Pacing string

// The pacings.
const (
	// PacingOff releases a window's permits all at once, at its start.
	PacingOff Pacing = "off"
	// PacingEven releases them along the window. Callers that do not wait are refused
	// while the released permits are spent.
	PacingEven Pacing = "even"
)

// The rules of lending.
const (
	lendOn  = "on"
	lendOff = "off"
)

// Default values of a policy's zero fields.
const (
	DefaultSettle     = 3 * time.Second
	DefaultClockError = 50 * time.Millisecond
	// DefaultFreshness goes with DefaultSettle. With another settle time and no
	// freshness, a policy has five sixths of its settle time, or less if clock error
	// and windows demand it.
	DefaultFreshness  = 2500 * time.Millisecond
	defaultMaxStep    = 10.0
	defaultBackoffMax = time.Minute
)

// Bounds of a policy's times.
const (
	minSettle    = 100 * time.Millisecond
	minFreshness = 50 * time.Millisecond // leaves room for a few reads of etcd
	MaxSettle    = time.Minute
)

// Policy has the limits and rules that an operator sets for a provider. Zero fields mean
// the defaults; WithDefaults fills them in. The groups of fields are for reading: in JSON
// their fields stand beside the others.
type Policy struct {
	// Limits must all admit a permit; 1 to 8, each with a window length of its own,
	// shortest first. Of a window of more than MaxWindow no instance has a share: each
	// takes permits from etcd before it needs them.
	Limits []Limit `json:"-"`
	// Keys limits each key of the provider beside Limits. The zero value: there are none.
	Keys Keys `json:"-"`
	// Zone is the time zone of days and months, such as "Europe/Berlin"; default UTC.
	Zone string `json:"zone,omitempty"`
	Division
	// Mode is default ModeEnforce.
	Mode Mode `json:"mode"`
	// Outage is default OutageHold.
	Outage Outage `json:"outage"`
	Timing
	Release
	Throttling
	// From is the instant from which the policy is in force: it rules the
	// windows that start at or after it. Zero: every window.
	From time.Time `json:"from,omitzero"`
	// Next holds announced limit changes, in order of From.
	Next []LimitChange `json:"-"`
	// MaxStep is the largest factor of one change, up or down. Operators' tools refuse a
	// larger one as a typing error; 1 to MaxPermits, default 10. Instances do not read
	// it.
	MaxStep float64 `json:"max_step,omitzero"`
	// Requires names features of later versions that change shares. An instance without one of
	// them issues nothing and reports it. JSON also names what earlier versions lack and a limit
	// has: "phases", "sliding budgets", "calls in flight". Reading leaves out what this version knows.
	Requires []string `json:"requires,omitempty"`
	// Ignored names what the policy's JSON has and what went with an earlier version, such as
	// "adaptive". Instances do not follow it, and say so in their status. If it is another rule of
	// division, such as "share weighted", they issue nothing: see Unsupported. For "guard auto",
	// which followed the clock, Guard has the most that it was. MarshalJSON leaves it out.
	Ignored []string `json:"-"`

	Author string    `json:"author,omitempty"` // who wrote it, for the history
	Reason string    `json:"reason,omitempty"` // why, for the history
	Time   time.Time `json:"time,omitzero"`    // when, by the author's clock
}

// Division is what instances do with shares that they do not need. All shares are equal, to
// within one permit.
type Division struct {
	// Lend is "on", the default: instances lend permits that they will not need to those
	// that lack some; or "off". Only permits of fixed windows of 250 ms or more, without a
	// warm-up, are lent.
	Lend string `json:"lend,omitempty"`
}

// Timing has the bounds on clocks and on the age of views.
type Timing struct {
	// Settle is S, the delay of a share's growth after a join, a crash or another
	// division; 100 ms to MaxSettle, default DefaultSettle.
	Settle time.Duration `json:"-"`
	// Freshness is S', the greatest age of a view's proof; 50 ms to MaxSettle, see
	// DefaultFreshness. Settle must be at least MinSettleFor.
	Freshness time.Duration `json:"-"`
	// ClockError is e, the bound on a host's wall-clock error; above 0 to MaxSettle,
	// default DefaultClockError.
	ClockError time.Duration `json:"-"`
	// Guard is g: nothing is issued within g of a window's edges. Under shapes other than
	// ShapeFixed, g is the longest time of a call to the provider: the shape then holds
	// for arrivals. Less than half of the shortest window; default 0, off. A limit that slides over
	// more than MaxWindow, or one in flight, loses nothing by it, and bounds it: see SlidingParts and
	// HoldParts.
	Guard time.Duration `json:"-"`
}

// Release is the order in which a limit's permits are issued.
type Release struct {
	// Pacing is default PacingOff.
	Pacing Pacing `json:"pacing"`
	// Shape is default ShapeFixed.
	Shape Shape `json:"shape,omitempty"`
	// Burst is the number of permits of each limit that the fleet may issue at once under
	// ShapeBucket; 1 to the permits of each limit. 0, or a value above an announced
	// limit, means the whole limit. An instance has its share of the burst, and at least
	// 1 if it has a share of the limit.
	Burst int64 `json:"burst,omitempty"`
	// Critical is the part of each share, in percent, that an instance keeps for critical
	// calls at a window's start; 0 to 90. It is released along the window. Only with
	// ShapeFixed and PacingOff. JSON: classes.critical.
	Critical int64 `json:"-"`
	// WarmUp is the time in which a share grows from a third to the whole after a start
	// or a pause; 100 ms to 1 h, 0 for none. Others do not issue the rest. With 0,
	// shares of windows of up to a second grow over 2 s after a provider's pause.
	WarmUp time.Duration `json:"-"`
}

// Throttling is the reaction to a provider that refuses calls.
type Throttling struct {
	// Backoff is default BackoffFleet. One instance is enough to pause all if the provider
	// refuses more than a tenth of its calls.
	Backoff Backoff `json:"backoff"`
	// BackoffMax bounds the pause that a provider can ask for; 100 ms to 1 h, default
	// 1 minute.
	BackoffMax time.Duration `json:"-"`
}

// LimitChange is an announced change: Limits rule the windows that start at or after From.
// They replace the limits of windows of up to MaxWindow; the others stay.
type LimitChange struct {
	From   time.Time
	Limits []Limit
}

// LimitsAt returns the limits of windows of up to MaxWindow in force for a window that
// starts at wall, in nanoseconds since the Unix epoch. It is nil where the policy is not in
// force yet, and empty where it has only limits of longer windows. The result is shared
// with p; do not change it.
func (p *Policy) LimitsAt(wall int64) []Limit {
	at := time.Unix(0, wall)
	if at.Before(p.From) {
		return nil
	}
	limits, _ := p.parts()
	for _, c := range p.Next {
		if !at.Before(c.From) {
			limits = c.Limits
		}
	}
	return limits
}

// parts divides the limits, shortest window first, into those of which instances have
// shares, and the others.
func (p *Policy) parts() (short, long []Limit) {
	n := 0
	for n < len(p.Limits) && !p.Limits[n].Long() {
		n++
	}
	return p.Limits[:n:n], p.Limits[n:]
}

// WithDefaults returns the policy with defaults in place of zero fields and
// limits sorted by window. The receiver is not changed.
func (p Policy) WithDefaults() Policy {
	p = p.Clone()
	sortLimits(p.Limits)
	def(&p.Mode, ModeEnforce)
	def(&p.Settle, DefaultSettle)
	def(&p.ClockError, DefaultClockError)
	def(&p.Freshness, p.defaultFreshness())
	def(&p.Outage, OutageHold)
	def(&p.Pacing, PacingOff)
	def(&p.Shape, ShapeFixed)
	def(&p.Lend, lendOn)
	def(&p.Backoff, BackoffFleet)
	def(&p.BackoffMax, defaultBackoffMax)
	def(&p.MaxStep, defaultMaxStep)
	for _, c := range p.Next {
		sortLimits(c.Limits)
	}
	if p.Keys.set() {
		sortLimits(p.Keys.Limits)
		def(&p.Keys.Most, defaultMostKeys)
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
	p.Keys.Limits = slices.Clone(p.Keys.Limits)
	p.Requires = slices.Clone(p.Requires)
	p.Ignored = slices.Clone(p.Ignored)
	p.Next = slices.Clone(p.Next)
	for i := range p.Next {
		p.Next[i].Limits = slices.Clone(p.Next[i].Limits)
	}
	return p
}

// windows returns the longest and the shortest window of all limits, announced
// ones and those of keys included, but for long ones of keys; 0 if there are none. An override
// of a key may have a window of MaxWindow.
func (p *Policy) windows() (longest, shortest time.Duration) {
	shortest = math.MaxInt64
	for _, l := range slices.Concat(p.allLimits(), p.Keys.Limits) {
		if l.Window > MaxWindow {
			continue // all of these are of keys
		}
		longest, shortest = max(longest, l.Window), min(shortest, l.Window)
	}
	if len(p.Keys.Limits) > 0 {
		longest = max(longest, MaxWindow)
	}
	return longest, min(longest, shortest)
}

// allLimits returns the limits of which instances have shares, announced ones included.
// Beside limits of long windows alone, time is divided by seconds.
func (p *Policy) allLimits() []Limit {
	all, long := p.parts()
	if len(all) == 0 && len(long) > 0 {
		all = []Limit{{Permits: MaxPermits, Window: time.Second}}
	}
	for _, c := range p.Next {
		all = append(all, c.Limits...)
	}
	return all
}

// State is a limiter's state.
type State string

// The states of a limiter.
const (
	// StateJoining has no share yet: it waits for the settle time, for a policy, or for
	// etcd; a status has the cause. It may issue borrowed permits.
	StateJoining State = "joining"
	// StateActive enforces its share.
	StateActive State = "active"
	// StateStale cannot prove its view recent; the policy's outage rule is in
	// force.
	StateStale State = "stale"
	// StatePausing issues nothing until a time, because the provider or the application asked for
	// a pause.
	StatePausing State = "pausing"
	// StatePaused issues nothing because an operator paused the provider.
	StatePaused State = "paused"
	// StateClosed issues nothing, for good.
	StateClosed State = "closed"
)
