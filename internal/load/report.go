package load

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Schema is the version of the report's JSON.
const Schema = 1

// Verdict says whether the limit held, and was used.
type Verdict string

// The verdicts.
const (
	// Held: no window, and no span of a shape, had more permits than it may. By the
	// generator's own clock no permit that could be placed came outside its window. Of
	// what was due, at least the part that was asked for came.
	Held Verdict = "held"
	// NotHeld: some window or span had more, or a permit came outside its window.
	NotHeld Verdict = "not held"
	// Unused: nothing came of what was due. A limiter that issues nothing exceeds nothing.
	Unused Verdict = "unused"
	// Unknown: neither was shown, for the reasons in Summary.Unjudged.
	Unknown Verdict = "unknown"
	// Underused: no limit was exceeded, and a smaller part came than was asked for.
	Underused Verdict = "underused"
)

// Report is the outcome of a run.
type Report struct {
	Schema   int      `json:"schema"`
	Config   any      `json:"config"`    // what was asked for
	WindowNs int64    `json:"window_ns"` // of the shortest limit
	Windows  []Window `json:"windows"`
	// Began is when measuring began; the zero time if it did not.
	Began time.Time `json:"began,omitzero"`
	// Events are what befell the fleet on the way, in order.
	Events []Event `json:"events,omitempty"`
	// Within is nil if no whole window was measured.
	Within *Within `json:"within,omitempty"`
	// Rolling is how many permits came in the shortest window's length until each
	// of some moments; nil if no such span was measured.
	Rolling []Moment `json:"rolling,omitempty"`
	Summary Summary  `json:"summary"`
	Verdict Verdict  `json:"verdict"`
	// LeastUse is the part of what was due that had to come, 0 to 1.
	LeastUse float64 `json:"least_use"`

	// Fields that only a page shows.
	Shares         *Shares    `json:"-"` // nil if they were not recorded
	Acquire, Delay []Quantile `json:"-"` // the whole curves, rising
}

// Shares is what bands of instances may issue, over time.
type Shares struct {
	Names []string // of the bands
	At    []int64
	Sums  [][]int64 // at each of these instants, by band
}

// Event is something that befell the fleet.
type Event struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Quantile says that a part of all calls, 0 to 1, took at most so long.
type Quantile struct {
	Part float64
	Ns   int64
}

// Window is one window of one limit.
type Window struct {
	Start time.Time `json:"start"`
	// Length is the window's, set only where there are several.
	Length  string `json:"window,omitempty"`
	Limit   int64  `json:"limit"`   // permits the fleet may issue
	Offered int64  `json:"offered"` // calls
	Issued  int64  `json:"issued"`  // permits, by the window they belong to
	// Allowed is what the window may hold where a burst comes on top of the limit;
	// 0: the limit.
	Allowed int64 `json:"allowed,omitempty"`
	// Doubtful are permits in Issued that may not have been taken after all: their
	// instance was killed while it took them.
	Doubtful int64 `json:"doubtful,omitempty"`
	// Arrived are requests by the provider's clock; nil without a provider.
	Arrived *int64 `json:"arrived"`
	// Late are those of Arrived that a permit of an earlier window was asked for
	// in time: they were held up on their way.
	Late      int64 `json:"late,omitempty"`
	Instances int   `json:"instances"` // that were active all of the window

	Settling bool `json:"-"` // a limit change is taking effect
	Whole    bool `json:"-"` // lies in the measured time, from end to end
}

// Most is how many permits the window may hold: its limit, and a burst where there
// is one.
func (w *Window) Most() int64 { return max(w.Limit, w.Allowed) }

// Over reports whether more permits were certainly issued for the window than it
// may hold.
func (w *Window) Over() bool { return w.certain() > w.Most() }

// ArrivedOver reports whether more requests arrived in the window than its
// limit, not counting those that were late.
func (w *Window) ArrivedOver() bool { return w.Arrived != nil && *w.Arrived-w.Late > w.Limit }

func (w *Window) certain() int64 { return w.Issued - w.Doubtful }

