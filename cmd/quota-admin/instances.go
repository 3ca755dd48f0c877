package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

type instancesJSON struct {
	Provider string `json:"provider"`
	Revision int64  `json:"revision"`
	live.Status
	// Limit is the shortest one in force, which the shares are of; null where
	// none is.
	Limit     *limitJSON     `json:"limit"`
	Instances []instanceJSON `json:"instances"`
	// Left are those that have left with an unpaid debt within the last hour.
	Left []instanceJSON `json:"left,omitempty"`
}

type limitJSON struct {
	Permits int64   `json:"permits"`
	Window  float64 `json:"window_seconds"`
}

type instanceJSON struct {
	Incarnation string `json:"incarnation"`
	protocol.Instance
	// Share is of the shortest limit's window that runs now; null where no
	// policy is in force.
	Share *int64 `json:"share"`
	// Report is what the instance last told of itself, up to half a minute ago.
	Report  *reportJSON `json:"report"`
	Problem string      `json:"problem,omitempty"`
	// Explain is why it has its share: of explain, and with a policy in force.
	Explain *explanation `json:"explain,omitempty"`
}

// reportJSON is a report whose durations are numbers.
type reportJSON struct {
	*protocol.Report
	ClockError        *float64 `json:"clock_error,omitempty"` // never set: it hides the report's
	ProofAge          *float64 `json:"proof_age,omitempty"`   // likewise
	ClockErrorSeconds *float64 `json:"clock_error_seconds"`   // null: not known
	ProofAgeSeconds   *float64 `json:"proof_age_seconds"`     // null: there is no proof
}

func reportOf(r *protocol.Report) *reportJSON {
	if r == nil {
		return nil
	}
	return &reportJSON{Report: r, ClockErrorSeconds: live.Seconds(r.ClockError), ProofAgeSeconds: live.Seconds(r.ProofAge)}
}

type explanation struct {
	Why string `json:"why"`
}

func (a *app) instancesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "instances PROVIDER",
		Short: "Show the live instances: share, state, use, policy applied",
		Long: `Show the live instances of a provider. SHARE is computed from the policy and the
instances in etcd, for the running window of the shortest limit. The columns to the right of
it are from the instance's last report, REPORT-AGE ago. REFUSED does not count what limits by
key refuse: top --by key shows that. With -o wide there are more columns: incarnation, clock
and proof among them.`,
		Example: `  quota-admin instances payments/charge
  quota-admin instances payments/charge -o wide`,
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		f, err := fleetOf(ctx, etcd, args[0])
		if err != nil {
			return err
		}
		return a.showInstances(f, false, "", time.Now())
	})
}

func (a *app) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain PROVIDER [INSTANCE]",
		Short: "Show why instances have their shares, and what is held for whom",
		Long: `Show the reason for the share of each instance, or of those with that name or
incarnation: the rule that divides the limit, a start or an end that is announced, and
what the instance borrowed and lent in the last whole window before its report. Permits
of instances that crashed are held for them for the settle time: it says whose, and
until when.`,
		Example: `  quota-admin explain payments/charge
  quota-admin explain payments/charge worker-7`,
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		f, err := fleetOf(ctx, etcd, args[0])
		if err != nil {
			return err
		}
		only := ""
		if len(args) > 1 {
			only = args[1]
			if !slices.ContainsFunc(f.Instances, func(s protocol.InstanceStatus) bool { return is(&s.Instance, only) }) {
				return &fault{fmt.Errorf("%s has no live instance %s", args[0], only), admin.ErrNotFound,
					[]string{"quota-admin instances " + args[0] + " shows them"}}
			}
		}
		return a.showInstances(f, true, only, time.Now())
	})
}

// is reports whether an instance has that name or incarnation. Of a name that several have, it is
// each of these.
func is(i *protocol.Instance, name string) bool {
	return i.Name == name || i.ID == name || strings.HasPrefix(i.Name, name+" (")
}

func fleetOf(ctx context.Context, etcd connection, provider string) (*protocol.Fleet, error) {
	f, err := feed.Inside(etcd.Client).Fleet(ctx, provider)
	if err == nil && f.Policy.Revision == 0 && len(f.Instances) == 0 {
		err = fmt.Errorf("%s: %w", provider, admin.ErrNotFound)
	}
	return &f, err
}

