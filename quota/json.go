package quota

import (
	"encoding/json"
	"fmt"
	"time"
)

// Bounds on what is decoded, in bytes: more than any valid value needs. What is
// longer is refused before it is read.
const (
	MaxPolicyBytes   = 256 << 10
	MaxInstanceBytes = 4 << 10
)

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
	if unit, ok := unitOf(string(b)); ok {
		*l = length(unit)
		return nil
	}
	return (*duration)(l).UnmarshalText(b)
}

type wireLimit struct {
	Permits int64  `json:"permits"`
	Window  length `json:"window"`
}

type wireChange struct {
	From   time.Time   `json:"from"`
	Limits []wireLimit `json:"limits"`
}

type wirePolicy struct {
	Schema     int              `json:"schema"`
	Limits     []wireLimit      `json:"limits"`
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
	From       time.Time        `json:"from,omitzero"`
	Next       []wireChange     `json:"next,omitempty"`
	MaxStep    float64          `json:"max_step,omitzero"`
	Requires   []string         `json:"requires,omitempty"`
	Author     string           `json:"author,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Time       time.Time        `json:"time,omitzero"`
}

type wireInstance struct {
	Schema  int       `json:"schema"`
	Name    string    `json:"name"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Version string    `json:"version,omitempty"`
	Weight  int64     `json:"weight"`
	Attempt int       `json:"attempt,omitempty"`
	Started time.Time `json:"started,omitzero"`
	From    time.Time `json:"from,omitzero"`
	Until   time.Time `json:"until,omitzero"`
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
		Schema: Schema, Limits: limitsToWire(p.Limits), Share: p.Share, Weights: p.Weights, Floor: p.Floor, Mode: p.Mode,
		Settle: duration(p.Settle), Freshness: duration(p.Freshness), ClockError: duration(p.ClockError),
		Outage: p.Outage, Guard: guard{fixed: p.Guard}, GuardAuto: p.GuardAuto, Pacing: p.Pacing,
		Shape: p.Shape, Burst: p.Burst, WarmUp: duration(p.WarmUp),
		From: p.From.UTC(), MaxStep: p.MaxStep, Requires: p.features(), Author: p.Author, Reason: p.Reason, Time: p.Time.UTC(),
	}
	if !p.Shaped() {
		w.Shape = "" // as versions write it that know no other
	}
	for _, c := range p.Next {
		w.Next = append(w.Next, wireChange{c.From.UTC(), limitsToWire(c.Limits)})
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a policy. Fields that it does not know are ignored, a
// schema that it does not know is refused. It does not validate.
func (p *Policy) UnmarshalJSON(b []byte) error {
	var w wirePolicy
	if err := decode("policy", b, MaxPolicyBytes, &w, &w.Schema); err != nil {
		return err
	}
	*p = Policy{
		Limits: limitsFromWire(w.Limits), Share: w.Share, Weights: w.Weights, Floor: w.Floor, Mode: w.Mode,
		Settle: time.Duration(w.Settle), Freshness: time.Duration(w.Freshness), ClockError: time.Duration(w.ClockError),
		Outage: w.Outage, Guard: w.Guard.fixed, GuardAuto: w.GuardAuto || w.Guard.auto, Pacing: w.Pacing,
		Shape: w.Shape, Burst: w.Burst, WarmUp: time.Duration(w.WarmUp),
		From: w.From, MaxStep: w.MaxStep, Requires: w.Requires, Author: w.Author, Reason: w.Reason, Time: w.Time,
	}
	for _, c := range w.Next {
		p.Next = append(p.Next, LimitChange{c.From, limitsFromWire(c.Limits)})
	}
	p.Requires = p.unimplied()
	return nil
}

// MarshalJSON writes the instance as its key's value: without its ID, which is
// in the key.
func (i Instance) MarshalJSON() ([]byte, error) {
	def(&i.Weight, 1)
	return json.Marshal(wireInstance{
		Schema: Schema, Name: i.Name, Host: i.Host, PID: i.PID, Version: i.Version,
		Weight: i.Weight, Attempt: i.Attempt, Started: i.Started.UTC(), From: i.From.UTC(), Until: i.Until.UTC(),
	})
}

// UnmarshalJSON reads an instance, leaving its ID alone. Fields that it does not
// know are ignored, a schema that it does not know is refused.
func (i *Instance) UnmarshalJSON(b []byte) error {
	var w wireInstance
	if err := decode("instance", b, MaxInstanceBytes, &w, &w.Schema); err != nil {
		return err
	}
	*i = Instance{
		ID: i.ID, Name: w.Name, Host: w.Host, PID: w.PID, Version: w.Version,
		Weight: w.Weight, Attempt: w.Attempt, Started: w.Started, From: w.From, Until: w.Until,
	}
	def(&i.Weight, 1)
	return nil
}

// ReadInstance reads what shares depend on of an instance's value, name, weight,
// from and until, in half the time that it takes to read everything. It is for
// those who read very many.
func ReadInstance(id string, b []byte) (Instance, error) {
	var w struct {
		Schema int       `json:"schema"`
		Name   string    `json:"name"`
		Weight int64     `json:"weight"`
		From   time.Time `json:"from"`
		Until  time.Time `json:"until"`
	}
	if err := decode("instance", b, MaxInstanceBytes, &w, &w.Schema); err != nil {
		return Instance{ID: id}, err
	}
	i := Instance{ID: id, Name: w.Name, Weight: w.Weight, From: w.From, Until: w.Until}
	def(&i.Weight, 1)
	return i, nil
}

// decode reads a value in one pass, and only where that fails by itself finds out
// what is wrong: the fields of another schema may have other types, and the error
// must name the true cause. schema is where into has its schema.
func decode(what string, b []byte, most int, into any, schema *int) error {
	if len(b) > most {
		return fmt.Errorf("%s: %d bytes are more than the most, %d", what, len(b), most)
	}
	err := json.Unmarshal(b, into)
	if err == nil && *schema == Schema {
		return nil
	}
	var head struct {
		Schema *int `json:"schema"`
	}
	if e := json.Unmarshal(b, &head); e != nil {
		return fmt.Errorf("%s: %w", what, e)
	}
	if head.Schema == nil {
		return fmt.Errorf("%s: the schema is missing: write \"schema\":%d", what, Schema)
	}
	if *head.Schema != Schema {
		return fmt.Errorf("%s: schema %d is not the one this version knows, %d: upgrade, or write it again with this version's tools", what, *head.Schema, Schema)
	}
	return fmt.Errorf("%s: %w", what, err)
}
