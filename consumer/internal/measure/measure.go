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
	// Read calls send with each value that is known, and that of the label: 0 would be
	// wrong for an unknown one.
	Read func(s *consumer.Status, send func(v float64, label string))
}

// Counter reports whether the number is a sum since the limiter was opened; else it is a
// gauge.
func (m *Metric) Counter() bool { return strings.HasSuffix(m.Name, "_total") }

// count is a number that is always known.
func count[N int | int64](name, unit, help string, value func(s *consumer.Status) N) *Metric {
	return gauge(name, unit, help, func(s *consumer.Status) (float64, bool) { return float64(value(s)), true })
}

func gauge(name, unit, help string, value func(s *consumer.Status) (v float64, known bool)) *Metric {
	return &Metric{"quotient_" + name, unit, help, "", func(s *consumer.Status, send func(v float64, label string)) {
		if v, known := value(s); known {
			send(v, "")
		}
	}}
}

// window is a number of each limit.
func window(name, unit, help string, value func(u *consumer.LimitUse) (v float64, known bool)) *Metric {
	return &Metric{"quotient_" + name, unit, help, "window", func(s *consumer.Status, send func(v float64, label string)) {
		for _, u := range s.Limits {
			if v, known := value(&u); known {
				send(v, protocol.LimitName(u.Limit))
			}
		}
	}}
}

// by is a number of each class or label of calls.
func by[K ~string, N int | int64](label, name, unit, help string, value func(s *consumer.Status) map[K]N) *Metric {
	return &Metric{"quotient_" + name, unit, help, label, func(s *consumer.Status, send func(v float64, label string)) {
		for c, n := range value(s) {
			send(float64(n), string(c))
		}
	}}
}

var states = []quota.State{
	quota.StateJoining, quota.StateActive, quota.StateStale, quota.StatePausing, quota.StatePaused,
}

