package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// unserved is what is known of a call that is not served: of the account that decided, the provider's
// or that of a key.
type unserved struct {
	verdict queue.Verdict
	n       int64
	class   queue.Class
	uses    []window.LimitUsage
	largest int64 // that one call can have, if the verdict is TooLarge
	cut     bool  // of a key: others would lend it more if etcd answered
	debt    int64
	// debtUntil is the monotonic instant at which it is paid, about, if debtKnown.
	debtUntil int64
	debtKnown bool
	ahead     int   // callers that wait before this one: of its class, and of higher ones
	first     int64 // permits that the first of them wants
	// when is the monotonic instant at which permits may come; clock.Forever if only news brings some. If known is false, they
	// may come later.
	when  int64
	known bool

	key       *share.Key // nil for the provider
	owner     string     // of the key, if it has one
	elsewhere bool       // that is another instance
}

// explain returns the reason and the error for a call that the gate does not serve. late says that it would
// serve it by now.
func (k *core) explain(v queue.Verdict, n int64, c queue.Class) (r Reason, late bool, err error) {
	now := k.clock.Now()
	use := k.gate.UsageFor(now, n, c)
	u := unserved{verdict: v, n: n, class: c, uses: use.Limits, debt: use.Debt, debtUntil: use.DebtUntil, debtKnown: use.DebtKnown, ahead: 1, first: use.Head}
	waiting := 0
	for _, n := range use.WaitingBy[:c+1] {
		waiting += n
	}
	u.ahead = max(u.ahead, waiting) // one at least was ahead when the gate decided
	if v.Refused() {
		u.when, u.known = k.gate.Estimate(now, n, c)
	} else if v == queue.TooLarge {
		u.largest = k.gate.Largest(now)
	}
	r, err = k.explained(now, &u)
	return r, v.Refused() && u.known && u.when <= now.Mono, err
}

// refuseKey returns the error for a call for n permits of a key that has too few, and counts it. For a call that does
// not wait it returns nil if the key would serve it by now.
func (o *origin) refuseKey(y *keyState, n int64, atOnce bool) error {
	u := o.unservedBy(y, n, atOnce)
	if u == nil {
		return nil
	}
	_, err := o.core.explained(o.core.clock.Now(), u)
	return err
}

// unservedBy collects what is known of a call that a key does not serve, and counts its refusal. For a call that does
// not wait it returns nil if permits have come since that was decided, or the key was forgotten, so that it has all again.
func (o *origin) unservedBy(y *keyState, n int64, atOnce bool) *unserved {
	k, c := o.core, o.class
	s, now := y.lock(k)
	defer y.mu.Unlock()
	u := &unserved{verdict: queue.Limited, n: n, class: c, key: &y.key, when: now}
	if s.Keys == nil { // there are no limits by key any more
		o.refusedKey(y, n, all, now)
		return u
	}
	if atOnce && (y.gone || y.room(k, s, now, c) >= n) {
		return nil
	}
	u.uses = k.keyUses(y, n)
	u.cut = s.Keys.Lending.Cut
	if u.largest = k.tooLarge(s.Keys, y.key, n, now); u.largest > 0 { // others have not so many either
		if u.verdict = queue.TooLarge; u.below().Permits > 0 {
			k.refused.impossible.Add(1)
		} else {
			o.lacksKey(n)
			y.note(&k.keys, 0, n)
		}
		return u
	}
	o.refusedKey(y, n, all, now)
	u.debt = y.use.Debt()
	u.debtUntil, u.debtKnown = y.use.PaidAt()
	u.owner, u.elsewhere = y.ownerIn(k, s.Keys, now)
	if u.ahead = y.line.Ahead(c); u.ahead > 0 {
		u.first = y.line.Head().N()
	}
	u.when, u.known = y.when(k, s.Keys, n, now)
	switch {
	case u.debt > 0:
		u.verdict = queue.Owes
	case u.ahead > 0 && (y.use.Left() >= n || y.line.Head().Large()):
		u.verdict = queue.Behind
	}
	return u
}

