package prommetrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/admit"
	"github.com/quotient-limiter/quotient/quota"
)

// metric is one name with its type and labels.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// all is every metric that define made.
var all []metric

func define(kind prometheus.ValueType, name, help string, labels ...string) metric {
	m := metric{prometheus.NewDesc("quotient_"+name, help, append([]string{"provider"}, labels...), nil), kind}
	all = append(all, m)
	return m
}

// The metrics. An unknown number is left out: 0 would be wrong.
var (
	issued     = define(prometheus.CounterValue, "permits_issued_total", "Permits issued by this instance.")
	refused    = define(prometheus.CounterValue, "permits_refused_total", "Permits refused by this instance, by reason.", "reason")
	shadowed   = define(prometheus.CounterValue, "permits_shadowed_total", "Permits that were refused but let pass, in shadow mode.")
	overIssued = define(prometheus.CounterValue, "permits_over_issued_total", "Permits issued beyond the share. Always 0; another value is a bug.")
	debt       = define(prometheus.GaugeValue, "debt_permits", "Permits that calls have cost beyond those issued, to be paid before anything else is issued.")
	waiters    = define(prometheus.GaugeValue, "waiters", "Callers that wait for a permit.")
	limit      = define(prometheus.GaugeValue, "limit_permits", "The provider's limit, per window.", "window")
	pace       = define(prometheus.GaugeValue, "pace_permits", "The total in force, per window: the limit, or less under an adaptive policy while the provider answers 429.", "window")
	learned    = define(prometheus.GaugeValue, "learned_permits", "Limit that the provider states, per window; missing unless it is below the policy's.", "window")
	length     = define(prometheus.GaugeValue, "limit_window_seconds", "Length of the limit's window.", "window")
	share      = define(prometheus.GaugeValue, "share_permits", "This instance's share of the limit in the current window.", "window")
	remaining  = define(prometheus.GaugeValue, "limit_remaining_permits", "Permits of a window above a minute, in hand or not taken when this instance last read etcd; missing before its first read. The smallest value of all instances is the newest.", "window")
	ends       = define(prometheus.GaugeValue, "limit_window_end_timestamp_seconds", "When a window above a minute ends, in seconds since the Unix epoch.", "window")
	instances  = define(prometheus.GaugeValue, "instances", "Instances that share the limit, as known to this one.")
	revision   = define(prometheus.GaugeValue, "view_revision", "Newest etcd revision that this instance has applied.")
	policy     = define(prometheus.GaugeValue, "policy_revision", "Etcd revision of the policy that this instance has applied; 0 for none.")
	state      = define(prometheus.GaugeValue, "state", "1 for the state that the limiter is in, 0 for the others.", "state")
	paused     = define(prometheus.GaugeValue, "pause_seconds", "Time until the pause ends for which the provider asked; 0 without one.")
	changes    = define(prometheus.CounterValue, "state_changes_total", "Changes of the state.")
	problem    = define(prometheus.GaugeValue, "problem", "1 while a problem keeps this instance from applying the policy; its log names it.")
	clockError = define(prometheus.GaugeValue, "clock_error_seconds", "Bound of the clock's error; missing if it is not known.")
	clockBound = define(prometheus.GaugeValue, "clock_error_allowed_seconds", "The clock error that the policy allows for.")
	proofAge   = define(prometheus.GaugeValue, "proof_age_seconds", "Age of the newest proof that the view is recent; missing if there is none.")
)

var states = []quota.State{
	quota.StateJoining, quota.StateActive, quota.StateStale, quota.StateDraining, quota.StatePaused,
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.waits.Describe(ch)
	for _, d := range all {
		ch <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, l := range m.open() {
		collect(ch, l)
	}
	m.waits.Collect(ch)
}

func collect(ch chan<- prometheus.Metric, l *consumer.Limiter) {
	st := l.Status()
	send := func(m metric, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, append([]string{st.Provider}, labels...)...)
	}
	send(issued, float64(st.Issued))
	for reason, n := range st.RefusedBy {
		send(refused, float64(n), strings.ReplaceAll(string(reason), " ", "_"))
	}
	send(shadowed, float64(st.Shadowed))
	send(overIssued, float64(st.OverIssued))
	send(debt, float64(st.Debt))
	send(waiters, float64(st.Waiting))
	for _, u := range st.Limits {
		window := admit.WindowName(u.Limit)
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
	send(instances, float64(st.Instances))
	send(revision, float64(st.Revision))
	send(policy, float64(st.PolicyRevision))
	for _, s := range states {
		send(state, truth(s == st.State), string(s))
	}
	send(paused, max(0, time.Until(st.PausedUntil).Seconds()))
	send(changes, float64(st.StateChanges))
	send(problem, truth(st.Problem != ""))
	if st.ClockErrorKnown {
		send(clockError, st.ClockError.Seconds())
	}
	if st.ClockErrorBound > 0 {
		send(clockBound, st.ClockErrorBound.Seconds())
	}
	if st.ProofAge >= 0 {
		send(proofAge, st.ProofAge.Seconds())
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var _ prometheus.Collector = (*Metrics)(nil)
