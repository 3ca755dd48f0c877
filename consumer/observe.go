package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// reasons are all that refusals are counted by.
var reasons = [...]Reason{
	ReasonSpent, ReasonDebt, ReasonQueue, ReasonKept, ReasonPacing, ReasonInFlight, ReasonJoining, ReasonPause, ReasonPaused,
	ReasonTooLarge, ReasonQueueFull, ReasonClosed, ReasonNoPolicy, ReasonStale,
}

// refusals counts refused permits, and issued ones by class, since the start. Anybody adds; a
// reader sees each counter by itself, not all at one moment.
type refusals struct {
	by [queue.Classes][len(reasons)]atomic.Int64 // one counter for each class and each of reasons

	// issued are the permits issued to calls of a class, but for Default: see core.counted.
	issued [queue.Classes]atomic.Int64
	// large are the permits that were refused to large calls: see window.Segment.Leaves.
	large atomic.Int64
	// impossible are the calls, not the permits, for more than a limit. They are in none
	// of the others.
	impossible atomic.Int64
}

// of returns the counter of a class and a reason.
func (r *refusals) of(c queue.Class, why Reason) *atomic.Int64 {
	return &r.by[c][max(0, slices.Index(reasons[:], why))]
}

// sum returns all refused permits.
func (r *refusals) sum() (n int64) {
	for i := range r.by {
		n += r.sumOf(queue.Class(i))
	}
	return n
}

// sumOf returns all refused permits of a class.
func (r *refusals) sumOf(c queue.Class) (n int64) {
	for i := range r.by[c] {
		n += r.by[c][i].Load()
	}
	return n
}

func (r *refusals) count() (total int64, by map[Reason]int64) {
	by = make(map[Reason]int64, len(reasons))
	for i, reason := range reasons {
		for c := range r.by {
			by[reason] += r.by[c][i].Load()
		}
		total += by[reason]
	}
	return total, by
}

const (
	// stateLines is how many changes of state are logged within stateSpan. A
	// limiter that flaps would otherwise fill the log of everybody else; the
	// state in which it stays is logged in any case.
	stateLines = 5
	stateSpan  = 10 * time.Second
)

// stateLog bounds how often changes of state are logged.
type stateLog struct {
	state   quota.State // as last logged
	changes int64       // noticed since the start
	quiet   int64       // of these, not logged since the last that was
	seen    quota.State
	span    int64 // monotonic instant at which the running span began
	lines   int   // logged in it
}

// see notes that the state was seen at an instant. log reports whether that is to be
// logged, with the state before and how many changes between them were not.
func (s *stateLog) see(now int64, state quota.State) (was quota.State, quiet int64, log bool) {
	if s.seen != state {
		s.seen = state
		s.changes++
		s.quiet++
	}
	if now-s.span >= int64(stateSpan) {
		s.span, s.lines = now, 0
	}
	if s.lines == stateLines || s.state == state || state == quota.StateClosed {
		return "", 0, false
	}
	was, quiet = s.state, s.quiet-1
	s.state, s.quiet = state, 0
	s.lines++
	return was, quiet, true
}

// noteState logs a change of state, once.
func (k *core) noteState(now clock.Instant) {
	k.mu.Lock()
	state := k.stateLocked(now)
	if state == quota.StateJoining && k.mu.planner.Reason(now.Mono) == share.ReasonLeft {
		state = quota.StateClosed // it was told to leave, and does not join
	}
	was, quiet, log := k.mu.logged.see(now.Mono, state)
	k.mu.Unlock()
	if !log {
		return
	}
	level := slog.LevelInfo
	if state == quota.StateStale {
		level = slog.LevelWarn
	}
	st, use := k.status(now)
	u := st.Shortest()
	attrs := []any{"was", string(was), "total", u.Limit.Permits, "share", u.Share}
	if u.Limit.Long() { // of which it takes what it needs
		attrs = []any{"was", string(was), "limit", u.Limit.String(), "in_hand", u.Left}
	}
	attrs = append(attrs, "instances", st.Instances, "revision", st.Revision)
	k.mu.Lock()
	held, until := k.mu.planner.Held(now.Mono)
	outage := k.mu.planner.Rules(now.Mono).Outage
	policy, _ := k.mu.planner.Policy()
	trouble := k.mu.trouble
	var problems []string
	if state == quota.StatePaused && policy != nil { // meant by somebody, so Status.Problem does not have it
		problems = append(problems, k.pausedLocked().Error())
	}
	k.mu.Unlock()
	if policy == nil { // it was deleted meanwhile
		policy = &quota.Policy{}
	}
	if len(held) > 0 { // their part of the total is missing
		attrs = append(attrs, "held_for", listed(held), "held_until", time.Unix(0, until).UTC().Format("15:04:05.000 UTC"))
	}
	if problem := st.problem(); problem != "" {
		problems = append(problems, problem)
	}
	if len(problems) > 0 {
		attrs = append(attrs, "problem", strings.Join(problems, cause.Beside))
	}
	if todo := remedy(st, use.Limits, policy, outage, trouble); todo != "" {
		attrs = append(attrs, "do", todo)
	}
	if quiet > 0 {
		attrs = append(attrs, "changes_not_logged", quiet)
	}
	k.log().Log(context.Background(), level, "limiter "+cause.Says(state, 0, ""), attrs...)
}

