package quota

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxPolicyBytes bounds the JSON of a policy: more than any valid one needs. A
// longer one is refused before it is read.
const MaxPolicyBytes = 256 << 10

// duration is a time.Duration that is a string in JSON: "2.5s".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is no duration: write one like %q", shorten(string(b)), "2.5s")
	}
	*d = duration(v)
	return nil
}

// length is a window's length, which people also write as in a limit: "s".
type length time.Duration

func (l length) MarshalText() ([]byte, error) { return duration(l).MarshalText() }

func (l *length) UnmarshalText(b []byte) error {
	if unit, ok := units[string(b)]; ok {
		*l = length(unit)
		return nil
	}
	return (*duration)(l).UnmarshalText(b)
}

// guard is a guard in JSON. It is read as ParseGuard does, and written as the
// duration alone, beside guard_auto and the feature: so versions that do not
// know the word can read the policy, see what it requires, and issue nothing. A
// policy that they cannot read at all would leave the one before it in force.
type guard struct {
	fixed time.Duration
	auto  bool
}

func (g guard) MarshalText() ([]byte, error) { return duration(g.fixed).MarshalText() }

func (g *guard) UnmarshalText(b []byte) (err error) {
	g.fixed, g.auto, err = ParseGuard(string(b))
	return err
}

type wireLimit struct {
	Permits int64  `json:"permits"`
	Window  length `json:"window"`
}

type wireChange struct {
	From   time.Time   `json:"from"`
	Limits []wireLimit `json:"limits"`
}

type wireAdaptive struct {
	Floor    int64    `json:"floor_percent"`
	Decrease int64    `json:"decrease_percent"`
	Increase int64    `json:"increase_percent"`
	Every    duration `json:"every"`
}

type wirePolicy struct {
	Schema     int              `json:"schema"`
	Limits     []wireLimit      `json:"limits"`
	Budgets    []wireLimit      `json:"budgets,omitempty"` // apart: other versions can read the rest, and see what is required
	Zone       string           `json:"zone,omitempty"`
	Share      ShareRule        `json:"share"`
	Weights    map[string]int64 `json:"weights,omitempty"`
	Floor      int64            `json:"floor_percent,omitempty"`
	Mode       Mode             `json:"mode"`
	Settle     duration         `json:"settle"`
	Freshness  duration         `json:"freshness"`
	ClockError duration         `json:"clock_error"`
	Outage     Outage           `json:"outage"`
	Guard      guard            `json:"guard"`
	GuardAuto  bool             `json:"guard_auto,omitempty"`
	Pacing     Pacing           `json:"pacing"`
	Shape      Shape            `json:"shape,omitempty"`
	Burst      int64            `json:"burst,omitempty"`
	WarmUp     duration         `json:"warm_up,omitzero"`
	Backoff    Backoff          `json:"backoff"`
	Quorum     int64            `json:"backoff_quorum,omitempty"`
	BackoffMax duration         `json:"backoff_max,omitzero"`
	Adaptive   wireAdaptive     `json:"adaptive,omitzero"`
	From       time.Time        `json:"from,omitzero"`
	Next       []wireChange     `json:"next,omitempty"`
	MaxStep    float64          `json:"max_step,omitzero"`
	Requires   []string         `json:"requires,omitempty"`
	Author     string           `json:"author,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Time       time.Time        `json:"time,omitzero"`
}

func limitsToWire(limits []Limit) []wireLimit {
	w := make([]wireLimit, len(limits))
	for i, l := range limits {
		w[i] = wireLimit{l.Permits, length(l.Window)}
	}
	return w
}

func limitsFromWire(w []wireLimit) []Limit {
	var limits []Limit
	for _, l := range w {
		limits = append(limits, Limit{l.Permits, time.Duration(l.Window)})
	}
	return limits
}

// MarshalJSON writes the policy with its defaults written out.
func (p Policy) MarshalJSON() ([]byte, error) {
	p = p.WithDefaults()
	w := wirePolicy{
		Schema: Schema, Limits: limitsToWire(p.Limits), Budgets: limitsToWire(p.Budgets), Zone: p.Zone, Share: p.Share, Weights: p.Weights, Floor: p.Floor, Mode: p.Mode,
		Settle: duration(p.Settle), Freshness: duration(p.Freshness), ClockError: duration(p.ClockError),
		Outage: p.Outage, Guard: guard{fixed: p.Guard}, GuardAuto: p.GuardAuto, Pacing: p.Pacing,
		Shape: p.Shape, Burst: p.Burst, WarmUp: duration(p.WarmUp), Backoff: p.Backoff, Quorum: p.BackoffQuorum,
		Adaptive: wireAdaptive{p.Adaptive.Floor, p.Adaptive.Decrease, p.Adaptive.Increase, duration(p.Adaptive.Every)},
		From:     p.From.UTC(), Requires: append(p.Requires, p.implied()...), Author: p.Author, Reason: p.Reason, Time: p.Time.UTC(),
	}
	if !p.shaped() {
		w.Shape = "" // as versions write it that know no other
	}
	if p.BackoffMax != defaultBackoffMax {
		w.BackoffMax = duration(p.BackoffMax)
	}
	if p.MaxStep != defaultMaxStep {
		w.MaxStep = p.MaxStep
	}
	for _, c := range p.Next {
		w.Next = append(w.Next, wireChange{c.From.UTC(), limitsToWire(c.Limits)})
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a policy. Fields that it does not know are ignored, a
// schema that it does not know is refused. It does not validate.
func (p *Policy) UnmarshalJSON(b []byte) error {
	if len(b) > MaxPolicyBytes {
		return fmt.Errorf("policy: %d bytes are more than the most, %d", len(b), MaxPolicyBytes)
	}
	// The fields of another schema may have other types, so an error names it first.
	var w wirePolicy
	switch err := json.Unmarshal(b, &w); {
	case err != nil && (w.Schema == 0 || w.Schema == Schema):
		return fmt.Errorf("policy: %w", err)
	case w.Schema == 0:
		return fmt.Errorf("policy: the schema is missing: write \"schema\":%d", Schema)
	case w.Schema != Schema:
		return fmt.Errorf("policy: schema %d is not the one this version knows, %d: upgrade, or write it again with this version's tools", w.Schema, Schema)
	}
	*p = Policy{
		Limits: limitsFromWire(w.Limits), Budgets: limitsFromWire(w.Budgets), Zone: w.Zone, Share: w.Share, Weights: w.Weights, Floor: w.Floor, Mode: w.Mode,
		Settle: time.Duration(w.Settle), Freshness: time.Duration(w.Freshness), ClockError: time.Duration(w.ClockError),
		Outage: w.Outage, Guard: w.Guard.fixed, GuardAuto: w.GuardAuto || w.Guard.auto, Pacing: w.Pacing,
		Shape: w.Shape, Burst: w.Burst, WarmUp: time.Duration(w.WarmUp),
		Backoff: w.Backoff, BackoffQuorum: w.Quorum, BackoffMax: time.Duration(w.BackoffMax),
		Adaptive: Adaptive{w.Adaptive.Floor, w.Adaptive.Decrease, w.Adaptive.Increase, time.Duration(w.Adaptive.Every)},
		From:     w.From, MaxStep: w.MaxStep, Requires: w.Requires, Author: w.Author, Reason: w.Reason, Time: w.Time,
	}
	for _, c := range w.Next {
		p.Next = append(p.Next, LimitChange{c.From, limitsFromWire(c.Limits)})
	}
	def(&p.Backoff, BackoffInstance)
	p.Requires = p.unimplied()
	return nil
}
