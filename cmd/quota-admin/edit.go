package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// edit is a change of policies, in the steps that every such command takes: read,
// change, check, show or write, wait.
type edit struct {
	a        *app
	revision int64 // the only one that is changed, or anyRevision
	reason   string
	author   string // other than that of the tool
	wait     time.Duration
	dryRun   bool
	steps    bool      // look at the greatest step
	maxStep  float64   // other than that of the policy; 0: that
	force    bool      // and go beyond it
	lazy     bool      // write nothing where nothing would change
	replace  bool      // a policy that cannot be read
	exists   bool      // refuse where none is set
	resume   bool      // end a back-off too
	withhold bool      // etcd has lost its data: hand out nothing in the running windows of long limits
	already  string    // says that nothing would change; empty: the command says so itself
	at       time.Time // from when on it is meant to be in force; zero: now
	// next returns the new policy; who writes it, when and why is filled in.
	next func(ctx context.Context, operator *admin.Client, old admin.Stored, now time.Time) (quota.Policy, error)
}

// anyRevision stands for no --if-revision: a policy's revisions are 0 or more.
const anyRevision = int64(-1)

const noChange = "nothing to change"

// edits makes cmd a change of a policy, with the flags that all changes have.
func (a *app) edits(cmd *cobra.Command, least int64) *edit {
	e := a.changes(cmd)
	what := "change the policy only if it has revision `N`"
	if least == 0 {
		what += "; 0: only if none is set"
	}
	a.revisionFlag(cmd, &e.revision, least, what)
	a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		results, err := e.run(ctx, etcd, args[:1])
		if results == nil || a.format == format.Table {
			return err
		}
		return errors.Join(a.emit(results[0], nil), err)
	})
	return e
}

func (a *app) changes(cmd *cobra.Command) *edit {
	e := &edit{a: a, revision: anyRevision}
	cmd.Flags().StringVar(&e.reason, "reason", "", "`why`, for the history")
	a.waitFlag(cmd, &e.wait)
	cmd.Flags().BoolVar(&e.dryRun, "dry-run", false, "show the share that each instance would get, and write nothing")
	return e
}

func (a *app) waitFlag(cmd *cobra.Command, wait *time.Duration) {
	addFlag(a, cmd, wait, "wait", func(text string) (time.Duration, error) {
		d, err := positive(text)
		if err != nil {
			err = fmt.Errorf("write a time above 0, as in --wait=1m; --wait alone is %v", defaultWait)
		}
		return d, err
	}, "wait at most this `duration` until every instance has applied the change")
	cmd.Flags().Lookup("wait").NoOptDefVal = defaultWait.String()
}

// withholdFlag is for commands that set limits anew after a loss.
func (e *edit) withholdFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.withhold, "withhold", false, "etcd has lost its data: hand out nothing of limits of more than a minute in the running windows, until budget --used gives counts")
}

const forceUsage = "allow a change by a larger factor than --max-step"

func (a *app) revisionFlag(cmd *cobra.Command, revision *int64, least int64, usage string) {
	addFlag(a, cmd, revision, "if-revision", func(text string) (int64, error) {
		n := revisionOf(text)
		if n < least || n == 0 && text != "0" {
			return n, fmt.Errorf("a revision is at least %d; get shows it", least)
		}
		return n, nil
	}, usage)
}

func conflict(s admin.Stored, want int64) error {
	if want == anyRevision || want == s.Revision {
		return nil
	}
	return &admin.ConflictError{Provider: s.Provider, Have: s.Revision, Want: want}
}

// storedJSON is a policy as it stands in etcd, as -o json shows it.
type storedJSON struct {
	Provider string `json:"provider"`
	Revision int64  `json:"revision"`
	Policy   *shown `json:"policy,omitempty"`
	Problem  string `json:"problem,omitempty"` // why instances do not apply it
	// Throttle has the pauses that instances were asked for; get shows it.
	Throttle *protocol.Throttle `json:"throttle,omitempty"`
}