// noteWithheld logs when nothing is withheld any more of a long limit of the provider's. The problem that noteState logs
// says that something is.
func (k *core) noteWithheld(u *escrow.KeyUse) {
	limit, withheld := u.String(), u.Purse.Withheld() != ""
	k.mu.Lock()
	changed := withheld != k.mu.withheld[limit]
	if changed && k.mu.withheld == nil {
		k.mu.withheld = map[string]bool{}
	}
	if changed {
		k.mu.withheld[limit] = withheld
	}
	k.mu.Unlock()
	if changed && !withheld {
		k.log().Info("nothing is withheld any more", "limit", limit)
	}
}

// listed names the first instances of a list, and counts the others.
func listed(ids []string) string {
	const most = 3
	if n := len(ids) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), n)
	}
	return strings.Join(ids, ", ")
}

// noteClock logs when the clock's error exceeds the policy's bound, and when that
// is over, once each.
func (k *core) noteClock(now clock.Instant) {
	k.mu.Lock()
	p := &k.mu.planner
	r := p.Rules(now.Mono)
	bound, wrong := p.ClockWrong(r)
	wrong = wrong && p.Started()
	changed := wrong != k.mu.clockWrong
	k.mu.clockWrong = wrong
	k.mu.Unlock()
	switch {
	case !changed:
	case wrong:
		k.log().Warn("clock error exceeds the policy's bound", "error", bound, "clock_error", r.ClockError, "outage", string(r.Outage))
	default:
		k.log().Info("clock error is within the policy's bound again", "error", bound, "clock_error", r.ClockError)
	}
}

// noteDebt logs when an instance has a debt that Status.Problem tells of, and when that is paid, once
// each.
func (k *core) noteDebt(st *Status) {
	owes := st.Debt > 0 && st.Problem == cause.Debt(st.Debt, st.DebtUntil)
	k.mu.Lock()
	changed := k.mu.owes != owes && (owes || st.Debt == 0)
	if changed {
		k.mu.owes = owes
	}
	k.mu.Unlock()
	switch {
	case !changed:
	case owes:
		k.log().Warn("limiter "+cause.PaysDebt, "problem", st.Problem, "do", cause.PayLess)
	default:
		k.log().Info("limiter has paid its debt")
	}
}

// noteForgotten logs that calls were forgotten, at most once a minute.
func (k *core) noteForgotten(st *Status, now int64) {
	k.mu.Lock()
	n := st.Forgotten - k.mu.forgotten
	due := n > 0 && (k.mu.forgotten == 0 || now-k.mu.forgottenAt >= int64(time.Minute))
	if due {
		k.mu.forgotten, k.mu.forgottenAt = st.Forgotten, now
	}
	k.mu.Unlock()
	if due {
		k.log().Warn(cause.Forgotten, "calls", n, "limit", st.Shortest().Limit.String(),
			"do", cause.EndCalls)
	}
}

// meanwhile says what a limiter with the limits in use does while its view is stale, and for how long.
func meanwhile(limits []window.LimitUsage, p *quota.Policy, outage quota.Outage) string {
	long := slices.ContainsFunc(slices.Concat(p.Limits, p.Keys.Limits), func(l quota.Limit) bool { return l.Long() })
	switch {
	case outage == quota.OutageStop:
		return "the limiter issues nothing (outage rule stop)"
	case p.InFlight():
		for _, u := range limits {
			if b := u.Budget; b != nil && b.Places > 0 {
				return fmt.Sprintf("calls begin until %s, at most %d at once, then none (outage rule hold)", time.Unix(0, b.End).UTC().Format("15:04:05.000 UTC"), b.Places)
			}
		}
		return "no call begins until etcd answers (outage rule hold)"
	case !protocol.LimitsShort(p):
		return "the limiter issues what is in hand, and no more (outage rule hold)"
	case long:
		return "the limiter goes on with its share for as long as that lasts, but of limits above a minute it issues what is in hand, and no more (outage rule hold)"
	}
	return "the limiter goes on with its share for as long as that lasts (outage rule hold)"
}

// remedy returns the advice to operators for a state; empty if there is none. limits are those in use, p is the policy, and
// outage the rule in force. trouble is what ails the provider: a share is not kept for long where etcd refuses.
func remedy(st Status, limits []window.LimitUsage, p *quota.Policy, outage quota.Outage, trouble error) string {
	denied := errors.Is(trouble, cause.ErrDenied)
	switch st.State {
	case quota.StateStale:
		if denied {
			return cause.Admit(trouble, st.Provider)
		}
		return meanwhile(limits, p, outage) + "; quota-admin doctor finds the cause"
	case quota.StatePaused:
		return "nothing, if " + cmp.Or(p.Author, "the operator") + " meant it: quota-admin get " + cause.ShellWord(st.Provider)
	case quota.StatePausing:
		return cause.EndPause(st.problem())
	case quota.StateJoining:
		if command := cause.Command(st.problem()); command != "" {
			return command
		}
		if denied {
			return cause.Admit(trouble, st.Provider)
		}
		return "nothing for the settle time and two windows; if it lasts longer: quota-admin explain " + cause.ShellWord(st.Provider)
	case quota.StateActive:
		if u := st.Shortest(); u.Share == 0 && !u.Limit.Long() {
			return "nothing, if fewer permits than instances are meant; else raise the limit"
		}
	}
	return ""
}