// notQueued returns the reason and the error of a call that the queue did not take or keep; no error if the verdict says
// otherwise.
func (k *core) notQueued(v queue.Verdict) (Reason, error) {
	most := k.options.Load().MaxWaiters
	switch v {
	case queue.Closed:
		return ReasonClosed, fmt.Errorf("consumer: %s: %w: this program called Close or Shutdown", k.provider, ErrClosed)
	case queue.Full:
		return ReasonQueueFull, fmt.Errorf("consumer: %s: %w: %d wait already (Options.MaxWaiters)", k.provider, ErrQueueFull, most)
	case queue.Displaced:
		return ReasonQueueFull, fmt.Errorf("consumer: %s: %w: displaced by a call of a higher class: %d wait (Options.MaxWaiters)", k.provider, ErrQueueFull, most)
	}
	return "", nil
}

// explained turns what is known of a call into the reason and the error. Closed, Full, Displaced and
// TooLarge decide alone. Else the limiter's state comes first, then the verdict, and then the limit that
// has too little left.
func (k *core) explained(now clock.Instant, u *unserved) (Reason, error) {
	e := LimitError{Provider: k.provider, Asked: u.n, Reason: ReasonSpent}
	if u.key != nil {
		e.Key = u.key.Name
	}
	if reason, err := k.notQueued(u.verdict); err != nil {
		return reason, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.mu.planner
	policy, _ := p.Policy()
	if u.verdict == queue.TooLarge {
		limit := u.below()
		if cut := u.cut || u.key == nil && p.Cut(); limit.Permits > 0 || !cut {
			return ReasonTooLarge, TooLargeError{Provider: k.provider, Key: e.Key, Asked: u.n, Largest: u.largest, Limit: limit, Burst: u.burst(policy)}
		}
	}
	state := k.stateLocked(now)
	b, short := e.name(u.uses, u.class, state == quota.StateStale)
	u.waitsFor(now, b, short)
	switch state {
	case quota.StateClosed:
		return k.notQueued(queue.Closed)
	case quota.StateStale:
		if err := k.staleLocked(now); err != nil {
			return ReasonStale, err
		}
	case quota.StatePausing:
		e.Reason, e.Cause = ReasonPause, ends(k.pauseLocked())
		u.when, u.known = max(u.when, p.PausedUntil()), true // also where permits come at an instant that is not known
	case quota.StatePaused:
		e.Reason, e.Cause, u.known = ReasonPaused, k.pausedLocked(), false // nobody knows when it ends
	case quota.StateJoining:
		if p.Started() && (policy == nil || p.Reason(now.Mono) == share.ReasonUnsupported) {
			return ReasonNoPolicy, k.noPolicyLocked(now)
		}
		e.Reason, e.Cause = ReasonJoining, k.noShareLocked(now)
	}
	if b != nil {
		e.Instances = p.Instances()
		e.Phase, e.Sliding, e.InFlight = b.Phase, b.Sliding, b.InFlight
	}
	e.Removed = b == nil && e.Window.Length > 0 && p.Removed(u.of(), e.Window.Length, now.Mono)
	bound := share.Bound{Reason: share.ReasonShare} // of the key
	if b == nil && u.key != nil && len(u.uses) > 0 {
		bound = p.Bound(*u.key, e.Window, now.Mono)
		e.Instances = bound.Instances
	}
	if e.Reason == ReasonJoining && b != nil && b.Spent && k.spentForLocked(b) {
		e.Reason, e.Cause = ReasonSpent, nil // the share that begins is of no use before
	}
	switch {
	case e.Reason != ReasonSpent:
	case u.verdict != queue.Limited:
		e.decided(k, u)
	case e.Window.Length > 0 && !u.elsewhere && u.comes(now, b, short):
		e.Cause = ends(fmt.Sprintf("%s of %v came just too late for this call: try again", counted(u.n, "permit", "permits"), e.limit()))
		u.when, u.known = now.Mono, true
	case b != nil && !short:
		e.Cause = fmt.Errorf("%s of %v did not come in time", counted(u.n, "permit", "permits"), e.limit())
	case b != nil:
		k.explainBudgetLocked(now, &e, b, u)
	case u.elsewhere:
		e.Owner = u.owner
	case bound.Reason == share.ReasonNoPolicy && k.keysBeginLocked(now, &e, u):
	case e.Window.Length > 0 && e.Instances == 0, bound.Reason != share.ReasonShare: // no view in force has this instance
		e.Reason, e.Cause = ReasonJoining, k.noShareLocked(now)
	case u.owner != "" && bound.Permits == 0 && bound.Most > 0: // this instance owns the key, but not for as long as the settle time
		e.Reason, e.Cause = ReasonJoining, errors.New(cause.Owned(p.Rules(now.Mono).Settle))
	case e.Share == 0 && e.Total > 0 && e.Instances > 1 && !e.Removed && !p.Borrows():
		e.Cause = fmt.Errorf("this instance's share is 0 of %v (%d instances), and nothing is lent under this policy: with fewer instances, a longer window or a higher limit each has one", e.limit(), e.Instances)
		u.known = false
	}
	if e.Reason != ReasonSpent && b != nil && !short { // it did not decide
		e.Total, e.Share, e.Remaining, e.Window, e.Phase, e.Sliding, e.InFlight = 0, 0, 0, quota.Window{}, 0, false, false
	}
	u.retryLocked(k, &e)
	return e.Reason, e
}

// retryLocked sets when to try again: not before this instance's share begins, where nobody lends to it and the error says
// when that is. core.mu is held.
func (u *unserved) retryLocked(k *core, e *LimitError) {
	if _, says := errors.AsType[ends](e.Cause); says && e.Reason == ReasonJoining && !k.mu.planner.Lent(k.clock.Mono()) {
		if wall, ok := k.mu.planner.Begins(); ok {
			u.when, u.known = max(u.when, wall-k.clock.Offset()), true
		}
	}
	if u.known && u.when != clock.Forever {
		e.RetryAt = k.wall(u.when)
	}
}

// keysBeginLocked reports whether the limits of a key are still to begin, though the provider's are in force. Then it
// says when.
func (k *core) keysBeginLocked(now clock.Instant, e *LimitError, u *unserved) bool {
	p := &k.mu.planner
	at, ok := p.BeginsOf(*u.key)
	if ok {
		e.Reason, e.Cause = ReasonJoining, ends(cause.KeysBegin(time.Unix(0, at), p.Rules(now.Mono).Settle))
		u.when, u.known = max(u.when, at-k.clock.Offset()), true
	}
	return ok
}

// waitsFor notes that nobody knows when permits come if the long limit b, which name has returned with short, gets them
// by what somebody does: an operator gives the count of what is withheld, and calls in flight end. So it is whatever else
// keeps the call from being served.
func (u *unserved) waitsFor(now clock.Instant, b *protocol.BudgetUse, short bool) {
	if b == nil || !short {
		return
	}
	if b.Withheld != "" {
		u.when = now.Mono // not the window's end, by which etcd hands permits out also without a count
	}
	u.known = u.known && b.Withheld == "" && !b.InFlight
}

// comes reports whether no limit lacks permits any more when a refusal is worded: some have come as the call was refused.
// b is the use of the limit that is named if it is a long one, and short says that it lacks permits.
func (u *unserved) comes(now clock.Instant, b *protocol.BudgetUse, short bool) bool {
	if b != nil && (short || !u.known) {
		return !short
	}
	return u.known && u.when <= now.Mono
}

// of returns whose permits lack: the key's, or the provider's, which is the key with the empty name.
func (u *unserved) of() (key share.Key) {
	if u.key != nil {
		key = *u.key
	}
	return key
}

// spentForLocked reports whether a long limit that is used up comes back later than this instance's
// share begins, as far as that is known.
func (k *core) spentForLocked(b *protocol.BudgetUse) bool {
	begins, ok := k.mu.planner.Begins()
	return ok && max(b.End, b.Over) > begins
}

// below returns the smallest limit that has fewer permits than are asked for; zero if none has.
func (u *unserved) below() (limit quota.Limit) {
	for i := range u.uses {
		of := &u.uses[i].Limit
		if of.Limit > 0 && u.n > of.Limit && (limit.Permits == 0 || of.Limit < limit.Permits) {
			limit = quota.Limit{Permits: of.Limit, Window: of.Window.Length}
			if b := u.uses[i].Budget; b != nil {
				limit = b.Limit
			}
		}
	}
	return limit
}

// decided names what decided a refusal beside a limit: see queue.Verdict.
func (e *LimitError) decided(k *core, u *unserved) {
	switch u.verdict {
	case queue.Owes:
		if e.Reason, e.Debt = ReasonDebt, u.debt; u.known && u.debtKnown { // whoever comes before is refused for the debt again
			e.DebtUntil, u.when = k.wall(u.debtUntil), max(u.when, u.debtUntil)
		}
	case queue.Behind:
		e.Reason, e.Ahead, e.First = ReasonQueue, u.ahead, u.first
	case queue.Kept:
		e.Reason = ReasonKept
		for _, of := range u.uses {
			e.Kept = max(e.Kept, of.Kept)
		}
	case queue.Paced:
		e.Reason = ReasonPacing
	case queue.TooLarge: // while etcd does not answer
		e.Reason, e.Cause = ReasonStale, k.isStaleLocked(fmt.Sprintf("%d permits asked for, and this instance can have %d at once, as nothing is lent until etcd answers (%s): ask for fewer, or use TryTake", u.n, u.largest, k.silentLocked()))
	}
}

// burst returns the policy's burst, if what one call can have is this instance's part of it; 0 if not.
func (u *unserved) burst(p *quota.Policy) (least int64) {
	if p == nil || u.key != nil || p.Shape != quota.ShapeBucket {
		return 0
	}
	for _, l := range protocol.Short(p) {
		if b := protocol.FullBurst(p, l); least == 0 || b < least {
			least = b
		}
	}
	return least
}

// staleLocked says why this instance issues nothing under the outage rule stop; nil under another
// rule.
func (k *core) staleLocked(now clock.Instant) error {
	p := &k.mu.planner
	rules := p.Rules(now.Mono)
	if rules.Outage != quota.OutageStop {
		return nil
	}
	if bound, wrong := p.ClockWrong(rules); wrong {
		return fmt.Errorf("consumer: %s: %w: %s", k.provider, ErrStale, cause.Clock(bound, rules.ClockError))
	}
	if errors.Is(k.mu.trouble, cause.ErrDenied) {
		text, do := k.mu.trouble.Error(), cause.Admit(k.mu.trouble, k.provider)
		if !strings.Contains(text, do) {
			text += "; " + do
		}
		return k.isStaleLocked(fmt.Sprintf("consumer: %s: %v: %s", k.provider, ErrStale, text))
	}
	silent, more := k.silentLocked(), k.troubleLocked()
	if more != "" {
		silent += " (" + more + ")"
	}
	return k.isStaleLocked(fmt.Sprintf("consumer: %s: %v: %s; it goes on by itself when etcd answers, and quota-admin doctor finds the cause", k.provider, ErrStale, silent))
}

// troubleLocked returns what there is to say of the trouble beside that etcd does not answer; "" if nothing.
func (k *core) troubleLocked() string {
	if k.mu.trouble == nil || errors.Is(k.mu.trouble, cause.ErrAway) {
		return ""
	}
	return k.mu.trouble.Error()
}

// isStaleLocked returns an ErrStale in these words, which the trouble is too, if there is one.
func (k *core) isStaleLocked(text string) error {
	is := []error{ErrStale}
	if k.mu.trouble != nil {
		is = append(is, k.mu.trouble)
	}
	return cause.Worded(text, is...)
}

// silentLocked says since when etcd has not answered.
func (k *core) silentLocked() string {
	proof, ok := k.mu.planner.Proved()
	if !ok {
		return cause.Unheard
	}
	return cause.Silent(time.Unix(0, proof.Wall))
}

// noPolicyLocked says why there is no limit that this instance can obey.
func (k *core) noPolicyLocked(now clock.Instant) error {
	if policy, _ := k.mu.planner.Policy(); k.mu.trouble != nil && policy == nil && k.mu.had != "" {
		return cause.Worded(fmt.Sprintf("consumer: %s: %v", k.provider, k.noLimitLocked()), ErrNoPolicy, k.mu.trouble)
	} else if k.mu.trouble != nil {
		return k.caused(fmt.Errorf("consumer: %s: %w", k.provider, ErrNoPolicy))
	}
	return cause.Worded(fmt.Sprintf("consumer: %s: %v", k.provider, k.problemLocked(now, quota.StateJoining)), ErrNoPolicy)
}

// noShareLocked says why this instance has no share: as Status.Problem, and since when that is so if
// it is a trouble; yet, where etcd has told nothing so far.
func (k *core) noShareLocked(now clock.Instant) error {
	trouble := k.mu.trouble
	if trouble == nil {
		return k.problemLocked(now, k.stateLocked(now))
	}
	since := time.Time{}
	if began, _ := k.mu.planner.Began(); k.mu.planner.Started() {
		since = k.wall(max(k.mu.troubled, began))
	}
	return cause.Worded(cause.NoShare(since, trouble), trouble)
}

// pausedLocked says who paused the provider, when and why.
func (k *core) pausedLocked() error {
	policy, _ := k.mu.planner.Policy()
	return errors.New(cause.Paused(k.provider, policy.Author, policy.Reason, policy.Time))
}

// explainBudgetLocked explains a refusal by a long limit, the provider's or that of a key. It sets when to
// try again if that is later than the limits let permits come, or sooner than they do: see unserved.waitsFor.
func (k *core) explainBudgetLocked(now clock.Instant, e *LimitError, b *protocol.BudgetUse, u *unserved) {
	end := b.End - k.clock.Offset()
	silent := k.stateLocked(now) == quota.StateStale
	// blind: nobody here knows how many calls are under way elsewhere, since etcd does not tell when some end. Permits of
	// other limits come back by time alone.
	blind := b.InFlight && (silent || b.Away && k.mu.trouble != nil)
	if b.InFlight {
		e.Reason = ReasonInFlight
	}
	switch {
	case b.Withheld != "":
		if e.Cause = withheld(k.provider, b); e.Key != "" {
			e.Cause = withheldKeyError(k.provider, e.Key, b)
		}
	case b.Spent && b.Stated != 0:
		e.Cause = errors.New(cause.Stated(b.String(), b.Named))
		u.when, u.known = b.Stated-k.clock.Offset(), true
	case b.InFlight && b.Used+u.n > b.Permits: // calls of this instance alone take too many
	case !blind && (b.Spent || b.InFlight && b.Left >= 0 && b.Left < u.n || u.known && u.when >= end):
	case b.Away || silent:
		why := cmp.Or(k.troubleLocked(), "etcd has not answered")
		e.Reason, e.Cause = ReasonStale, k.isStaleLocked(fmt.Sprintf("none in hand of %s, and no more can be fetched: %s", b.Limit, why))
		u.when, u.known = max(u.when, k.clock.Mono()+int64(window.AwayAgain)), true
	default: // it is being taken
		e.Taking = true
		u.when, u.known = max(u.when, k.clock.Mono()+int64(taking)), true
	}
}

// taking is about how long it takes to take more permits of a long limit.
const taking = 100 * time.Millisecond

// withheld says why nothing more of a long limit is handed out, and the way out.
func withheld(provider string, b *protocol.BudgetUse) error {
	return fmt.Errorf("%s; %s", cause.Withheld(b.Limit, false, b.Withheld, resumes(b)), cause.GiveCount(provider, b.Limit, b.Resumes != 0))
}

// withheldKeyError says why nothing more of a long limit of a key is handed out, and the way out.
func withheldKeyError(provider, key string, b *protocol.BudgetUse) error {
	return fmt.Errorf("%s; %s", cause.Withheld(b.Limit, true, b.Withheld, resumes(b)), cause.GiveCountOf(provider, cause.ShellWord(key), b.Limit))
}

// resumes returns when the withholding of a limit ends by itself; zero if that is not known.
func resumes(b *protocol.BudgetUse) (at time.Time) {
	if b.Resumes != 0 {
		at = time.Unix(0, b.Resumes)
	}
	return at
}

// caused adds to err the reason why the instance has no share, if it is known.
func (k *core) caused(err error) error {
	if k.mu.trouble == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, k.mu.trouble)
}