// Summary is a run in a few numbers.
type Summary struct {
	// Windows are the whole ones in the measured time, of the shortest length.
	Windows int `json:"windows"`
	// OverLimitWindows counts all windows, those before and after the measured
	// time too.
	OverLimitWindows int `json:"over_limit_windows"`
	// MaxOverRatio is the largest issued over limit of all windows, over what a
	// window may hold where that is more. A limit of 0 counts as 1 here.
	MaxOverRatio float64 `json:"max_over_ratio"`
	// Used is what part came of the permits that were due.
	Used Use `json:"used"`
	// OneLimiter is what part came of the permits that one limiter for all calls would have
	// issued: of the calls in each window, up to the limit.
	OneLimiter  Use   `json:"one_limiter"`
	IssuedTotal int64 `json:"issued_total"`
	// OwnClock is what the load generator's own clock says of the permits.
	OwnClock OwnSummary `json:"own_clock"`
	// Unjudged says what could not be judged, so that nothing is known.
	Unjudged []string `json:"unjudged,omitempty"`
	// Keys are the limits of keys; nil where calls have none.
	Keys *KeySummary `json:"keys,omitempty"`
	// Spans are those of a shape other than aligned windows; nil without one.
	Spans *SpanSummary `json:"spans,omitempty"`
	// MaxSpanRatio is the most permits that came to callers in any span of the
	// shortest window's length, over the largest limit then. With fixed windows it
	// may be up to 2. It decides nothing.
	MaxSpanRatio float64 `json:"max_span_ratio"`
	// SettleSeconds is from the first instance's start until the whole fleet
	// was active.
	SettleSeconds float64 `json:"settle_seconds"`
	// AcquireNs is how long immediate grants took, DelayNs how long calls waited
	// for their permits, in nanoseconds; who did not wait counts there as 0.
	AcquireNs      Quantiles `json:"acquire_ns"`
	DelayNs        Quantiles `json:"delay_ns"`
	PeakToMean10ms float64   `json:"peak_to_mean_10ms"` // of permits per 10 ms
	PeakToMean50ms float64   `json:"peak_to_mean_50ms"`
	CPUSeconds     float64   `json:"cpu_seconds"`
	MaxRSSBytes    int64     `json:"max_rss_bytes"`
	// Departures are the instances that left and were replaced in the measured
	// time; nil where none was to.
	Departures *Departures `json:"departures,omitempty"`
	// Arrivals are what the provider saw; nil without one.
	Arrivals *ArrivalSummary `json:"arrivals,omitempty"`
	// Etcd is what instances wrote into etcd in the measured time; nil if etcd did not let the
	// run see it.
	Etcd *Writes `json:"etcd,omitempty"`
	// FirstLoan is how soon instances that lacked permits had a loan; nil if none came.
	FirstLoan *FirstLoan `json:"first_loan,omitempty"`
	// Budgets are what limits of more than a minute cost; nil without one.
	Budgets *Budgets `json:"budgets,omitempty"`
}

// Writes is what instances wrote into etcd, per second of the measured time.
type Writes struct {
	PerSecond float64 `json:"per_second"` // transactions
	// Keys are those written and deleted, by the folder that they lie in, such as asks, loans,
	// reports or instances. A transaction may have several.
	Keys map[string]float64 `json:"keys_per_second"`
}

// FirstLoan is the time from an instance's first call that had to wait, or was refused, to the
// window's first loan, in nanoseconds: of windows in which a loan came.
type FirstLoan struct {
	Quantiles
	Windows int64 `json:"windows"` // of each instance
}

// Departures counts the instances that left and were replaced.
type Departures struct {
	Announced int `json:"announced"` // in good order
	// Unannounced meant to announce that they leave, and could not.
	Unannounced int `json:"unannounced"`
	Killed      int `json:"killed"`
}

// Budgets are what instances did with limits of more than a minute.
type Budgets struct {
	// Transactions took permits, gave them back or told their use.
	Transactions  int64   `json:"transactions"`
	EachPerSecond float64 `json:"each_per_second"` // of an instance, over the run
	// NotIssued are permits that were taken and not given back before their window, or
	// their instance, ended.
	NotIssued int64 `json:"not_issued"`
}

// All is how many there were.
func (d *Departures) All() int { return d.Announced + d.Unannounced + d.Killed }

// Quantiles are what half, 99%, 99.9% and all did not exceed.
type Quantiles struct {
	P50  int64 `json:"p50"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

// WriteJSON writes the report, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
