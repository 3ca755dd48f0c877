// Package quota is the vocabulary of Quotient: limits, policies, instances
// and reports, their text and JSON forms, and what makes them valid.
//
// It imports the standard library only, so every other package, and every
// application, may depend on it. Nothing in it does I/O or reads a clock; all
// values are safe to share between goroutines as long as nobody changes them.
package quota

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Schema is the version of the JSON values that this package writes.
const Schema = 1

// ShareRule says how a total is divided among the instances.
type ShareRule string

// The share rules.
const (
	// ShareEqual gives every instance the same share, to within one permit.
	ShareEqual ShareRule = "equal"
	// ShareWeighted divides by instance weight: an instance of weight 3 gets
	// what three of weight 1 would get together.
	ShareWeighted ShareRule = "weighted"
	// ShareDemand divides by what instances ask for, max-min fair: who asks for
	// little gets it, the others share the rest equally. Floor percent of the
	// total are divided equally whatever anybody asks for.
	ShareDemand ShareRule = "demand"
)

// Mode says what a limiter does with a refusal.
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

// Outage says what an instance does when it can no longer prove that its view
// is recent.
type Outage string

// The outage rules.
const (
	// OutageHold keeps the last share and never grows it. The sum stays exact
	// while etcd as a whole is away; when only some instances are cut off it
	// can exceed the total by what they hold.
	OutageHold Outage = "hold"
	// OutageStop issues nothing until the view is proved recent again. The sum
	// stays exact always.
	OutageStop Outage = "stop"
)

// Backoff says for whom a provider's request for a pause counts: see
// consumer.Limiter.PushBack.
type Backoff string

// The back-off rules.
const (
	// BackoffInstance holds back the instance that the provider refused.
	BackoffInstance Backoff = "instance"
	// BackoffFleet holds back all instances, once as many as BackoffQuorum says were
	// refused.
	BackoffFleet Backoff = "fleet"
)

// Pacing says how permits are released within a window.
type Pacing string

// The pacings.
const (
	// PacingOff releases a window's permits all at once, at its start.
	PacingOff Pacing = "off"
	// PacingEven releases them along the window. Callers that do not wait are
	// refused while what was released is spent.
	PacingEven Pacing = "even"
)

// Default values of a policy's zero fields.
const (
	DefaultSettle     = 3 * time.Second
	DefaultClockError = 50 * time.Millisecond
	// DefaultFreshness goes with DefaultSettle. A policy with another settle
	// time and no freshness gets five sixths of its settle time, or as much less
	// as its clock error and windows demand.
	DefaultFreshness = 2500 * time.Millisecond
	// defaultFloor is in percent. Policies of the other share rules have none.
	defaultFloor      = 10
	defaultMaxStep    = 10.0
	defaultBackoffMax = time.Minute
)

// Bounds of a policy's times.
const (
	minSettle    = 100 * time.Millisecond
	minFreshness = 50 * time.Millisecond // leaves room for a few reads of etcd
	MaxSettle    = time.Minute
)