// All are the metrics.
var All = []*Metric{
	count("permits_issued_total", "{permit}", "Permits issued by this instance. It does not fall when permits are given back: it rests until as many are issued again.", func(s *consumer.Status) int64 { return s.Issued }),
	{"quotient_permits_refused_total", "{permit}", "Permits refused by this instance, by reason.", "reason", func(s *consumer.Status, send func(v float64, label string)) {
		for reason, n := range s.RefusedBy {
			send(float64(n), strings.ReplaceAll(string(reason), " ", "_"))
		}
	}},
	count("keys_in_use", "{key}", "Keys that this instance keeps count of: at most keys.most, and those that a late Settle has put into debt.", func(s *consumer.Status) int64 { return s.KeysInUse }),
	count("key_permits_refused_total", "{permit}", "Permits refused because their key had too few, or was one too many; not among the refused permits.", func(s *consumer.Status) int64 { return s.KeysRefused }),
	count("key_permits_lent_total", "{permit}", "Permits of keys lent to other instances; not among the permits lent.", func(s *consumer.Status) int64 { return s.KeysLent }),
	count("key_permits_borrowed_total", "{permit}", "Permits of keys borrowed from other instances; not among the permits borrowed.", func(s *consumer.Status) int64 { return s.KeysBorrowed }),
	count("key_asks_total", "{ask}", "Times that this instance asked others for permits of a key; not among the asks.", func(s *consumer.Status) int64 { return s.KeyAsks }),
	count("calls_impossible_total", "{call}", "Calls for more permits than the limit has, which are never served; not among the refused permits.", func(s *consumer.Status) int64 { return s.Impossible }),
	count("permits_shadowed_total", "{permit}", "Permits that were refused but let pass, in shadow mode.", func(s *consumer.Status) int64 { return s.Shadowed }),
	count("calls_forgotten_total", "{call}", "Calls of a limit in flight of which nobody has said that they ended: their places came back by the hold alone. Another value than 0 is a mistake of the program; behind quotad also a crash of one.", func(s *consumer.Status) int64 { return s.Forgotten }),
	count("permits_over_issued_total", "{permit}", "Permits issued beyond the share. Always 0; another value is a bug.", func(s *consumer.Status) int64 { return s.OverIssued }),
	count("permits_lent_total", "{permit}", "Permits lent to other instances, which are not among those issued. One that is lent on counts each time.", func(s *consumer.Status) int64 { return s.Lent }),
	count("permits_borrowed_total", "{permit}", "Permits borrowed from other instances.", func(s *consumer.Status) int64 { return s.Borrowed }),
	count("asks_total", "{ask}", "Times that this instance asked others for permits.", func(s *consumer.Status) int64 { return s.Asks }),
	count("fruitless_windows_total", "{window}", "Windows in which this instance asked others for permits and borrowed none.", func(s *consumer.Status) int64 { return s.FruitlessWindows }),
	count("first_loans_total", "{window}", "Windows whose first loan came after a call was refused or had to wait.", func(s *consumer.Status) int64 { return s.FirstLoans }),
	gauge("first_loan_seconds_total", "s", "Time from the first call that was refused or had to wait to the window's first loan, summed.", func(s *consumer.Status) (float64, bool) { return s.FirstLoanTime.Seconds(), true }),
	count("debt_permits", "{permit}", "Permits that calls have cost beyond those issued, to be paid before anything else is issued.", func(s *consumer.Status) int64 { return s.Debt }),
	count("waiters", "{caller}", "Callers that wait for a permit.", func(s *consumer.Status) int { return s.Waiting }),
	by("class", "permits_issued_by_class_total", "{permit}", "Permits issued by this instance, by class of calls.", func(s *consumer.Status) map[consumer.Class]int64 { return s.IssuedBy }),
	by("class", "permits_refused_by_class_total", "{permit}", "Permits refused by this instance, by class of calls.", func(s *consumer.Status) map[consumer.Class]int64 { return s.RefusedOf }),
	by("class", "waiters_by_class", "{caller}", "Callers that wait for a permit, by class of calls.", func(s *consumer.Status) map[consumer.Class]int { return s.WaitingBy }),
	by("label", "permits_issued_by_label_total", "{permit}", "Permits issued by this instance to calls with a label, by label: the first 20, and all later ones as other.", func(s *consumer.Status) map[string]int64 { return s.IssuedByLabel }),
	by("label", "permits_refused_by_label_total", "{permit}", "Permits refused by this instance to calls with a label, by label, also for want of a key's.", func(s *consumer.Status) map[string]int64 { return s.RefusedByLabel }),
	window("limit_permits", "{permit}", "The provider's limit, per window; or the calls that may be under way at once.", func(u *consumer.LimitUse) (float64, bool) { return float64(u.Limit.Permits), true }),
	window("kept_permits", "{permit}", "Permits left in the current window that are kept for critical calls.", func(u *consumer.LimitUse) (float64, bool) { return float64(u.Kept), true }),
	window("limit_window_seconds", "s", "Length of the limit's window; missing for calls in flight, which count in none.", func(u *consumer.LimitUse) (float64, bool) {
		return u.Limit.Window.Seconds(), !u.Limit.InFlight
	}),
	window("share_permits", "{permit}", "This instance's share of the limit in the current window; of a window above a minute and of calls in flight, what it has taken.", func(u *consumer.LimitUse) (float64, bool) { return float64(u.Share), true }),
	window("calls_in_flight", "{call}", "Calls of this instance that are under way, of a limit in flight.", func(u *consumer.LimitUse) (float64, bool) { return float64(u.Used), u.Limit.InFlight }),
	window("limit_remaining_permits", "{permit}", "Permits of a window above a minute, or of calls in flight, that this instance has in hand or nobody had taken when it last read etcd; missing before its first read. The smallest value of all instances is the newest.", func(u *consumer.LimitUse) (float64, bool) {
		return float64(u.Remaining), u.Limit.Long() && u.Remaining >= 0
	}),
	window("limit_window_end_timestamp_seconds", "s", "When a window above a minute ends, in seconds since the Unix epoch; missing for a limit that slides.", func(u *consumer.LimitUse) (float64, bool) {
		return float64(u.End.Unix()), u.Limit.Long() && !u.Limit.ByParts()
	}),
	window("limit_withheld", "", "1 while nothing more of a window above a minute, or of calls in flight, is handed out, as after a restore of etcd: quota-admin budget PROVIDER --used N ends that; else 0.", func(u *consumer.LimitUse) (float64, bool) {
		return truth(u.Withheld != ""), u.Limit.Long()
	}),
	count("instances", "{instance}", "Instances that share the limit, as known to this one.", func(s *consumer.Status) int { return s.Instances }),
	count("view_revision", "", "Newest etcd revision that this instance has applied.", func(s *consumer.Status) int64 { return s.Revision }),
	count("policy_revision", "", "Etcd revision of the policy that this instance has applied; 0 for none.", func(s *consumer.Status) int64 { return s.PolicyRevision }),
	{"quotient_state", "", "1 for the state that the limiter is in, 0 for the others.", "state", func(s *consumer.Status, send func(v float64, label string)) {
		for _, state := range states {
			send(truth(state == s.State), string(state))
		}
	}},
	gauge("pause_seconds", "s", "Time until the pause ends for which the provider asked; 0 without one.", func(s *consumer.Status) (float64, bool) {
		return max(0, time.Until(s.PausedUntil).Seconds()), true
	}),
	count("state_changes_total", "{change}", "Changes of the state.", func(s *consumer.Status) int64 { return s.StateChanges }),
	gauge("problem", "", "1 while a problem keeps this instance from applying the policy; its log names it.", func(s *consumer.Status) (float64, bool) { return truth(s.Problem != ""), true }),
	gauge("clock_error_seconds", "s", "Bound of the clock's error; missing if it is not known.", func(s *consumer.Status) (float64, bool) { return s.ClockError.Seconds(), s.ClockErrorKnown }),
	gauge("clock_error_allowed_seconds", "s", "The clock error that the policy allows for.", func(s *consumer.Status) (float64, bool) { return s.ClockErrorBound.Seconds(), s.ClockErrorBound > 0 }),
	gauge("proof_age_seconds", "s", "Age of the newest proof that the view is recent; missing if there is none.", func(s *consumer.Status) (float64, bool) { return s.ProofAge.Seconds(), s.ProofAge >= 0 }),
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
