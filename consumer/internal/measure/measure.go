// Package measure has what prommetrics and otelmetrics show of limiters, for both: the
// metrics, their values, and the limiters that are open.
package measure

import (
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Metric is one number of a limiter. Its labels are provider and Label, if that is not
// empty.
type Metric struct {
	Name, Unit, Help, Label string
	Counter                 bool // a sum since the limiter was opened; else a gauge
}

// All is every metric that Read sends.
var All []*Metric

func gauge(name, unit, help, label string) *Metric {
	m := &Metric{Name: "quotient_" + name, Unit: unit, Help: help, Label: label}
	All = append(All, m)
	return m
}

func counter(name, unit, help, label string) *Metric {
	m := gauge(name, unit, help, label)
	m.Counter = true
	return m
}

// The metrics. An unknown number is left out: 0 would be wrong.
var (
	issued     = counter("permits_issued_total", "{permit}", "Permits issued by this instance.", "")
	refused    = counter("permits_refused_total", "{permit}", "Permits refused by this instance, by reason.", "reason")
	shadowed   = counter("permits_shadowed_total", "{permit}", "Permits that were refused but let pass, in shadow mode.", "")
	overIssued = counter("permits_over_issued_total", "{permit}", "Permits issued beyond the share. Always 0; another value is a bug.", "")
	debt       = gauge("debt_permits", "{permit}", "Permits that calls have cost beyond those issued, to be paid before anything else is issued.", "")
	waiters    = gauge("waiters", "{caller}", "Callers that wait for a permit.", "")
	limit      = gauge("limit_permits", "{permit}", "The provider's limit, per window.", "window")
	pace       = gauge("pace_permits", "{permit}", "The total in force, per window: the limit, or less under an adaptive policy while the provider answers 429.", "window")
	learned    = gauge("learned_permits", "{permit}", "Limit that the provider states, per window; missing unless it is below the policy's.", "window")
	length     = gauge("limit_window_seconds", "s", "Length of the limit's window.", "window")
	share      = gauge("share_permits", "{permit}", "This instance's share of the limit in the current window.", "window")
	remaining  = gauge("limit_remaining_permits", "{permit}", "Permits of a window above a minute, in hand or not taken when this instance last read etcd; missing before its first read. The smallest value of all instances is the newest.", "window")
	ends       = gauge("limit_window_end_timestamp_seconds", "s", "When a window above a minute ends, in seconds since the Unix epoch.", "window")
	instances  = gauge("instances", "{instance}", "Instances that share the limit, as known to this one.", "")
	revision   = gauge("view_revision", "", "Newest etcd revision that this instance has applied.", "")
	policy     = gauge("policy_revision", "", "Etcd revision of the policy that this instance has applied; 0 for none.", "")
	state      = gauge("state", "", "1 for the state that the limiter is in, 0 for the others.", "state")
	paused     = gauge("pause_seconds", "s", "Time until the pause ends for which the provider asked; 0 without one.", "")
	changes    = counter("state_changes_total", "{change}", "Changes of the state.", "")
	problem    = gauge("problem", "", "1 while a problem keeps this instance from applying the policy; its log names it.", "")
	clockError = gauge("clock_error_seconds", "s", "Bound of the clock's error; missing if it is not known.", "")
	clockBound = gauge("clock_error_allowed_seconds", "s", "The clock error that the policy allows for.", "")
	proofAge   = gauge("proof_age_seconds", "s", "Age of the newest proof that the view is recent; missing if there is none.", "")
)

var states = []quota.State{
	quota.StateJoining, quota.StateActive, quota.StateStale, quota.StateDraining, quota.StatePaused,
}

// Read calls send with each known number of a status, and the value of its label.
func Read(st consumer.Status, send func(m *Metric, v float64, label string)) {
	send(issued, float64(st.Issued), "")
	for reason, n := range st.RefusedBy {
		send(refused, float64(n), strings.ReplaceAll(string(reason), " ", "_"))
	}
	send(shadowed, float64(st.Shadowed), "")
	send(overIssued, float64(st.OverIssued), "")
	send(debt, float64(st.Debt), "")
	send(waiters, float64(st.Waiting), "")
	for _, u := range st.Limits {
		window := protocol.WindowName(u.Limit)
		send(limit, float64(u.Limit.Permits), window)
		send(pace, float64(u.Pace), window)
		if u.Learned > 0 {
			send(learned, float64(u.Learned), window)
		}
		send(length, u.Limit.Window.Seconds(), window)
		send(share, float64(u.Share), window)
		if u.Limit.Window > quota.MaxWindow {
			send(ends, float64(u.End.Unix()), window)
			if u.Remaining >= 0 {
				send(remaining, float64(u.Remaining), window)
			}
		}
	}
	send(instances, float64(st.Instances), "")
	send(revision, float64(st.Revision), "")
	send(policy, float64(st.PolicyRevision), "")
	for _, s := range states {
		send(state, truth(s == st.State), string(s))
	}
	send(paused, max(0, time.Until(st.PausedUntil).Seconds()), "")
	send(changes, float64(st.StateChanges), "")
	send(problem, truth(st.Problem != ""), "")
	if st.ClockErrorKnown {
		send(clockError, st.ClockError.Seconds(), "")
	}
	if st.ClockErrorBound > 0 {
		send(clockBound, st.ClockErrorBound.Seconds(), "")
	}
	if st.ProofAge >= 0 {
		send(proofAge, st.ProofAge.Seconds(), "")
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