// name names the limit that decides when there are permits: of those that leave fewer than are asked for, the one whose
// window ends last. One of which more is being fetched from etcd ends before all others. If none leaves fewer, short is
// false, and it names the shortest; a built-in limit, which nobody has set, it never names. silent says that etcd does not
// answer. It returns the use of the limit if it is a long one, or else nil.
func (e *LimitError) name(limits []window.LimitUsage, c queue.Class, silent bool) (budget *protocol.BudgetUse, short bool) {
	ends := int64(math.MinInt64)
	for i := range limits {
		u := &limits[i]
		if c == queue.Critical {
			u.Kept = 0
		}
		lacks, end := u.Left-u.Kept < e.Asked, u.Window.End()
		switch b := u.Budget; {
		case b == nil:
		case b.Over != 0:
			end = b.Over
		case !b.InFlight && !b.Away && !silent:
			end = 0
		default:
			end = u.End // by the policy's zone
		}
		if u.Free() {
			e.Instances = u.Instances
			continue
		}
		if e.Window.Length == 0 || lacks && (!short || end > ends) {
			e.Total, e.Share, e.Window, budget = u.Limit.Limit, u.Share, u.Window, u.Budget
			e.Instances = u.Instances
			if e.Remaining = 0; budget != nil && !budget.Spent {
				e.Remaining = budget.Left
			}
		}
		if lacks {
			short, ends = true, max(ends, end)
		}
	}
	return budget, short
}