// showInstances shows all instances, or only those of a name.
func (a *app) showInstances(f *protocol.Fleet, explain bool, only string, now time.Time) error {
	sum := live.StatusOf(f, now)
	data := &instancesJSON{Provider: f.Provider, Revision: f.Revision, Status: sum, Instances: []instanceJSON{}}
	for _, s := range f.Instances {
		data.Instances = append(data.Instances, instanceJSON{s.Instance.ID, s.Instance, knownOr(s.Share, s.ShareKnown), reportOf(s.Report), format.OneLine(s.Problem), nil})
	}
	for _, s := range f.Left {
		data.Left = append(data.Left, instanceJSON{s.Instance.ID, s.Instance, nil, reportOf(s.Report), "", nil})
	}
	if sum.Limit != nil && !protocol.Free(*sum.Limit) {
		data.Limit = &limitJSON{sum.Limit.Permits, sum.Limit.Window.Seconds()}
	}
	if explain {
		data.explain(f, now, sum.Limit)
	}
	if only != "" {
		data.Instances = slices.DeleteFunc(data.Instances, func(i instanceJSON) bool { return !is(&i.Instance, only) })
	}
	if sum.Problem != "" {
		a.note("the policy cannot be applied: %s", sum.Problem)
	}
	for _, line := range sum.Troubles {
		a.note("%s", line)
	}
	err := a.emit(data, func(w io.Writer) {
		switch {
		case len(data.Instances) == 0:
			return
		case explain:
			data.explained(w)
		case a.wide:
			data.wide(w, now)
		default:
			data.table(w, now)
		}
		fmt.Fprintln(w)
	})
	if a.format == format.Table && err == nil {
		fmt.Fprintln(a.stdout, sum.Line())
		if explain && len(f.Policy.Policy.Keys.Limits) > 0 {
			fmt.Fprintf(a.stdout, "calls for keys: quota-admin top %s --by key shows which are refused%s\n", f.Provider, live.LeftOfKey(&f.Policy.Policy, f.Provider))
		}
	}
	return err
}

func (d *instancesJSON) table(w io.Writer, now time.Time) {
	format.Row(w, "NAME", "SHARE", "STATE", "USED", "REFUSED", "WAITING", "POLICY", "REPORT-AGE")
	for _, i := range d.Instances {
		said := slices.Repeat([]string{"-"}, 6)
		if r := i.Report; r != nil {
			said = []string{format.Show(cause.Word(r.State, r.Debt)), fmt.Sprint(r.Used), fmt.Sprint(r.Refused), fmt.Sprint(r.Waiting), fmt.Sprint(r.PolicyRevision), age(r, now)}
		}
		format.Row(w, append([]string{format.Name(cmp.Or(i.Name, i.Incarnation)), number(i.Share)}, said...)...)
	}
}

// age is how long ago an instance reported.
func age(r *reportJSON, now time.Time) string {
	return max(0, now.Sub(r.Time)).Round(time.Second).String()
}

func (d *instancesJSON) wide(w io.Writer, now time.Time) {
	format.Row(w, "NAME", "INCARNATION", "SHARE", "STATE", "USED", "REFUSED", "SHADOWED", "WAITING", "DEBT", "APPLIED", "POLICY",
		"CLOCK-ERROR", "PROOF-AGE", "REPORT-AGE", "STARTED", "FROM", "UNTIL")
	for _, i := range d.Instances {
		said := slices.Repeat([]string{"-"}, 11)
		if r := i.Report; r != nil {
			said = []string{
				format.Show(cause.Word(r.State, r.Debt)), fmt.Sprint(r.Used), fmt.Sprint(r.Refused), fmt.Sprint(r.Shadowed), fmt.Sprint(r.Waiting), fmt.Sprint(r.Debt),
				fmt.Sprint(r.Revision), fmt.Sprint(r.PolicyRevision), format.Show(r.Report.ClockError), format.Show(r.Report.ProofAge), age(r, now),
			}
		}
		format.Row(w, slices.Concat([]string{format.Name(i.Name), format.Name(i.Incarnation), number(i.Share)}, said,
			[]string{format.When(i.Started), format.When(i.From), format.When(i.Until)})...)
	}
}