// Policy is what an operator sets for a provider. Zero fields mean the
// defaults; WithDefaults writes them out.
type Policy struct {
	// Limits must all admit a permit; with Budgets 1 to 8 of them, each with a
	// window length of its own, shortest first.
	Limits []Limit `json:"-"`
	// Budgets are the limits of windows above MaxWindow, shortest first. No instance has
	// a share of them: each takes permits from etcd before it needs them. WithDefaults
	// moves them here from Limits. If there is no other limit it adds one of as many
	// permits a second.
	Budgets []Limit `json:"-"`
	// Zone is the time zone of days and months, such as "Europe/Berlin"; default UTC.
	Zone string `json:"zone,omitempty"`
	// Share is how the total is divided; default ShareEqual.
	Share ShareRule `json:"share"`
	// Weights override the weights that instances joined with, by instance
	// name, for ShareWeighted; at most 256 of them, each 1 to MaxWeight.
	Weights map[string]int64 `json:"weights,omitempty"`
	// Floor is the part of the total that ShareDemand always divides equally,
	// in percent, so that an instance that wakes is never at zero; 1 to 100,
	// default 10.
	Floor int64 `json:"floor_percent,omitempty"`
	// Mode is default ModeEnforce.
	Mode Mode `json:"mode"`
	// Settle is S, how long a share is held back that grows by a join, a crash or
	// another division; 100 ms to MaxSettle, default DefaultSettle.
	Settle time.Duration `json:"-"`
	// Freshness is S', how old the proof of a view may be; default as at
	// DefaultFreshness. Settle must exceed it as MinSettleFor says.
	Freshness time.Duration `json:"-"`
	// ClockError is e, the bound on a host's wall-clock error; default
	// DefaultClockError.
	ClockError time.Duration `json:"-"`
	// Outage is default OutageHold.
	Outage Outage `json:"outage"`
	// Guard is g: nothing is issued within g of a window's edges. Under shapes
	// other than ShapeFixed, g is the time that a call may take to the provider:
	// the shape then holds for arrivals. Default 0, off.
	Guard time.Duration `json:"-"`
	// GuardAuto makes the guard follow the clock: each instance adds to Guard the
	// error that it has measured of its own clock, or ClockError where it has
	// measured none. Guard is then what the way to the provider needs on top.
	GuardAuto bool `json:"guard_auto,omitempty"`
	// Pacing is default PacingOff.
	Pacing Pacing `json:"pacing"`
	// Shape is default ShapeFixed.
	Shape Shape `json:"shape,omitempty"`
	// Burst is how many permits of each limit the fleet may issue at once under
	// ShapeBucket; at least 1, and at most the permits of each limit. 0 stands for
	// all of a limit's permits, and so does more than an announced limit has. An
	// instance has its share of it, and at least 1 where it has a share of the
	// limit.
	Burst int64 `json:"burst,omitempty"`
	// WarmUp is the time over which the share of an instance that has just
	// started, or was held back, grows from a third to the whole; 100 ms to 1 h, 0
	// for none. What such an instance leaves is not issued by others.
	WarmUp time.Duration `json:"-"`
	// Backoff is default BackoffFleet. A policy in JSON without it has BackoffInstance,
	// as written by versions that knew nothing else.
	Backoff Backoff `json:"backoff"`
	// BackoffQuorum is how many instances the provider must ask for a pause within 2 s
	// before it counts for all; 1 to 8. 0: one in fleets of up to 3, else two. One
	// instance is enough where the provider refuses more than a tenth of its calls.
	BackoffQuorum int64 `json:"backoff_quorum,omitempty"`
	// BackoffMax bounds the pause that a provider can ask for; 100 ms to 1 h, default
	// 1 minute.
	BackoffMax time.Duration `json:"-"`
	// Adaptive lets the total follow what the provider takes. The zero value is off.
	Adaptive Adaptive `json:"-"`
	// From is the instant from which the policy is in force: it rules the
	// windows that start at or after it. Zero: every window.
	From time.Time `json:"from,omitzero"`
	// Next holds announced limit changes, in order of From.
	Next []LimitChange `json:"-"`
	// MaxStep is the largest factor by which one change may multiply or divide a
	// limit before operators' tools take it for a typing error and refuse it; 1
	// to MaxPermits, default 10. Instances do not read it.
	MaxStep float64 `json:"max_step,omitzero"`
	// Requires names features that change shares. An instance that does not
	// know one of them issues nothing and says so.
	Requires []string `json:"requires,omitempty"`

	Author string    `json:"author,omitempty"` // who wrote it, for the history
	Reason string    `json:"reason,omitempty"` // why, for the history
	Time   time.Time `json:"time,omitzero"`    // when, by the author's clock
}

