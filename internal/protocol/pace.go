package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Pace is what a provider takes, as far as its answers say. One instance collects
// them and writes the pace where all watch. Under an adaptive policy the total of a
// window is the smaller of the policy's limit and the pace's: a pace that is old, wrong
// or forged holds back, down to the policy's floor, and exceeds nothing.
type Pace struct {
	// Revision is that of the key. It is not in the value.
	Revision int64
	// Limits are the totals, each for the limit of its window length.
	Limits []quota.Limit
	// Issued and Refused are the evidence: permits that instances issued, and calls that
	// the provider refused, in their newest reports.
	Issued, Refused int64
	// Raises is the number of raises since the last cut.
	Raises int64
	// Learned are the limits that the provider states, for operators: Total ignores them.
	Learned []quota.Limit
	// Author is the incarnation that wrote it, Time when, by its clock.
	Author string
	Time   time.Time
	// Past are earlier paces, a minute or more apart, oldest first.
	Past []PastPace
}

// PastPace is a pace that another has replaced.
type PastPace struct {
	Limits []quota.Limit
	Time   time.Time
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
	i := slices.IndexFunc(p.Limits, func(l quota.Limit) bool { return l.Window == window })
	if i < 0 {
		return limit
	}
	return min(limit, max(p.Limits[i].Permits, PaceFloor(policy, limit)))
}

// PaceFloor returns the least pace under a limit: at least one permit, without which
// nothing would tell that the provider takes more.
func PaceFloor(policy *quota.Policy, limit int64) int64 {
	return min(limit, max(1, (limit*min(policy.Adaptive.Floor, 100)+99)/100))
}

// wirePace is a pace in JSON.
type wirePace struct {
	Schema  int        `json:"schema"`
	Limits  string     `json:"limits"` // as operators write them
	Issued  int64      `json:"issued"`
	Refused int64      `json:"refused"`
	Raises  int64      `json:"raises,omitempty"`
	Learned string     `json:"learned,omitempty"`
	Author  string     `json:"author,omitempty"`
	Time    time.Time  `json:"time,omitzero"`
	Past    []wirePast `json:"past,omitempty"`
}

type wirePast struct {
	Limits string    `json:"limits"`
	Time   time.Time `json:"time"`
}

// MarshalJSON writes the pace as its key's value.
func (p Pace) MarshalJSON() ([]byte, error) {
	w := wirePace{quota.Schema, quota.FormatLimits(p.Limits), p.Issued, p.Refused, p.Raises, quota.FormatLimits(p.Learned), p.Author, p.Time.UTC(), nil}
	for _, old := range p.Past {
		w.Past = append(w.Past, wirePast{quota.FormatLimits(old.Limits), old.Time.UTC()})
	}
	return json.Marshal(w)
}

// ReadPace reads and validates a pace. Fields that it does not know are ignored, a
// schema that it does not know is refused.
func ReadPace(value []byte) (*Pace, error) {
	var w wirePace
	if err := decode("pace", value, MaxPaceBytes, &w, &w.Schema); err != nil {
		return nil, err
	}
	p := &Pace{Issued: w.Issued, Refused: w.Refused, Raises: w.Raises, Author: w.Author, Time: w.Time}
	var errs []error
	limits := func(text string) []quota.Limit {
		l, err := quota.ParseLimits(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("pace: %w", err))
		}
		return l
	}
	p.Limits = limits(w.Limits)
	if w.Learned != "" {
		p.Learned = limits(w.Learned)
	}
	for _, old := range w.Past[:min(len(w.Past), MaxPastPaces)] {
		p.Past = append(p.Past, PastPace{limits(old.Limits), old.Time})
	}
	if min(w.Issued, w.Refused, w.Raises) < 0 || w.Raises > MaxRaises || len(w.Past) > MaxPastPaces || len(w.Author) > 2*quota.MaxNameBytes ||
		slices.ContainsFunc(p.Past, func(old PastPace) bool { return !dated(old.Time) }) || !w.Time.IsZero() && !dated(w.Time) {
		errs = append(errs, errors.New("pace: its evidence, author, time or past is out of bounds"))
	}
	return p, errors.Join(errs...)
}