// explain finds out why every instance has its share of the running window of the
// shortest limit.
func (d *instancesJSON) explain(f *protocol.Fleet, now time.Time, limit *quota.Limit) {
	view := f.View()
	if view.Policy == nil || limit == nil {
		return
	}
	w := quota.WindowAt(limit.Window, now.UnixNano())
	known := map[quota.Window]map[string]int64{}
	sharesAt := func(at time.Time) map[string]int64 { // which instance has a permit more differs from window to window
		w := quota.WindowAt(limit.Window, at.UnixNano())
		if known[w] == nil {
			_, known[w], _ = share.Of(&view, w)
		}
		return known[w]
	}
	parts := 0
	for _, i := range view.Instances {
		if protocol.TakesPart(&i, w.Start()) {
			parts++
		}
	}
	for n, i := range view.Instances { // in the order of the fleet
		j := &d.Instances[n]
		x := &explanation{}
		j.Explain = x
		switch {
		case !i.From.IsZero() && i.From.UnixNano() > w.Start():
			x.Why = "takes part from " + format.Exact(begins(*view.Policy, *view.Policy, *limit, i.From))
		case !protocol.TakesPart(&i, w.Start()):
			x.Why = "has left"
		case view.Policy.Mode == quota.ModePause:
			x.Why = "paused"
		case protocol.Free(*limit):
			x.Why = takes(f.Budgets, j.Report)
		default:
			x.Why = fmt.Sprintf("one of %d equal parts", parts)
		}
		if r := j.Report; r != nil {
			x.Why += loans(r.Report) + debt(r.Report) + forgotten(r.Report)
			until := r.HeldUntil
			if until.IsZero() { // what it did not tell of is over by then
				until = lasts(*view.Policy, *view.Policy, *limit, r.Time.Add(view.Policy.Settle))
			}
			if !now.Before(until) {
				continue
			}
			if r.HeldFor != "" {
				x.Why += fmt.Sprintf("; permits are held for %s until %s", r.HeldFor, format.Exact(r.HeldUntil))
			}
			start := quota.WindowAt(limit.Window, r.Time.UnixNano()).Start()
			if !protocol.Shaped(view.Policy) && !r.WindowStart.IsZero() && r.WindowStart.UnixNano() != start {
				continue // it tells of a removed limit, which still binds
			}
			if r.PolicyRevision == d.PolicyRevision && !protocol.Free(*limit) && r.Share < sharesAt(r.Time)[i.ID] {
				x.Why += fmt.Sprintf("; its report, %s old, says %d", age(r, now), r.Share)
			}
		}
	}
}

// takes says what an instance has of long limits, which are not divided.
func takes(limits []protocol.BudgetUse, r *reportJSON) string {
	var has []string
	for i := range limits {
		if b := &limits[i]; r != nil {
			hand, used := r.InHand(&b.Budget)
			switch {
			case b.InFlight:
				has = append(has, fmt.Sprintf("%d of %v under way, %d in hand", used, b.Limit, hand))
			case b.Sliding: // the report has what was used of the part of time that runs alone
				has = append(has, fmt.Sprintf("%d of %v in hand", hand, b.Limit))
			default:
				has = append(has, fmt.Sprintf("%d of %v used, %d in hand", used, b.Limit, hand))
			}
		}
	}
	return strings.TrimSuffix("takes what its calls need: "+strings.Join(has, "; "), ": ")
}

// forgotten says how many calls in flight were never ended; "" if none.
func forgotten(r *protocol.Report) string {
	if r.Forgotten == 0 {
		return ""
	}
	return fmt.Sprintf("; %s (%d since it began)", cause.Forgotten, r.Forgotten)
}

// debt says what an instance owes, and about until when; "" if nothing.
func debt(r *protocol.Report) (text string) {
	if r.Debt == 0 {
		return ""
	}
	text = fmt.Sprintf("; pays a debt of %d", r.Debt)
	if !r.DebtUntil.IsZero() {
		text += " until about " + format.Exact(r.DebtUntil)
	}
	return text
}

// loans says what an instance borrowed and lent; "" if nothing.
func loans(r *protocol.Report) (text string) {
	if r.Borrowed > 0 {
		text = fmt.Sprintf("; borrowed %d from %s in its last window", r.Borrowed, format.Count(r.Hosts, "instance"))
	}
	if r.Lent > 0 {
		text += fmt.Sprintf("; lent %d to %s in its last window", r.Lent, format.Count(r.Guests, "instance"))
	}
	return text
}

func (d *instancesJSON) explained(w io.Writer) {
	format.Row(w, "NAME", "INCARNATION", "SHARE", "WHY")
	for _, i := range d.Instances {
		x := i.Explain
		if x == nil {
			x = &explanation{Why: "no policy is in force"}
		}
		format.Row(w, format.Name(i.Name), format.Name(i.Incarnation), number(i.Share), x.Why)
	}
}

