package quota

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// MaxPolicyBytes bounds the JSON of a policy: more than any valid one needs. A
// longer one is refused before it is read.
const MaxPolicyBytes = 256 << 10

// duration is a time.Duration that is a string in JSON: "2.5s", or "s" as in a limit.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if unit, ok := units[string(b)]; ok {
		v = unit
	} else if err != nil {
		return fmt.Errorf("%q is no duration: write one like %q", shorten(string(b)), "2.5s")
	}
	*d = duration(v)
	return nil
}

// guard is a guard in JSON. Earlier versions wrote "auto+20ms" too: the measured error of the
// clock, at most clock_error, and 20 ms.
type guard struct {
	fixed time.Duration
	auto  bool
}

func (g guard) MarshalText() ([]byte, error) { return []byte(g.fixed.String()), nil }

func (g *guard) UnmarshalText(b []byte) (err error) {
	g.fixed, g.auto, err = readGuard(string(b))
	return err
}

type wireLimit struct {
	Permits  int64    `json:"permits"`
	Window   duration `json:"window"`
	Phase    duration `json:"phase,omitzero"`
	Sliding  bool     `json:"sliding,omitempty"`
	InFlight bool     `json:"in_flight,omitempty"` // the window is the hold
}

type wireChange struct {
	From   time.Time   `json:"from"`
	Limits []wireLimit `json:"limits"`
}

type wireKeys struct {
	Limits []wireLimit `json:"limits"`
	Most   int64       `json:"most"`
	Owners int64       `json:"owners,omitempty"`
}

// wireClasses has what is kept for calls of each class.
type wireClasses struct {
	Critical int64 `json:"critical"`
}

// plainPolicy has the fields that JSON writes as they are.
type plainPolicy Policy

// gone has the fields that policies once had.
type gone struct {
	Adaptive json.RawMessage `json:"adaptive"`
	Share    json.RawMessage `json:"share"`
	Weights  json.RawMessage `json:"weights"`
	Reserve  json.RawMessage `json:"reserve_percent"`
	Quorum   json.RawMessage `json:"backoff_quorum"`
}

// goneShare is how Policy.Ignored names a rule of division: with the rule's name after it.
const goneShare = "share "

// goneLend is a rule of lending of earlier versions: to those that have no share yet.
const goneLend = "newcomers"

// names returns what is there and is not followed. Earlier versions wrote "share":"equal", which
// is what this one does.
func (g *gone) names() (names []string) {
	there := func(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }
	if there(g.Adaptive) {
		names = append(names, "adaptive")
	}
	if rule := strings.Trim(string(g.Share), `"`); there(g.Share) && rule != "" && rule != "equal" {
		names = append(names, goneShare+shorten(rule))
	}
	if there(g.Weights) {
		names = append(names, "weights")
	}
	if there(g.Reserve) {
		names = append(names, "reserve_percent")
	}
	if there(g.Quorum) {
		names = append(names, "backoff_quorum")
	}
	return names
}

type wirePolicy struct {
	Schema int         `json:"schema"`
	Limits []wireLimit `json:"limits"`
	Keys   *wireKeys   `json:"keys,omitempty"`
	plainPolicy
	Settle     duration     `json:"settle"`
	Freshness  duration     `json:"freshness"`
	ClockError duration     `json:"clock_error"`
	Guard      guard        `json:"guard"`
	WarmUp     duration     `json:"warm_up,omitzero"`
	Classes    wireClasses  `json:"classes,omitzero"`
	BackoffMax duration     `json:"backoff_max,omitzero"`
	Next       []wireChange `json:"next,omitempty"`
}

func limitsToWire(limits []Limit) []wireLimit {
	w := make([]wireLimit, len(limits))
	for i, l := range limits {
		w[i] = wireLimit{l.Permits, duration(l.Window), duration(l.Phase), l.Sliding, l.InFlight}
	}
	return w
}

func limitsFromWire(w []wireLimit) []Limit {
	var limits []Limit
	for _, l := range w {
		limits = append(limits, Limit{Permits: l.Permits, Window: time.Duration(l.Window), Phase: time.Duration(l.Phase), Sliding: l.Sliding, InFlight: l.InFlight})
	}
	return limits
}

// MarshalJSON writes the policy with its defaults written out.
func (p Policy) MarshalJSON() ([]byte, error) {
	p = p.WithDefaults()
	w := wirePolicy{
		Schema: Schema, Limits: limitsToWire(p.Limits), plainPolicy: plainPolicy(p),
		Settle: duration(p.Settle), Freshness: duration(p.Freshness), ClockError: duration(p.ClockError),
		Guard: guard{fixed: p.Guard}, WarmUp: duration(p.WarmUp), Classes: wireClasses{p.Critical},
	}
	w.From, w.Time = p.From.UTC(), p.Time.UTC()
	w.Requires = p.requires()
	if !p.shaped() {
		w.Shape = ""
	}
	if p.Lend == lendOn {
		w.Lend = ""
	}
	if p.BackoffMax != defaultBackoffMax {
		w.BackoffMax = duration(p.BackoffMax)
	}
	if p.MaxStep == defaultMaxStep {
		w.MaxStep = 0
	}
	if p.Keys.set() {
		w.Keys = &wireKeys{limitsToWire(p.Keys.Limits), p.Keys.Most, p.Keys.Owners}
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
	*p = Policy(w.plainPolicy)
	p.Limits = limitsFromWire(w.Limits)
	sortLimits(p.Limits)
	if w.Keys != nil {
		p.Keys = Keys{limitsFromWire(w.Keys.Limits), w.Keys.Most, w.Keys.Owners}
		sortLimits(p.Keys.Limits)
	}
	p.Requires = unknown(p.Requires) // what is known follows from the limits
	p.Settle, p.Freshness, p.ClockError = time.Duration(w.Settle), time.Duration(w.Freshness), time.Duration(w.ClockError)
	p.Critical = w.Classes.Critical
	p.WarmUp, p.BackoffMax = time.Duration(w.WarmUp), time.Duration(w.BackoffMax)
	var old gone
	_ = json.Unmarshal(b, &old) // which succeeded above
	p.Ignored = old.names()
	if p.Lend == goneLend { // lending never adds to the sum, so any rule will do
		p.Lend, p.Ignored = lendOn, append(p.Ignored, "lend "+goneLend)
	}
	if p.Guard = w.Guard.fixed; w.Guard.auto { // the most that it was
		p.Guard += cmp.Or(p.ClockError, DefaultClockError)
		p.Ignored = append(p.Ignored, fmt.Sprintf("guard %s (now %v)", autoGuard(w.Guard.fixed), p.Guard))
	}
	for _, c := range w.Next {
		p.Next = append(p.Next, LimitChange{c.From, limitsFromWire(c.Limits)})
	}
	return nil
}
