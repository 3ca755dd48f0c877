package consumer

import (
	"context"
	"errors"
	"fmt"
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

// Status is a limiter's knowledge and counts at one moment.
type Status struct {
	Provider string
	State    quota.State
	// Problem is one sentence about a fault; empty if there is none.
	Problem string
	// Incarnation is the ID of this instance, by which quota-admin instances lists it. It
	// changes when the instance had to register again. It is empty before the first time.
	Incarnation string
	// Limits are the provider's limits in force, shortest window first. While a change of
	// a window's length settles, the old limits bind too.
	Limits []LimitUse
	// Instances is the number of instances that share them.
	Instances int
	// Revision is the newest etcd revision applied, PolicyRevision that of the
	// policy.
	Revision, PolicyRevision int64
	// Issued and Refused count permits since the limiter was opened. Shadowed counts
	// refused permits that shadow mode let pass. Issued includes debts paid. Of a limit in flight it counts what TakeAll took
	// of one limiter and gave back since another one had too few.
	Issued, Refused, Shadowed int64
	// Lent and Borrowed count permits since the limiter was opened: lent to other instances,
	// which are not among Issued, and borrowed from them.
	Lent, Borrowed int64
	// Asks counts the times that this instance asked others for permits, and FruitlessWindows
	// the windows in which it asked and borrowed none.
	Asks, FruitlessWindows int64
	// FirstLoans counts the windows whose first loan came after a call was refused or had to
	// wait. FirstLoanTime is the sum of the times from the first such call to that loan.
	FirstLoans    int64
	FirstLoanTime time.Duration
	// BorrowedLast counts the permits of others that this instance had from Hosts instances in
	// the shortest limit's last whole window, and LentLast those of its own that Guests instances
	// had. One of them is 0: permits that it borrowed and lent on are in neither, so no permit
	// counts twice in the sum of all instances.
	BorrowedLast, LentLast int64
	Hosts, Guests          int
	// Debt is the unpaid cost of calls beyond their permits: see Permit.Settle. Nothing
	// is issued until it is paid. DebtUntil is about when that is; zero without a debt, or if unknown:
	// where others lend, a whole window shows first how much they do.
	Debt      int64
	DebtUntil time.Time
	// Largest is the most permits that one request can have in the coming windows, unless
	// the policy or the other instances change: a larger one gets ErrTooLarge. Where others
	// lend, it is that of the limits in force: a larger one that an announced limit allows
	// is not too large. 0 means that no share is known, so no request is too large.
	Largest int64
	// RefusedBy divides Refused by reason; it has an entry for every Reason.
	RefusedBy map[Reason]int64
	// KeysInUse is the number of keys that calls of this instance use, which the policy's
	// keys.most bounds, without those that it only lends to others. KeysRefused
	// counts the permits refused because a key had too few, or was one too many. They are
	// not among Refused.
	KeysInUse, KeysRefused int64
	// KeysLent and KeysBorrowed count permits of all keys since the limiter was opened: lent to
	// other instances, and borrowed from them. KeyAsks counts the times that this instance asked
	// others for permits of a key. They are not among Lent, Borrowed and Asks.
	KeysLent, KeysBorrowed, KeyAsks int64
	// BusiestKeys are up to 50 keys whose calls wanted most permits in the last period of 10 s
	// or more, the busiest first: counted for each key that wants 1 in 200 of all or more. In
	// the first period it is what there was until now. Do not change it: others see it too.
	BusiestKeys []Rate
	// BusiestLabels are up to 20 labels whose calls wanted most permits, as BusiestKeys, and
	// calls without a label by the name "". The last one, "other", has all other labels
	// together. It is empty before the first call of Limiter.Label.
	BusiestLabels []Rate
	// IssuedByLabel and RefusedByLabel count permits by label: the first 20 labels of the
	// limiter, and "other" for all later ones. RefusedByLabel includes permits refused for
	// want of a key's. See Limiter.Label.
	IssuedByLabel, RefusedByLabel map[string]int64
	// IssuedBy, RefusedOf and WaitingBy divide Issued, Refused and Waiting by class; each has
	// an entry for every Class. Debts paid count as Default.
	IssuedBy, RefusedOf map[Class]int64
	WaitingBy           map[Class]int
	// Impossible counts the calls for more permits than a limit has, which are never
	// served; shadow mode lets them pass. They are mistakes: they are in neither Refused
	// nor Shadowed.
	Impossible int64
	// OverIssued is always 0; another value is a bug. An independent check counts permits
	// issued beyond the share of that moment.
	OverIssued int64
	// Forgotten counts calls of a limit in flight of which nobody has said that they ended, by Permit.Done or by
	// the function of Begin: their places came back when the hold and a half had passed. Another value than 0
	// is a mistake of the program, which leaves so much of the limit unused.
	Forgotten int64
	// StateChanges counts the changes of State that were noticed.
	StateChanges int64
	// Waiting is the number of waiting callers, those that wait for a key included. The
	// first that waits for the provider wants HeadPermits, and is expected to have them at
	// HeadAt; zero if unknown.
	Waiting     int
	HeadPermits int64
	HeadAt      time.Time
	// ClockError bounds the error of the clock, if ClockErrorKnown.
	ClockError      time.Duration
	ClockErrorKnown bool
	// ClockErrorBound is the policy's bound on it; 0 without a policy.
	ClockErrorBound time.Duration
	// ClockSource is the clock's reference: "ntp" is the session's servers, "kernel" the
	// operating system's clock with the kernel's bound on its error, and "system" that
	// clock with an unknown error.
	ClockSource string
	// PausedUntil is the end of a pause that the provider or the application asked for,
	// and PauseReason its cause; both are zero without a pause.
	PausedUntil time.Time
	PauseReason string
	// ProofAge is the age of the newest proof that the view is recent; negative
	// if there is none.
	ProofAge time.Duration
}

// LimitUse is the use of one limit of the policy in its current window.
type LimitUse struct {
	// Limit is the provider's limit, which all instances share.
	Limit quota.Limit
	// Share is this instance's part of it; of a long limit (quota.Limit.Long) it is the
	// permits that the instance has taken. Used is the number of permits issued to this
	// instance's own calls, borrowed ones included, so it can be more than Share; permits
	// that it lent to others are in neither Used nor Left. Of a limit in flight Used is the
	// number of calls that are under way. Left is the number that this limit allows now; of a
	// long one, what is in hand. Under shape sliding, Used counts the permits of the last
	// window's length, under bucket those of the running window.
	Share, Used, Left int64
	// Start and End bound the window, in corrected wall-clock time. Under the shapes
	// sliding and bucket the next permit comes back at End. Of a limit that slides over more than
	// a minute they bound a part of time, a hundredth of the window, to which the other numbers
	// belong; of one in flight, an eighth of the hold. Permits do not come back at its end.
	Start, End time.Time
	// Remaining, of a long limit, is Left plus the permits that no instance had taken at the
	// last read of etcd; negative before the first read. It is 0 for other limits.
	Remaining int64
	// Kept is how many permits of Left only critical calls can have: see Limiter.Class.
	Kept int64
	// Withheld says why nothing more of a long limit is handed out, as after a restore of etcd;
	// empty if more is. Status.Problem says what to do.
	Withheld string
}

// Shortest returns the use of the limit with the shortest window; all zero if no
// limit is in force.
func (s Status) Shortest() LimitUse {
	if len(s.Limits) == 0 {
		return LimitUse{}
	}
	return s.Limits[0]
}

// Status returns the limiter's knowledge and counts. It asks no etcd and does not wait, but
// takes the lock of the limiter for some microseconds: call it each second, not with each call.
func (l *Limiter) Status() Status {
	st, _ := l.core.status(l.core.clock.Now())
	if l.all.closed.Load() {
		st.State = quota.StateClosed
	}
	return st
}

func (k *core) status(now clock.Instant) (Status, window.Usage) {
	use := k.gate.Usage(now)
	k.keys.tellQuiet()
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.mu.planner
	policy, revision := p.Policy()
	st := Status{
		Provider: k.provider, State: k.stateLocked(now), Incarnation: k.mu.self,
		Revision: p.Revision(), PolicyRevision: revision, Instances: p.Instances(),
		Issued: use.Issued, Shadowed: k.shadowed.Load(), OverIssued: use.OverIssued, Forgotten: use.Unended, StateChanges: k.mu.logged.changes,
		Waiting: use.Waiting + k.keys.lines.waiting(), HeadPermits: use.Head, Debt: use.Debt, Largest: use.Largest, ProofAge: -1,
		Lent: use.Lent, Borrowed: use.Borrowed, Asks: use.Asks, FruitlessWindows: use.Fruitless,
		FirstLoans: use.FirstLoans, FirstLoanTime: use.FirstLoanTime,
		BorrowedLast: use.LastLoans.Borrowed, Hosts: use.LastLoans.Hosts, LentLast: use.LastLoans.Lent, Guests: use.LastLoans.Guests,
	}
	st.Refused, st.RefusedBy = k.refused.count()
	st.KeysInUse, st.KeysRefused = k.keys.inUse.Load(), k.keys.refused.Load()
	st.KeysLent, st.KeysBorrowed, st.KeyAsks = k.keys.lent.Load(), k.keys.got.Load(), k.keys.asked.Load()
	st.BusiestKeys = ratesOf(k.keys.busiest.Rates(now.Mono, keysShown, ""))
	k.labels.tell(&st, now.Mono)
	k.tell(&st, &use)
	st.Impossible = k.refused.impossible.Load()
	if use.HeadAt != clock.Forever {
		st.HeadAt = k.wall(use.HeadAt)
	}
	if len(use.Limits) > 0 && use.Limits[0].Budget == nil {
		st.Instances = use.Limits[0].Instances
	}
	for _, u := range use.Limits {
		if u.Free() {
			continue
		}
		st.Limits = append(st.Limits, limitUse(&u))
	}
	if policy != nil {
		st.ClockErrorBound = policy.ClockError
	}
	if proof, ok := p.Proved(); ok {
		st.ProofAge = time.Duration(max(0, now.Mono-proof.Mono, now.Wall-proof.Wall))
	}
	st.ClockError, st.ClockErrorKnown = k.clock.ErrorAt(now.Mono)
	st.ClockSource = string(k.clock.Health().Source)
	if problem := k.problemLocked(now, st.State); problem != nil {
		st.Problem = problem.Error()
	} else {
		st.Problem = withheldOf(k.provider, use.Limits)
	}
	if st.Problem == "" {
		st.Problem = k.keyWithheld(now)
	}
	if st.Debt > 0 {
		if use.DebtKnown {
			st.DebtUntil = k.wall(use.DebtUntil)
		}
		if st.Problem == "" && len(st.Limits) > 0 && use.DebtUntil-now.Mono > 2*int64(st.Limits[0].Limit.Window) { // shorter debts are an everyday matter where costs are known late
			st.Problem = cause.Debt(st.Debt, st.DebtUntil)
		}
	}
	if pause := k.mu.pauses.longest(); now.Mono < pause.until {
		st.PausedUntil, st.PauseReason = k.wall(pause.until), pause.why
	}
	return st, use
}

// limitUse tells the use of a limit, but for what the provider states of it.
func limitUse(u *window.LimitUsage) LimitUse {
	l := LimitUse{
		Limit: quota.Limit{Permits: u.Limit.Limit, Window: u.Window.Length}, Share: u.Share, Used: u.Used, Left: u.Left,
		Start: time.Unix(0, u.Start), End: time.Unix(0, u.End), Kept: u.Kept,
	}
	if b := u.Budget; b != nil {
		l.Limit = b.Limit
		l.Withheld, l.Remaining = b.Withheld, b.Left
		if b.Left >= 0 {
			l.Remaining += u.Left
		}
	}
	return l
}

// withheldOf says of which long limits nothing more is handed out; "" if of none.
func withheldOf(provider string, limits []window.LimitUsage) string {
	var all []string
	for _, u := range limits {
		if b := u.Budget; b != nil && b.Withheld != "" {
			all = append(all, withheld(provider, b).Error())
		}
	}
	return strings.Join(all, "; ")
}

// problemLocked says why the limiter has no share, or what else is wrong; nil if nothing is. A
// refusal by the state says the same.
func (k *core) problemLocked(now clock.Instant, state quota.State) error {
	p := &k.mu.planner
	policy, revision := p.Policy()
	switch {
	case policy == nil && k.mu.had != "" && p.Started():
		return k.noLimitLocked()
	case k.mu.trouble != nil:
		return k.mu.trouble
	case !p.Started():
		return errors.New(cause.Unheard)
	case policy == nil:
		return k.noLimitLocked()
	case policy.LimitsAt(k.clock.WallAt(now.Mono)) == nil:
		return ends(cause.Begins(policy.From))
	}
	switch p.Reason(now.Mono) {
	case share.ReasonUnsupported:
		return errors.New(cause.Unsupported(policy, revision))
	case share.ReasonNoPolicy, share.ReasonJoining:
		if p.Silent(now) { // no share begins before etcd answers
			return errors.New(k.silentLocked() + ": quota-admin doctor finds the cause")
		}
		if state == quota.StatePaused && p.Registered() { // a share that begins issues nothing either
			return nil
		}
		return k.startsLocked(now)
	case share.ReasonLeft:
		return cause.ErrLeft
	}
	rules := p.Rules(now.Mono)
	if bound, wrong := p.ClockWrong(rules); wrong {
		return errors.New(cause.Clock(bound, rules.ClockError) + ": " + cause.SetClock)
	}
	if _, proved := p.Proved(); !proved || state == quota.StateStale {
		return errors.New(k.silentLocked())
	}
	if problem := k.clock.Health().Problem; problem != "" {
		return errors.New(problem)
	}
	return nil
}

// noLimitLocked says that there is no limit, and which one there was. A trouble since then is not the cause.
func (k *core) noLimitLocked() error {
	if k.mu.had == "" {
		return errors.New(cause.NoLimit(k.provider))
	}
	text := cause.LostLimit(k.provider, k.mu.had)
	if k.mu.trouble != nil {
		text += cause.Beside + k.mu.trouble.Error() // after the command: cause.Command
	}
	return errors.New(text)
}

// goesLocked remembers a policy that is about to be forgotten.
func (k *core) goesLocked() {
	p, _ := k.mu.planner.Policy()
	if p == nil {
		return
	}
	k.mu.had = cause.Was(p)
}

// startsLocked says when a share begins that time brings.
func (k *core) startsLocked(now clock.Instant) error {
	p := &k.mu.planner
	began, again := p.Began()
	settle := p.Rules(now.Mono).Settle
	wall, ok := p.Begins()
	begins := time.Unix(0, wall)
	if !ok {
		begins = time.Time{}
	}
	switch {
	case !p.Registered():
		return errors.New(cause.Unregistered)
	case ok && p.Reason(now.Mono) == share.ReasonNoPolicy:
		return ends(cause.Begins(begins))
	}
	if limit, is := p.NewWindow(); ok && is {
		return ends(cause.NewWindow(protocol.WindowName(limit), begins))
	}
	text := cause.Joined(k.wall(began), begins, settle)
	if p.First() {
		text = cause.First(begins)
	} else if again {
		text = cause.StartedOver(k.wall(began), begins, settle)
	}
	if ok {
		return ends(text)
	}
	return errors.New(text)
}

// Report implements feed.Sink.
func (k *core) Report(now clock.Instant) protocol.Report {
	k.noteState(now)
	k.noteClock(now)
	st, use := k.status(now)
	k.noteDebt(&st)
	k.noteForgotten(&st, now.Mono)
	shortest := st.Shortest()
	k.mu.Lock()
	k.mu.rate.See(now.Mono, use.Issued)
	held, until := k.mu.planner.Held(now.Mono)
	k.mu.Unlock()
	r := protocol.Report{
		Schema: quota.Schema, State: st.State, Revision: st.Revision, PolicyRevision: st.PolicyRevision,
		Total: shortest.Limit.Permits, Share: shortest.Share, Instances: st.Instances,
		Used: use.Issued, Refused: st.Refused, Shadowed: st.Shadowed, Waiting: int64(st.Waiting), Debt: use.Debt, Forgotten: use.Unended,
		ClockError: "unknown", ClockSource: st.ClockSource, ProofAge: "none", Problem: st.problem(),
		Time: k.wall(now.Mono).UTC(), DebtUntil: st.DebtUntil.UTC(),
	}
	r.Borrowed, r.Hosts, r.Lent, r.Guests = st.BorrowedLast, st.Hosts, st.LentLast, st.Guests
	r.BusiestKeys, r.BusiestLabels, r.Classes = reported(st.BusiestKeys), reported(st.BusiestLabels), st.reportedClasses()
	if len(use.Limits) > 0 {
		u := &use.Limits[0] // of which Free is one
		r.Window, r.WindowStart, r.UsedBefore = time.Duration(u.End-u.Start), time.Unix(0, u.Start).UTC(), use.Issued-u.Used
	}
	for _, u := range use.Limits {
		if b := u.Budget; b != nil && !b.Whole {
			r.Long = append(r.Long, protocol.Taken{Window: b.Name(), Start: b.Start, Taken: b.Taken, Used: b.Used})
		}
	}
	if st.ClockErrorKnown {
		r.ClockError = st.ClockError.Round(time.Microsecond).String()
	}
	if st.ProofAge >= 0 {
		r.ProofAge = st.ProofAge.Round(time.Millisecond).String()
	}
	if len(held) > 0 {
		r.HeldFor, r.HeldUntil = listed(held), time.Unix(0, until).UTC()
	}
	return r
}

// Ready waits until the limiter may issue permits: it is active, or stale with a share that it goes on with
// (quota.OutageHold), has borrowed its first permits, or lets everything pass in shadow mode. It returns an error of
// ctx, or ErrClosed.
func (l *Limiter) Ready(ctx context.Context) error {
	k := l.core
	if ctx == nil {
		return fmt.Errorf("consumer: %s: %w", k.provider, errNilContext)
	}
	k.gate.Await(k.clock.Now(), 1)
	defer func() { k.gate.Await(k.clock.Now(), -1) }()
	for {
		now := k.clock.Now()
		k.mu.Lock()
		state, changed := k.stateLocked(now), k.mu.changed
		next := k.mu.planner.Foresee(now.Mono)
		borrowed := now.Mono < k.mu.borrowed && !next.Proof.Over(now) // without a proof it may not use that
		k.mu.Unlock()
		switch {
		case l.all.closed.Load() || state == quota.StateClosed:
			_, _, err := k.explain(queue.Closed, 0, queue.Default)
			return err
		case state == quota.StateActive || state == quota.StateStale && l.Delay(1) < Forever || borrowed || next.Shadow:
			k.noteState(now)
			return nil
		}
		var edge <-chan time.Time // nil while only news can change the state
		if next.Until != clock.Forever {
			edge = time.After(time.Duration(next.Until - now.Mono))
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-edge:
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Delay estimates the wait of a new caller for n permits at once, if none of a higher class
// comes later. It returns 0 if they are available, or for n <= 0. Where no other instance may lend, the
// wait is no shorter, unless others give up. It is as long, but may be longer where several limits apply,
// where callers wait for many permits each, and while the share grows or the policy announces other
// limits. Where other instances may lend, Delay is until the window ends at the earliest, though loans
// may come before; if a debt is to be paid first, what they may lend is counted on, while LimitError.DebtUntil
// goes by what they did lend. It returns Forever if the end is unknown, as for more permits than any share will hold,
// and while nothing of a limit is handed out after a restore of etcd, which an operator can end at any time.
// Use it to decide whether to pause a partition instead of waiting.
func (l *Limiter) Delay(n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	now := l.core.clock.Now()
	when, known := l.core.gate.Estimate(now, n, l.class)
	if !known || l.all.closed.Load() {
		return Forever
	}
	return time.Duration(max(0, when-now.Mono))
}