// sharesJSON is what a dry run shows: every instance's share of one window, by
// the policy that is set and by the one that would be.
type sharesJSON struct {
	// Start and Window are of the new policy's shortest limit.
	Start     time.Time          `json:"start"`
	Window    float64            `json:"window_seconds"`
	OldTotal  *int64             `json:"old_total"` // null: no limit of that length
	NewTotal  *int64             `json:"new_total"`
	Instances []instanceShareNew `json:"instances"`
	// Keys are the shares of each key, by the new policy.
	Keys []keyShare `json:"keys,omitempty"`

	window time.Duration
}

// keyShare is how many permits of one key an instance has in a window, or one of its owners.
// The remainder goes to other instances for other keys.
type keyShare struct {
	Limit  string `json:"limit"`
	Least  int64  `json:"least"`
	Most   int64  `json:"most"`
	Owners int64  `json:"owners,omitempty"`
	// Shared says that instances take what they need of the limit, which is of more than a minute:
	// each can have it all. Then Least is 0.
	Shared bool `json:"shared,omitempty"`
}

type instanceShareNew struct {
	Incarnation string `json:"incarnation"`
	Name        string `json:"name"`
	Old         *int64 `json:"old_share"`
	New         *int64 `json:"new_share"`
}

// compareShares computes the shares of the window that starts at the instant
// from, for the live instances.
func compareShares(f *protocol.Fleet, policy quota.Policy, from time.Time) *sharesJSON {
	limits := protocol.LimitsAt(&policy, from.UnixNano())
	if len(limits) == 0 {
		limits = protocol.Short(&policy)
	}
	w := quota.WindowAt(limits[0].Window, from.UnixNano())
	c := &sharesJSON{Start: time.Unix(0, w.Start()).UTC(), Window: w.Length.Seconds(), window: w.Length, Instances: []instanceShareNew{}}
	divide := func(p *quota.Policy) (total *int64, shares map[string]int64) {
		v := f.View()
		if v.Policy = p; p == nil {
			return nil, nil
		}
		n, shares, known := share.Of(&v, w)
		return knownOr(n, known && !protocol.Free(quota.Limit{Permits: n, Window: w.Length})), shares
	}
	var before, after map[string]int64
	c.OldTotal, before = divide(f.View().Policy)
	c.NewTotal, after = divide(&policy)
	n := int64(0)
	for _, s := range f.Instances {
		id := s.Instance.ID
		n++
		c.Instances = append(c.Instances, instanceShareNew{id, s.Instance.Name, knownOr(before[id], c.OldTotal != nil), knownOr(after[id], c.NewTotal != nil)})
	}
	for _, l := range policy.Keys.Limits {
		k := keyShare{Limit: l.String()}
		if policy.Keys.Owners > 0 {
			k.Owners = min(n, policy.Keys.Owners)
		}
		if by := cmp.Or(k.Owners, n); by > 0 {
			k.Least, k.Most = l.Permits/by, (l.Permits+by-1)/by
			if k.Shared = l.Long(); k.Shared {
				k.Least, k.Most, k.Owners = 0, l.Permits, 0
			}
			c.Keys = append(c.Keys, k)
		}
	}
	return c
}

func knownOr(n int64, known bool) *int64 {
	if !known {
		return nil
	}
	return &n
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func (c *sharesJSON) table(w io.Writer) {
	divided := c.OldTotal != nil || c.NewTotal != nil
	if divided {
		fmt.Fprintf(w, "shares of the window of %s that starts at %s: total %s -> %s, %s\n",
			c.window, format.Exact(c.Start), number(c.OldTotal), number(c.NewTotal), format.Count(len(c.Instances), "instance"))
	} else {
		fmt.Fprintf(w, "nothing is divided: instances take what their calls need, %s\n", format.Count(len(c.Instances), "instance"))
	}
	if len(c.Instances) == 0 {
		return
	}
	for _, k := range c.Keys {
		who := "an instance"
		switch {
		case k.Shared:
			fmt.Fprintf(w, "each key: %s, of which any instance can have all that the others have not used\n", k.Limit)
			continue
		case k.Owners > 1:
			who = fmt.Sprintf("each of %d owners", k.Owners)
		case k.Owners == 1:
			who = "its owner"
		}
		fmt.Fprintf(w, "each key: %s, of which %s has %d to %d permits\n", k.Limit, who, k.Least, k.Most)
	}
	if !divided {
		return
	}
	format.Row(w, "NAME", "INCARNATION", "SHARE", "NEW-SHARE")
	for _, i := range c.Instances {
		format.Row(w, format.Name(i.Name), format.Name(i.Incarnation), number(i.Old), number(i.New))
	}
}
