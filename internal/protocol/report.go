package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// MaxReportBytes bounds a report: several times the longest that an instance writes. A longer one is
// refused before it is read.
const MaxReportBytes = 16 << 10

// ReadReport reads the value of a report's key.
func ReadReport(value []byte) (r Report, err error) {
	if n := len(value); n > MaxReportBytes {
		return r, fmt.Errorf("%d bytes are more than the most, %d", n, MaxReportBytes)
	}
	err = json.Unmarshal(value, &r)
	return r, err
}

// Report is an instance's state for operators.
type Report struct {
	Schema         int           `json:"schema"`
	Name           string        `json:"name"`
	State          quota.State   `json:"state"`
	Revision       int64         `json:"revision"`        // newest revision applied
	PolicyRevision int64         `json:"policy_revision"` // of the policy applied
	Window         time.Duration `json:"-"`               // length of the shortest limit's window, or 1 s
	Total          int64         `json:"total"`           // of the shortest limit
	Share          int64         `json:"share"`           // of the shortest limit, this window
	Instances      int           `json:"instances"`
	Used           int64         `json:"used"` // permits issued and debts paid since the start
	// WindowStart is the start of the shortest limit's window that contains Time, and
	// UsedBefore is Used without that window's permits. So two reports give the permits
	// of whole windows. The window is a second if all limits are of more than a minute.
	// Zero if no limit is in force.
	WindowStart time.Time `json:"window_start,omitzero"`
	UsedBefore  int64     `json:"used_before,omitempty"`
	Refused     int64     `json:"refused"` // since the start
	// Shadowed are the refusals since the start that shadow mode let pass; they
	// are not among Refused.
	Shadowed int64 `json:"shadowed,omitempty"`
	Waiting  int64 `json:"waiting"`
	// Debt is the unpaid cost of calls beyond their permits; nothing is issued until it
	// is paid. DebtUntil is about when that is; zero if unknown.
	Debt      int64     `json:"debt,omitempty"`
	DebtUntil time.Time `json:"debt_until,omitzero"`
	// Forgotten are the calls in flight since the start of which nobody has said that they ended.
	Forgotten int64 `json:"forgotten,omitempty"`
	// Borrowed are the permits of others that the instance had in the shortest limit's last whole
	// window, and Hosts the instances that lent them; Lent are those of its own that Guests had.
	// Permits that it borrowed and lent on are in neither.
	Borrowed int64 `json:"borrowed,omitempty"`
	Hosts    int   `json:"borrowed_from,omitempty"`
	Lent     int64 `json:"lent,omitempty"`
	Guests   int   `json:"lent_to,omitempty"`
	// Classes are the permits by class since the start, if any call had one of its own.
	Classes map[string]ClassUse `json:"classes,omitempty"`
	// BusiestKeys are the keys whose calls wanted most permits lately, the busiest first, at
	// most 50.
	BusiestKeys []Rate `json:"busiest_keys,omitempty"`
	// BusiestLabels are the labels whose calls wanted most permits lately, at most 20; calls
	// without a label have the name "", and all other labels "other".
	BusiestLabels []Rate `json:"busiest_labels,omitempty"`
	ClockError    string `json:"clock_error"`            // a duration, or "unknown"
	ClockSource   string `json:"clock_source,omitempty"` // "ntp", "kernel" or "system"
	ProofAge      string `json:"proof_age"`              // a duration, or "none"
	// HeldFor names instances that are gone and had announced no end, at most three. Their part of the total is
	// nobody's until HeldUntil, as far as this instance knows.
	HeldFor   string    `json:"held_for,omitempty"`
	HeldUntil time.Time `json:"held_until,omitzero"`
	Problem   string    `json:"problem,omitempty"`
	Time      time.Time `json:"time"`
	// Long is what the instance has of the windows that run of limits above a minute.
	Long []Taken `json:"long,omitempty"`
	// Known is a revision of the etcd cluster with the ID Store. Whatever the instance took of
	// Long's windows at that revision or before is in Long. 0 if it does not know such a revision.
	Known int64  `json:"known,omitempty"`
	Store uint64 `json:"store,string,omitempty"`
}

// Taken is what an instance has of a window of a long limit.
type Taken struct {
	Window string `json:"window"` // its length, as Budget.Name
	Start  int64  `json:"start"`  // corrected wall time, nanoseconds since the Unix epoch
	Taken  int64  `json:"taken"`  // permits taken from etcd and not given back
	Used   int64  `json:"used"`   // permits of these that were issued
}

// InHand returns how many permits the instance may still issue of the window of a budget, by the
// report, and how many it has issued.
func (r *Report) InHand(b *Budget) (hand, used int64) {
	for _, t := range r.Long {
		if t.Window == b.Name() && (t.Start == b.Start || b.ByParts()) { // a sliding limit has one total
			return max(0, t.Taken-t.Used), t.Used
		}
	}
	return 0, 0
}

// ClassUse are the permits issued and refused to calls of a class since the start, and its
// waiting calls.
type ClassUse struct {
	Issued  int64 `json:"issued"`
	Refused int64 `json:"refused"`
	Waiting int64 `json:"waiting"`
}

// Rate is what calls for a key, or of a label, got and did not get, in permits per second.
type Rate struct {
	Name    string  `json:"name"`
	Issued  float64 `json:"issued"`
	Refused float64 `json:"refused"`
}