// Adaptive says how the total in force, the pace, follows a provider that answers 429:
// it falls while that refuses calls, or to a limit that it states, and rises while it does
// not and the total is used. It is never above the policy's limits. Percents are whole
// numbers.
type Adaptive struct {
	// Floor is the least pace, in percent of each limit; 1 to 100. 0: off.
	Floor int64 `json:"floor_percent"`
	// Decrease is the most that one cut takes, in percent of the pace; 1 to 90, default
	// 30. A cut takes no more than the part of the calls that was refused, and 2%.
	Decrease int64 `json:"decrease_percent"`
	// Increase is what one raise adds, in percent of each limit; 1 to 100, default 3.
	Increase int64 `json:"increase_percent"`
	// Every is the least time between a change and a raise; 2 s to 1 h, default 5 s.
	Every time.Duration `json:"-"`
}

// LimitChange is an announced change: Limits rule the windows that start at or
// after From.
type LimitChange struct {
	From   time.Time
	Limits []Limit
}

// LimitsAt returns the limits in force for a window that starts at wall, in
// nanoseconds since the Unix epoch, and nil where none are in force yet. The
// result is shared with p; do not change it.
func (p *Policy) LimitsAt(wall int64) []Limit {
	at := time.Unix(0, wall)
	if at.Before(p.From) {
		return nil
	}
	limits := p.Limits
	for i := range p.Next {
		if at.Before(p.Next[i].From) {
			break
		}
		limits = p.Next[i].Limits
	}
	return limits
}

// WithDefaults returns the policy with defaults in place of zero fields and
// limits sorted by window. The receiver is not changed.
func (p Policy) WithDefaults() Policy {
	p = p.Clone()
	p.splitBudgets()
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
	def(&p.Backoff, BackoffFleet)
	def(&p.BackoffMax, defaultBackoffMax)
	def(&p.MaxStep, defaultMaxStep)
	if p.Adaptive.Floor != 0 {
		def(&p.Adaptive.Decrease, 30)
		def(&p.Adaptive.Increase, 3)
		def(&p.Adaptive.Every, 5*time.Second)
	}
	p.Requires = p.unimplied()
	sortLimits(p.Limits)
	for _, c := range p.Next {
		sortLimits(c.Limits)
	}
	return p
}

// splitBudgets moves the limits of long windows to Budgets.
func (p *Policy) splitBudgets() {
	isLong := func(l Limit) bool { return l.Window > MaxWindow }
	for _, l := range p.Limits {
		if isLong(l) {
			p.Budgets = append(p.Budgets, l)
		}
	}
	p.Limits = slices.DeleteFunc(p.Limits, isLong)
	sortLimits(p.Budgets)
	if len(p.Limits) == 0 && len(p.Budgets) > 0 {
		least := p.Budgets[0].Permits
		for _, l := range p.Budgets {
			least = min(least, l.Permits)
		}
		p.Limits = []Limit{{least, time.Second}}
	}
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
	p.Budgets = slices.Clone(p.Budgets)
	p.Requires = slices.Clone(p.Requires)
	p.Weights = maps.Clone(p.Weights)
	p.Next = slices.Clone(p.Next)
	for i := range p.Next {
		p.Next[i].Limits = slices.Clone(p.Next[i].Limits)
	}
	return p
}

// windows returns the longest and the shortest window of all limits, announced
// ones included; 0 if there are none.
func (p *Policy) windows() (longest, shortest time.Duration) {
	shortest = math.MaxInt64
	for _, l := range p.allLimits() {
		longest, shortest = max(longest, l.Window), min(shortest, l.Window)
	}
	return longest, min(longest, shortest)
}

func (p *Policy) allLimits() []Limit {
	all := slices.Clip(p.Limits)
	for _, c := range p.Next {
		all = append(all, c.Limits...)
	}
	return all
}

