package protocol

import (
	"errors"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Pace is what a provider takes, as far as its answers say. One instance collects
// them and writes the pace where all watch. Under an adaptive policy the total of a
// window is the smaller of the policy's limit and the pace's: a pace that is old, wrong
// or forged holds back, down to the policy's floor, and exceeds nothing.
type Pace struct {
	Schema schema `json:"schema"`
	// Revision is that of the key. It is not in the value.
	Revision int64 `json:"-"`
	// Limits are the totals, each for the limit of its window length.
	Limits limits `json:"limits"`
	// Issued and Refused are the evidence: permits that instances issued, and calls that
	// the provider refused, in their newest reports.
	Issued  int64 `json:"issued"`
	Refused int64 `json:"refused"`
	// Raises is the number of raises since the last cut.
	Raises int64 `json:"raises,omitempty"`
	// Author is the incarnation that wrote it, Time when, by its clock.
	Author string    `json:"author,omitempty"`
	Time   time.Time `json:"time,omitzero"`
	// Past are earlier paces, a minute or more apart, oldest first.
	Past []PastPace `json:"past,omitempty"`
}

// PastPace is a pace that another has replaced.
type PastPace struct {
	Limits limits    `json:"limits"`
	Time   time.Time `json:"time"`
}

// limits are text in JSON, as operators write them.
type limits []quota.Limit

// MarshalText implements encoding.TextMarshaler.
func (l limits) MarshalText() ([]byte, error) { return []byte(quota.FormatLimits(l)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *limits) UnmarshalText(text []byte) (err error) {
	*l, err = quota.ParseLimits(string(text))
	return err
}

// Bounds of a pace.
const (
	MaxPaceBytes = 8 << 10
	MaxRaises    = 100
	MaxPastPaces = 8
)

// Total returns the total of a window of that length under a policy with this limit.
func (p *Pace) Total(policy *quota.Policy, limit int64, window time.Duration) int64 {
	if p == nil || policy.Adaptive.Floor <= 0 {
		return limit
	}
	permits, ok := LimitOf(p.Limits, window)
	if !ok {
		return limit
	}
	return min(limit, max(permits, PaceFloor(policy, limit)))
}

// PaceFloor returns the least pace under a limit: at least one permit, without which
// nothing would tell that the provider takes more.
func PaceFloor(policy *quota.Policy, limit int64) int64 {
	return min(limit, max(1, (limit*min(policy.Adaptive.Floor, 100)+99)/100))
}

// ReadPace reads and validates a pace. Fields that it does not know are ignored, a
// schema that it does not know is refused.
func ReadPace(value []byte) (*Pace, error) {
	p := new(Pace)
	if err := Decode("pace", value, MaxPaceBytes, p); err != nil {
		return nil, err
	}
	odd := func(old PastPace) bool { return !dated(old.Time) || len(old.Limits) == 0 }
	if len(p.Limits) == 0 || min(p.Issued, p.Refused, p.Raises) < 0 || p.Raises > MaxRaises || len(p.Past) > MaxPastPaces ||
		len(p.Author) > 2*MaxNameBytes || slices.ContainsFunc(p.Past, odd) || !p.Time.IsZero() && !dated(p.Time) {
		return nil, errors.New("pace: its limits, evidence, author, time or past are out of bounds")
	}
	return p, nil
}