func toJSON(s admin.Stored) *storedJSON {
	return &storedJSON{s.Provider, s.Revision, (*shown)(policyIn(s)), format.OneLine(s.Problem), nil}
}

// policyIn returns the policy, nil if none is set or it cannot be decoded at all.
func policyIn(s admin.Stored) *quota.Policy {
	if len(s.Policy.Limits) == 0 {
		return nil
	}
	return &s.Policy
}

type editResult struct {
	Provider string      `json:"provider"`
	Old      *storedJSON `json:"old"` // null where there was none
	New      *storedJSON `json:"new"` // revision 0: it was not written
	DryRun   *sharesJSON `json:"dry_run,omitempty"`
	Wait     *waitJSON   `json:"wait,omitempty"`
	Ended    bool        `json:"backoff_ended,omitempty"` // in a dry run: would be ended

	old, new admin.Stored
	changed  bool
	counts   string // what is assumed, or withheld, of what was used before; empty: nothing
	inForce  time.Time
}

// make makes the changes in one transaction, which is bound to what next was given: so
// "keeps the rest" is true of what was there. A dry run writes nothing, and shows shares.
func (e *edit) make(ctx context.Context, etcd connection, providers []string) ([]*editResult, error) {
	now, results, operator := time.Now(), make([]*editResult, len(providers)), etcd.Client
	all, err := operator.Update(ctx, providers, func(found []admin.Stored) ([]*quota.Policy, error) {
		policies := make([]*quota.Policy, len(found))
		for i, old := range found {
			p, err := e.checked(ctx, operator, old, now)
			if err != nil {
				return nil, err
			}
			results[i] = &editResult{Provider: old.Provider, old: old, new: old, changed: p != nil}
			if p != nil {
				results[i].new = admin.Stored{Provider: old.Provider, Policy: *p}
				if !e.dryRun {
					policies[i] = p
				}
			}
		}
		for _, r := range results {
			if err := e.mark(ctx, etcd, r); err != nil {
				return nil, err
			}
		}
		return policies, nil
	})
	_, told := errors.AsType[*fault](err)
	if _, rail := errors.AsType[*quota.FieldError](err); rail && !told { // by policies that instances may still rely on
		if len(providers) == 1 {
			err = fmt.Errorf("%s: %w", providers[0], err)
		}
		return nil, refused(err)
	}
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if r.changed && !e.dryRun {
			r.new = all[i]
		}
		if r.New = toJSON(r.new); r.old.Revision != 0 {
			r.Old = toJSON(r.old)
		}
		r.inForce = inForce(r.old.Policy, r.new.Policy, e.at, time.Now())
		if r.changed && e.dryRun {
			f, err := feed.Inside(operator).Fleet(ctx, r.Provider)
			if err != nil {
				return nil, err
			}
			r.DryRun = compareShares(&f, r.new.Policy, r.inForce)
		}
		if e.resume {
			if r.Ended, err = e.endBackoff(ctx, operator, r.Provider); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

// run makes the changes, tells people, and waits if asked to. With an error and results
// the changes are made.
func (e *edit) run(ctx context.Context, etcd connection, providers []string) ([]*editResult, error) {
	results, err := e.make(ctx, etcd, providers)
	if results == nil {
		return nil, err
	}
	now := time.Now()
	var waits []*waitJSON
	for _, r := range results {
		if r.changed && !e.dryRun && e.wait > 0 {
			r.Wait = &waitJSON{Provider: r.Provider, Revision: r.new.Revision, InForce: r.inForce, policy: r.new.Revision, paused: r.new.Policy.Mode == quota.ModePause}
			waits = append(waits, r.Wait)
		}
		if e.a.format == format.Table {
			if err := e.tell(r, len(results) > 1, now); err != nil {
				return nil, err
			}
		}
	}
	if e.dryRun {
		e.a.note("dry run: nothing was written")
	}
	if len(waits) > 0 && err == nil {
		err = e.a.awaitAll(ctx, etcd.Client, e.wait, waits)
	}
	return results, err
}

// tell says what a change does, or would do.
func (e *edit) tell(r *editResult, several bool, now time.Time) error {
	var lines []string
	if r.changed {
		writeChange(e.a.stdout, r.old, r.new, now)
		lines = effects(r.old.Policy, r.new.Policy, now)
	} else if e.already != "" && !r.Ended {
		fmt.Fprintf(e.a.stdout, "%s: %s (revision %d)\n", format.Show(r.Provider), e.already, r.old.Revision)
	}
	if r.Ended {
		does := map[bool]string{false: "is", true: "would be"}[e.dryRun]
		fmt.Fprintf(e.a.stdout, "%s: the back-off that the provider had asked for %s ended\n", format.Show(r.Provider), does)
	}
	if r.counts != "" {
		lines = append(lines, r.counts)
	}
	for _, line := range lines {
		if several {
			line = r.Provider + ": " + line
		}
		e.a.note("%s", line)
	}
	if r.DryRun == nil {
		return nil
	}
	return e.a.emit(nil, r.DryRun.table)
}

// checked returns the policy to write; nil if nothing would change and e is lazy.
func (e *edit) checked(ctx context.Context, operator *admin.Client, old admin.Stored, now time.Time) (*quota.Policy, error) {
	if e.exists && old.Revision == 0 {
		return nil, fmt.Errorf("%s: %w", old.Provider, admin.ErrNotFound)
	}
	if err := conflict(old, e.revision); err != nil {
		return nil, err
	}
	switch {
	case e.replace && old.Problem != nil:
		old.Policy = quota.Policy{} // it is not in force
	case old.Revision != 0 && policyIn(old) == nil:
		return nil, fmt.Errorf("the policy of %s at revision %d cannot be read, so the rest of it cannot be kept: %s: quota-admin rollback %[1]s REVISION restores an earlier one (quota-admin history %[1]s); deleting it stops all calls until you set a new one",
			old.Provider, old.Revision, format.OneLine(old.Problem))
	}
	p, err := e.next(ctx, operator, old, now)
	if err != nil {
		return nil, err
	}
	p.Author, p.Time, p.Reason = e.author, time.Time{}, e.reason // of this change, not of the last
	p.Ignored = nil                                              // JSON leaves it out
	p = p.WithDefaults()
	err = p.Validate()
	if err == nil && e.steps && !e.force {
		var last []quota.Limit
		if last, err = limitsBefore(ctx, operator, old, now); err != nil {
			return nil, err
		}
		err = change.CheckStep(old.Policy, p, last, now, e.maxStep)
	}
	if err != nil {
		return nil, refused(fmt.Errorf("%s: %w", old.Provider, err))
	}
	if e.lazy && old.Revision != 0 && old.Problem == nil && change.Same(old.Policy, p, now) {
		return nil, nil
	}
	return &p, nil
}

// limitsBefore finds in the history the limits that were last in force before limits of 0;
// nil where none are known or 0 is not in force.
func limitsBefore(ctx context.Context, operator *admin.Client, old admin.Stored, now time.Time) ([]quota.Limit, error) {
	if in := change.InForce(old.Policy, now); len(in) == 0 || !change.Nothing(in) {
		return nil, nil
	}
	records, err := operator.History(ctx, old.Provider)
	for _, r := range records {
		if r.Old == nil {
			continue
		}
		if in := change.InForce(*r.Old, r.Time); len(in) > 0 && !change.Nothing(in) {
			return in, err
		}
	}
	return nil, err
}

// writeChange says what was changed: the limits in force in one line, and a line for each
// other field that differs, of a new policy from the defaults. A revision of 0 was not
// written.
func writeChange(w io.Writer, old, next admin.Stored, now time.Time) {
	o, n := change.Current(old.Policy, now), change.Current(next.Policy, now)
	limits, written := change.Limits(&n), fmt.Sprintf(" (revision %d, was %d)", next.Revision, old.Revision)
	switch before := change.Limits(&o); {
	case policyIn(old) == nil:
		o = quota.Policy{Limits: n.Limits}.WithDefaults()
		written = fmt.Sprintf(" (revision %d, new)", next.Revision)
	case before != limits:
		limits = before + " -> " + limits
	}
	if next.Revision == 0 {
		written = ""
	}
	provider := format.Show(next.Provider)
	fmt.Fprintf(w, "%s: %s%s\n", provider, limits, written)
	for _, d := range change.Beside(&o, &n) {
		fmt.Fprintf(w, "%s: %v\n", provider, d)
	}
}

// effects says from when on the instances obey a change, and what is announced.
// An old policy without limits stands for none.
func effects(old, next quota.Policy, now time.Time) []string {
	return slices.Concat(atOnce(old, next, now), ofKeys(old, next, now), counts(old, next), ahead(old, next, now))
}

// counts says what becomes of the counts of limits of more than a minute whose windows change.
func counts(old, next quota.Policy) (lines []string) {
	for _, keys := range []bool{false, true} {
		goes, comes := protocol.Continued(&old, &next, keys)
		if len(goes) == 0 || len(comes) == 0 {
			continue
		}
		if comes[0].InFlight {
			lines = append(lines, "calls that are under way count in the new limit until they have ended, or until they count no more by the old hold")
			continue
		}
		if keys {
			lines = append(lines, "of each key, "+countsOn(goes, comes, " --key KEY"))
		} else {
			lines = append(lines, countsOn(goes, comes, ""))
		}
	}
	if old.InFlight() != next.InFlight() && len(old.Limits) > 0 && len(next.Limits) > 0 {
		lines = append(lines, "calls that are under way, and what was handed out before, do not count in the new limit: it can be exceeded by these until they have ended")
	}
	return lines
}

// countsOn says that the counts of limits go on in others. of are the flags of budget that name a key.
func countsOn(goes, comes []quota.Limit, of string) string {
	line := fmt.Sprintf("what was handed out of %s counts on in the windows of %s that overlap those before", quota.FormatLimits(goes), quota.FormatLimits(comes))
	if longest(comes) > longest(goes) {
		line += "; they are longer, so etcd may not know all that was used in them: quota-admin budget PROVIDER" + of + " --used N gives the provider's count"
	}
	return line
}

func longest(all []quota.Limit) (window time.Duration) {
	for _, l := range all {
		window = max(window, l.Window)
	}
	return window
}

// ofKeys says what becomes of the limits of keys.
func ofKeys(old, next quota.Policy, now time.Time) (lines []string) {
	settle := max(old.Settle, next.Settle)
	switch was, will := old.Keys.Limits, next.Keys.Limits; {
	case slices.Equal(was, will) || len(old.Limits) == 0:
		return nil
	case len(was) == 0:
		return []string{fmt.Sprintf("keys have permits from the first window that starts %v after the change", settle)}
	case len(will) == 0:
		return []string{"calls for keys are refused as soon as an instance learns of the change"}
	}
	lines = []string{"the limits of keys bind as soon as an instance learns of the change"}
	for _, l := range removed(old.Keys.Limits, next.Keys.Limits) {
		lines = append(lines, goes("the removed limit "+l.String()+" of keys", lasts(*protocol.OfKeys(&old), *protocol.OfKeys(&next), l, now.Add(settle)), settle))
	}
	return lines
}

// goes says until when a removed limit binds, and why: for the settle time, which is zero if the change was announced,
// and then to the end of its window.
func goes(limit string, until time.Time, settle time.Duration) string {
	limit += " binds until " + format.Exact(until)
	if settle == 0 {
		return limit + ", when its window ends"
	}
	return fmt.Sprintf("%s: for the settle time (%v), and then until its window ends", limit, settle)
}

// removed returns those of some limits in force, of up to a minute, that others take away. A limit is known by its window
// length.
func removed(before, after []quota.Limit) []quota.Limit {
	return slices.DeleteFunc(slices.Clone(before), func(l quota.Limit) bool {
		_, stays := protocol.LimitOf(after, l.Window)
		return stays || l.Long() || protocol.Free(l)
	})
}

// begins returns from when a limit has a share that counts from an instant on: from the first window that starts then or
// later. Where growth is held back for a window's reach, it is so much later.
func begins(old, next quota.Policy, l quota.Limit, from time.Time) time.Time {
	return time.Unix(0, quota.WindowAt(l.Window, from.UnixNano()-1).End()+reach(old, next, l)).UTC()
}

// lasts returns until when a removed limit binds: each window that has begun by at does so to its end, and where growth is
// held back, so much longer.
func lasts(old, next quota.Policy, l quota.Limit, at time.Time) time.Time {
	return begins(old, next, l, at.Add(1))
}

// reach returns for how long growth of a limit is held back beyond a window's edge, in nanoseconds.
func reach(old, next quota.Policy, l quota.Limit) int64 {
	if !protocol.Shaped(&next) && !protocol.Shaped(&old) {
		return 0
	}
	return int64(protocol.ReachOf(l.Window, max(old.Guard, next.Guard), max(old.ClockError, next.ClockError)))
}

// atOnce says what becomes of the limits in force. A limit is known by its window
// length.
func atOnce(old, next quota.Policy, now time.Time) []string {
	// A change of the settle time acts as the longer of both.
	settle := max(old.Settle, next.Settle)
	before, after := protocol.LimitsAt(&old, now.UnixNano()), protocol.LimitsAt(&next, now.UnixNano())
	switch {
	case len(before) == 0 && len(after) == 0:
		return nil
	case len(before) == 0 && next.InFlight():
		return []string{fmt.Sprintf("the first calls begin %v after the change, or up to a second later; those of an instance that starts later, and is the only one, within a second", settle)}
	case len(before) == 0 && !protocol.LimitsShort(&next):
		return []string{fmt.Sprintf("instances begin to issue permits %v after the change, or up to a second later; one that starts later, and is the only one, within a second", settle)}
	case len(before) == 0:
		return []string{fmt.Sprintf("instances begin to issue permits with the first window that starts %v after the change; one that starts later, and is the only one, with its next window", settle)}
	case len(after) == 0:
		return []string{"nothing is issued until the policy begins"}
	}
	added, larger, smaller := false, false, false
	for _, l := range after {
		n, known := protocol.LimitOf(before, l.Window)
		added, larger, smaller = added || !known && !protocol.Free(l), larger || known && l.Permits > n, smaller || known && l.Permits < n
	}
	lines := modeEffects(old, next, settle, now)
	if larger {
		used, from := "the larger limit is used", "at once by instances that see the change"
		if protocol.Free(after[0]) {
			used = "the short limit is dropped"
		}
		if !slices.ContainsFunc(after, func(l quota.Limit) bool { return gives(old, next, l, now) }) {
			from = fmt.Sprintf("from the first window that starts %v after the change", settle)
		}
		lines = append(lines, used+" "+from)
	}
	if smaller {
		line := fmt.Sprintf("the smaller limit binds at once on instances that see the change, and the fleet in every window that starts %v after it", settle)
		if next.Outage == quota.OutageHold {
			line += "; instances cut off from etcd keep their share (outage rule hold)"
		}
		lines = append(lines, line)
	}
	if added {
		lines = append(lines, "the added limit binds at once on instances that see the change, and the fleet in every window that starts after the change")
	}
	for _, l := range removed(before, after) {
		lines = append(lines, goes("the removed limit "+l.String(), lasts(old, next, l, now.Add(settle)), settle))
	}
	return lines
}

func modeEffects(old, next quota.Policy, settle time.Duration, now time.Time) []string {
	was, is := old.WithDefaults().Mode, next.WithDefaults().Mode
	switch {
	case was == is:
		return nil
	case is == quota.ModePause:
		return []string{"instances that see the change issue nothing from now on"}
	case is == quota.ModeShadow:
		return []string{"every refusal passes from now on: the limit is NOT held until enforce"}
	case was == quota.ModePause && givesAll(old, next, now):
		return []string{"instances that see the change issue permits from now on"}
	case was == quota.ModePause:
		return []string{fmt.Sprintf("instances issue permits from the first window that starts %v after the change", settle)}
	}
	return []string{"refusals count from now on"}
}

func ahead(old, next quota.Policy, now time.Time) (lines []string) {
	lead := change.Lead(old, next) - protocol.AnnounceAhead // the write is over by now
	n := change.Current(next, now)
	if n.From.After(now) {
		n.Next = slices.Insert(n.Next, 0, quota.LimitChange{From: n.From, Limits: n.Limits})
	}
	words := func(c quota.LimitChange) string { return quota.FormatLimits(c.Limits) + " from " }
	for _, c := range n.Next {
		line := "announced: " + words(c) + "the first window that starts at " + format.Exact(c.From) + " or later, the same on every instance"
		switch {
		case slices.ContainsFunc(old.Next, func(o quota.LimitChange) bool { return o.From.Equal(c.From) && slices.Equal(o.Limits, c.Limits) }):
			line = "still announced: " + words(c) + format.Exact(c.From) + "; cancel removes it"
		case c.From.Before(now.Add(lead)):
			line += fmt.Sprintf("; that is less than %v ahead, so some permits may be lost", lead)
		}
		for _, l := range removed(protocol.LimitsAt(&next, c.From.UnixNano()-1), c.Limits) {
			if until := lasts(next, next, l, c.From.Add(-1)); until.After(c.From) {
				line += "; " + goes(l.String(), until, 0)
			}
		}
		lines = append(lines, line)
	}
	for _, c := range change.Current(old, now).Next {
		if !slices.ContainsFunc(n.Next, func(o quota.LimitChange) bool { return o.From.Equal(c.From) }) {
			lines = append(lines, "no longer announced: "+words(c)+format.Exact(c.From))
		}
	}
	return lines
}

// givesAll reports whether all limits' totals may only grow, and count at once.
func givesAll(old, next quota.Policy, now time.Time) bool {
	limits := protocol.LimitsAt(&next, now.UnixNano())
	return len(limits) > 0 && len(limits) == len(protocol.LimitsAt(&old, now.UnixNano())) &&
		!slices.ContainsFunc(limits, func(l quota.Limit) bool { return !gives(old, next, l, now) })
}

// inForce returns from when on a change that is made now counts in the whole fleet. It
// is now if the change gives, up to a millisecond later. Otherwise it is the first instant by which every limit
// has begun a window at or after at, the settle time from now where at is zero, and by
// which no removed limit binds any more. Where growth is held back for a window's reach, it
// is so much later.
func inForce(old, policy quota.Policy, at, now time.Time) time.Time {
	from := inForceOf(old, policy, at, now)
	was, will := protocol.OfKeys(&old), protocol.OfKeys(&policy)
	if was == nil {
		was = &quota.Policy{Timing: old.Timing}
	}
	if will == nil || slices.Equal(was.Limits, will.Limits) {
		return from
	}
	if keys := inForceOf(*was, *will, time.Time{}, now); keys.After(from) { // they are never announced
		from = keys
	}
	return from
}

// inForceOf is inForce of the provider's limits, or of those of keys.
func inForceOf(old, policy quota.Policy, at, now time.Time) time.Time {
	announced := !at.IsZero()
	if !announced {
		if givesAll(old, policy, now) {
			return now.Add(time.Millisecond - 1).Truncate(time.Millisecond).UTC()
		}
		at = now.Add(max(old.Settle, policy.Settle))
		if policy.From.After(at) {
			at = policy.From
		}
	}
	from, limits := at, protocol.LimitsAt(&policy, at.UnixNano())
	for _, l := range limits {
		if first := begins(old, policy, l, at); first.After(from) {
			from = first
		}
	}
	before, last := protocol.LimitsAt(&old, now.UnixNano()), at
	if announced { // no window that starts at that instant is limited any more
		last = at.Add(-1)
		before = protocol.LimitsAt(&policy, last.UnixNano())
	}
	for _, l := range removed(before, limits) {
		if ends := lasts(old, policy, l, last); ends.After(from) {
			from = ends
		}
	}
	return from.UTC()
}