// Instance is one incarnation of a consumer process, as its key in etcd says.
type Instance struct {
	// ID is the incarnation: never used twice, also not by the same process.
	// It is the last part of the key, not in the value.
	ID      string `json:"-"`
	Name    string `json:"name"` // chosen by the operator or the host name; not unique
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	Weight  int64  `json:"weight"` // at least 1; zero means 1
	// Attempt is how often it was tried before to write this: an answer may have
	// been lost. No two attempts write the same value.
	Attempt int       `json:"attempt,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// From is when the instance begins to take part: it has a share of the
	// windows that start at or after it. Zero: all.
	From time.Time `json:"from,omitzero"`
	// Until is when it ends: it has no share of the windows that start at or
	// after it. Zero: it has not announced its end.
	Until time.Time `json:"until,omitzero"`
	// Borrows says that it uses permits that others lend it until From.
	Borrows bool `json:"borrows,omitempty"`
	// Seal shows that the incarnation itself wrote Until. Nobody else can make it.
	Seal string `json:"seal,omitempty"`
}

// State is what a limiter is doing.
type State string

// The states of a limiter.
const (
	// StateJoining has no share yet: it waits until the others have settled,
	// for a policy, or for etcd; Report.Problem says which. It may issue what
	// it borrows.
	StateJoining State = "joining"
	// StateActive enforces its share.
	StateActive State = "active"
	// StateStale cannot prove its view recent; the policy's outage rule is in
	// force.
	StateStale State = "stale"
	// StateDraining issues nothing because the provider said so.
	StateDraining State = "draining"
	// StatePaused issues nothing because the policy says so.
	StatePaused State = "paused"
	// StateClosed issues nothing, for good.
	StateClosed State = "closed"
)

// Report is what an instance tells operators about itself. Under ShareDemand
// the instance that works out the level reads it too.
type Report struct {
	Schema         int           `json:"schema"`
	Name           string        `json:"name"`
	State          State         `json:"state"`
	Revision       int64         `json:"revision"`        // newest revision applied
	PolicyRevision int64         `json:"policy_revision"` // of the policy applied
	Window         time.Duration `json:"-"`               // length of the shortest limit's window
	Total          int64         `json:"total"`           // of the shortest limit
	Share          int64         `json:"share"`           // of the shortest limit, this window
	Instances      int           `json:"instances"`
	Used           int64         `json:"used"` // permits issued and debts paid since the start
	// WindowStart is when the shortest limit's window began that ran at Time, and
	// UsedBefore is Used without what was issued in it. From two reports follows
	// what was issued in whole windows, which Used alone does not tell: it may
	// hold a part of one. Zero where no limit is in force.
	WindowStart time.Time `json:"window_start,omitzero"`
	UsedBefore  int64     `json:"used_before,omitempty"`
	Refused     int64     `json:"refused"` // since the start
	// Shadowed are the refusals since the start that shadow mode let pass; they
	// are not among Refused.
	Shadowed int64 `json:"shadowed,omitempty"`
	Waiting  int64 `json:"waiting"`
	// Debt is what calls have cost beyond their permits, to be paid before anything
	// else is issued.
	Debt int64 `json:"debt,omitempty"`
	// PaceRevision is that of the pace applied, 0 without one. In the last PaceSpan
	// milliseconds since then, about 4 s at most, PaceIssued permits were issued and
	// PaceRefused calls refused by the provider. Told where the policy is adaptive.
	PaceRevision int64 `json:"pace_revision,omitempty"`
	PaceSpan     int64 `json:"pace_span_ms,omitempty"`
	PaceIssued   int64 `json:"pace_issued,omitempty"`
	PaceRefused  int64 `json:"pace_refused,omitempty"`
	// Learned are the limits that the provider states, like "600/s", where they are less
	// than the policy's.
	Learned string `json:"learned,omitempty"`
	// Demand is what the instance's callers ask for, in permits per 1,000
	// seconds: issued, refused and waiting together, smoothed. Under
	// ShareDemand the instance's claim depends on it.
	Demand      int64     `json:"demand"`
	ClockError  string    `json:"clock_error"`            // a duration, or "unknown"
	ClockSource string    `json:"clock_source,omitempty"` // "ntp", "kernel" or "system"
	ProofAge    string    `json:"proof_age"`              // a duration, or "none"
	Problem     string    `json:"problem,omitempty"`
	Time        time.Time `json:"time"`
}
