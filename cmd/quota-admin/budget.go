package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

type budgetJSON struct {
	Limit string    `json:"limit"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// HandedOut is what instances have taken and not given back. Used and InHand are what those
	// that run have issued of it, and may issue still, by their reports. Rest is all else: what was
	// used since these reports or elsewhere, by the provider's count, and what instances that ended, or that had no answer
	// in time, have taken. It is null while something is
	// withheld: HandedOut may then lack what was handed out before etcd was restored.
	HandedOut int64      `json:"handed_out"`
	Used      int64      `json:"used"`
	InHand    int64      `json:"in_hand"`
	Rest      *int64     `json:"rest"`
	RestBack  time.Time  `json:"rest_back,omitzero"` // when all of Rest can be had again, at the latest; zero without a Rest
	Left      int64      `json:"left"`
	Withheld  string     `json:"withheld,omitempty"`
	Writes    int64      `json:"transactions"`
	Instances []handJSON `json:"instances"`
	statedJSON
	// Rate is how many permits a second the fleet issues; null if no reports tell. At this
	// rate the limit is used up at Exhausted, if its window does not end before.
	Rate      *float64  `json:"issued_per_second"`
	Exhausted time.Time `json:"exhausted,omitzero"`

	window   protocol.Budget
	resumes  int64 // when nothing is withheld any more, if nobody gives a count; 0 if that is not known
	total    escrow.Total
	revision int64 // of the total's key
	at       int64 // revision of etcd at which the total was read
	cluster  uint64
	key      string
	counts   int64 // a count that is given now has what limits had that went before: escrow.Total.CarriedTo
}

// handJSON is what an instance has of a window by its report; null where it has told nothing. What it has used of a limit
// that slides it does not tell.
type handJSON struct {
	Instance string `json:"instance"`
	InHand   *int64 `json:"in_hand"`
	Used     *int64 `json:"used"`
}

const budgetHelp = `Show what is left of each limit of more than a minute. Instances fetch its permits from
etcd, some at a time, and report within 30 s what became of them. Of the running window it shows:

  Handed out     permits that were fetched, and how many are left
  Used           those of them that instances have issued, by their reports
  In hand        those that they have not issued yet, by their reports
  Rest           those that no report tells of: used since the reports, counted by --used, or lost
                 by a crash or a late answer of etcd; and when they are back
  Foreseen       when the limit is used up, at the rate of the last seconds
  Transactions   how often etcd's count was written, as each time that an instance fetches permits

Of a limit in flight "Under way" are calls that are open, in place of Used. Of one that slides all
that is not in hand is used. With --key it shows what was handed out of one key.

--used N gives the provider's own count of the window. After a restore of etcd nothing more is
handed out before that, unless the limit slides or is in flight: such a limit goes on by itself
later. The window then counts N, and the permits in the hands of the instances that run. Each of
them has to report first, which takes a few seconds: read that count just before, and add what the
fleet issues in ten seconds, as top shows it. N is refused if they have used more of the window. A
later count replaces an earlier one. Of a limit in flight N is how many calls are open: "Under way"
may lack those from before a restore. N places stay taken for up to one and a half holds, or until
another count is given.

Counts of keys are given once top shows all instances as active: of one by --key KEY --used N,
of several by --keys-file FILE. --keys-unused says that all other keys used nothing that etcd
does not count. --withhold says that etcd was restored, where instances do not find that out: the
backup lacks the provider, or etcd has its old cluster token. It withholds the running windows,
also what etcd counts of them. Give it once for each restore: counts that were given before it
are to be given again.`

func (a *app) budgetCommand() *cobra.Command {
	var k keyCounts
	used, of := int64(-1), ""
	cmd := &cobra.Command{
		Use:   "budget PROVIDER",
		Short: "Show and correct the permits taken of limits per hour, day or month",
		Long:  budgetHelp,
		Example: `  quota-admin budget payments/charge
  quota-admin budget payments/charge --used 1200 --limit 5000/h
  quota-admin budget github --key installation-4711 --used 31
  quota-admin budget github --keys-file counts.txt --limit 5000/h
  quota-admin budget github --keys-unused`,
	}
	addFlag(a, cmd, &used, "used", whole(0, quota.MaxPermits), "`N` permits were used in the window, by the provider's count")
	cmd.Flags().StringVar(&of, "limit", "", "the `LIMIT` that the counts are of, if there are several")
	cmd.Flags().StringVar(&k.key, "key", "", "show `KEY`, or give its count by --used")
	cmd.Flags().StringVar(&k.file, "keys-file", "", "give the counts of keys in `FILE`, with a key and a number in each line; - is the standard input")
	cmd.Flags().BoolVar(&k.unused, "keys-unused", false, "all keys without a count by --key or --keys-file used only what etcd counts")
	cmd.Flags().BoolVar(&k.withhold, "withhold", false, "hand out nothing more in the running windows until counts are given: etcd may have lost what was taken")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return k.check(cmd, used >= 0, of) }
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		if k.any() {
			return a.budgetOfKeys(ctx, etcd, args[0], &k, used)
		}
		w := live.NewWatcher(etcd.Client, 1)
		defer w.Close()
		rate, err := w.Rate(ctx, args[0], ratesWithin)
		if err != nil {
			return err
		}
		read := func() ([]*budgetJSON, []keysBudgetJSON, error) {
			ctx, cancel := context.WithTimeout(ctx, a.etcd.CommandTimeout)
			defer cancel()
			return a.budgets(ctx, etcd, args[0])
		}
		all, keys, err := read()
		if err != nil {
			return err
		}
		if used >= 0 {
			chosen, err := chosenBudget(all, of)
			if err != nil {
				return usageError(cmd, "%v", err)
			}
			if err := chosen.correct(ctx, w, etcd.client, args[0], used); err != nil {
				return err
			}
			if all, keys, err = read(); err != nil {
				return err
			}
		}
		foresee(all, rate)
		shown := map[string]any{"provider": args[0], "budgets": all}
		if len(keys) > 0 {
			shown["keys"] = keys
		}
		return a.emit(shown, func(w io.Writer) { budgetTables(w, args[0], all, keys) })
	})
}

// foresee notes the rate of the last seconds, if that is known, and when it uses the limits up.
func foresee(all []*budgetJSON, rate *float64) {
	for _, b := range all {
		if b.Rate = rate; rate != nil {
			b.Exhausted = b.use().Exhausted(*rate, time.Now())
		}
	}
}

func budgetTables(w io.Writer, provider string, all []*budgetJSON, keys []keysBudgetJSON) {
	for _, b := range all {
		b.table(w)
	}
	for _, b := range keys {
		b.table(w, provider)
	}
}

// chosenBudget returns the only one of the budgets, or that of a limit, which need not say when its windows
// begin or that it slides.
func chosenBudget(all []*budgetJSON, limit string) (*budgetJSON, error) {
	var windows []protocol.Budget
	for _, b := range all {
		plain := b.window.Limit
		plain.Phase, plain.Sliding = 0, false
		if limit == b.Limit || limit == plain.String() || limit == "" && len(all) == 1 {
			return b, nil
		}
		windows = append(windows, b.window)
	}
	switch has := "there are " + windowsOf(windows); {
	case len(all) == 0:
		return nil, errors.New("--used is the count of the provider, and only its keys have a limit of more than a minute: give those of keys, by --key KEY --used N or by --keys-file FILE")
	case limit == "":
		return nil, fmt.Errorf("--used is of one limit, and %s: name it by --limit", has)
	default:
		return nil, fmt.Errorf("--limit %s is none of the provider's: %s", limit, has)
	}
}

// budgets reads a provider's limits of more than a minute, and what a restore withholds of those
// of its keys.
func (a *app) budgets(ctx context.Context, etcd connection, provider string) ([]*budgetJSON, []keysBudgetJSON, error) {
	k, err := keys.New(a.etcd.Prefix)
	if err != nil {
		return nil, nil, err
	}
	s, err := etcd.Get(ctx, provider)
	if err != nil {
		return nil, nil, err
	}
	fleet, err := feed.Inside(etcd.Client).Fleet(ctx, provider)
	if err != nil {
		return nil, nil, err
	}
	p, now := s.Policy.WithDefaults(), time.Now().UnixNano()
	ofKeys := protocol.KeyBudgetsAt(&p, now)
	if len(protocol.Long(&p))+len(ofKeys) == 0 {
		return nil, nil, fmt.Errorf("%s has no limit of more than a minute, such as 5000/h, and none in flight: add one with quota-admin set", provider)
	}
	was, err := readWas(ctx, etcd.client, k.BudgetsBefore(provider))
	if err != nil {
		return nil, nil, err
	}
	all := []*budgetJSON{}
	for _, w := range protocol.BudgetsAt(&p, now) {
		b := &budgetJSON{Limit: w.String(), Start: time.Unix(0, w.Shown()).UTC(), End: time.Unix(0, w.End).UTC(), Instances: []handJSON{}, window: w, counts: protocol.CarriedTo(was, &w, "")}
		if err := b.read(ctx, etcd.client, k, provider, fleet.Instances); err != nil {
			return nil, nil, etcdcall.Wrap(ctx, "read the budgets of "+provider, err)
		}
		all = append(all, b)
	}
	if len(ofKeys) == 0 {
		return all, nil, nil
	}
	mark, err := readMark(ctx, etcd.client, k.BudgetMark(provider))
	if err != nil {
		return nil, nil, err
	}
	var withheld []keysBudgetJSON
	for _, w := range ofKeys {
		withheld = append(withheld, keysBudgetJSON{w.String(), time.Unix(0, w.Shown()).UTC(), time.Unix(0, w.End).UTC(), mark.Seen(w.Since(), true).Lost, w.Sliding})
	}
	return all, withheld, nil
}

func (b *budgetJSON) read(ctx context.Context, client *clientv3.Client, k keys.Layout, provider string, instances []protocol.InstanceStatus) error {
	w := b.window
	b.key = k.BudgetTotal(provider, w.Name(), w.TotalStart())
	r, err := client.Txn(ctx).Then(clientv3.OpGet(b.key), clientv3.OpGet(k.BudgetMark(provider))).Commit()
	if err != nil {
		return err
	}
	b.cluster, b.at = r.Header.ClusterId, r.Header.Revision
	found := purseOf(r.Responses[0].GetResponseRange(), w.Part(), markIn(r.Responses[1].GetResponseRange(), b.cluster).Seen(w.Since(), false), time.Now().UnixNano())
	b.total, b.revision = found.Total(), found.Revision()
	for _, s := range instances {
		h := handJSON{Instance: cmp.Or(s.Instance.Name, s.Instance.ID)}
		if s.Report != nil {
			hand, used := s.Report.InHand(&w)
			if h.InHand = &hand; !w.Sliding { // of one that slides, the report has the part of time that runs alone
				h.Used = &used
			}
			b.InHand, b.Used = b.InHand+hand, b.Used+used
		}
		b.Instances = append(b.Instances, h)
	}
	b.Withheld, b.resumes, b.Left = found.Withheld(), found.Resumes(&w), found.Left(w.Permits)
	b.HandedOut, b.Writes, b.statedJSON = found.Out(), b.total.Writes, statedOf(&found, w.Permits)
	if w.Sliding {
		b.Used = max(0, b.HandedOut-b.InHand)
	}
	if w.InFlight && b.Withheld == "" {
		b.Used, b.InHand = live.Told(b.HandedOut, b.Used, b.InHand)
	}
	if rest := max(0, b.HandedOut-b.Used-b.InHand); b.Withheld == "" {
		if b.Rest = &rest; rest > 0 {
			b.RestBack = time.Unix(0, b.total.Back(&w)).UTC()
		}
	}
	b.total.Limit = w.Permits
	return nil
}

// use is the budget as top knows it.
func (b *budgetJSON) use() live.Budget {
	return live.BudgetOf(&protocol.BudgetUse{Budget: b.window, Left: b.Left}, nil)
}

// errTaken is returned where a count was changed between reading and writing it, as often as it was
// tried.
var errTaken = fmt.Errorf("instances took permits at the same moment, %d times: try again", correctTries)

// correctTries is how often a count is read and written, while others write it too.
const correctTries = 3

// toldWithin is how long instances have for reports that tell what they have in hand: they learn
// within 2 s that somebody looks, and then report each second.
const toldWithin = 20 * time.Second

// correct writes what was used. What the instances that run have in hand counts too: what they
// tell in reports of a time when the total had been read, and all that was taken of it since.
func (b *budgetJSON) correct(ctx context.Context, w *live.Watcher, client *clientv3.Client, provider string, used int64) error {
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	hand, issued, err := b.handsTold(ctx, w, provider)
	if err != nil {
		return err
	}
	if used < issued {
		return refused(fmt.Errorf("the instances of %s that run have used %d of %s by their own counts, so %d is too few, and nothing was changed: give the provider's count, read just before, and no less than theirs",
			provider, issued, b.Limit, used))
	}
	since := client.Watch(ctx, b.key, clientv3.WithRev(b.at+1))
	lease := clientv3.WithIgnoreLease()
	for range correctTries {
		if seconds := b.window.Lease(b.revision); seconds > 0 {
			l, err := client.Grant(ctx, seconds)
			if err != nil {
				return etcdcall.Wrap(ctx, "correct the budget", err)
			}
			lease = clientv3.WithLease(l.ID)
		}
		text, err := escrow.Encode(b.total.Corrected(used, hand, b.counts, b.window.Part(), b.cluster))
		if err != nil {
			return err
		}
		r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(b.key), "=", b.revision)).
			Then(clientv3.OpPut(b.key, text, lease)).Else(clientv3.OpGet(b.key)).Commit()
		switch {
		case err != nil:
			return etcdcall.Wrap(ctx, "correct the budget", err)
		case r.Succeeded:
			return nil
		case r.Header.ClusterId != b.cluster:
			return errors.New("etcd was restored meanwhile (it has another cluster ID), and nothing was changed: try again")
		case len(r.Responses[0].GetResponseRange().Kvs) == 0:
			return errors.New("the window's total is gone from etcd, and nothing was changed: the window has ended, or etcd was restored: try again")
		}
		taken, err := b.follow(since, r.Responses[0].GetResponseRange().Kvs[0].ModRevision)
		if err != nil {
			return etcdcall.Wrap(ctx, "correct the budget", err)
		}
		hand, lease = hand+taken, clientv3.WithIgnoreLease()
	}
	return errTaken
}

// handsTold returns how many permits the instances have in hand, and have issued: everything counts that was taken
// by b.at. An instance that joins later has taken later.
func (b *budgetJSON) handsTold(ctx context.Context, w *live.Watcher, provider string) (hand, issued int64, err error) {
	for {
		p, err := w.Look(ctx, provider)
		if err != nil {
			return 0, 0, err
		}
		hand, issued, missing := int64(0), int64(0), ""
		for _, s := range p.Fleet.Instances {
			if r := s.Report; r == nil || r.Store != b.cluster || r.Known < b.at || r.PolicyRevision != p.Fleet.Policy.Revision {
				missing = cmp.Or(s.Instance.Name, s.Instance.ID)
				continue
			}
			h, u := s.Report.InHand(&b.window)
			hand, issued = hand+h, issued+u
		}
		if missing == "" {
			return hand, issued, nil
		}
		select {
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("instance %s has not reported within %v what it has in hand, and nothing was changed: "+
				"it hangs, may not write reports, or is of an earlier version: try again, or end it first", format.Show(missing), toldWithin)
		case <-time.After(lookEvery):
		}
	}
}

// lookEvery is how often handsTold looks: reports come once a second.
const lookEvery = 500 * time.Millisecond

// follow takes the total's states from a watch, up to that of a revision. It returns how many
// permits were taken meanwhile. What was given back is no less in hand: the reports may not have it
// any more.
func (b *budgetJSON) follow(since clientv3.WatchChan, revision int64) (taken int64, err error) {
	for b.revision < revision {
		r, ok := <-since
		if err := r.Err(); err != nil || !ok {
			return 0, cmp.Or(err, context.DeadlineExceeded)
		}
		for _, e := range r.Events {
			next := escrow.ReadTotal(e.Kv.Value, b.cluster)
			taken += max(0, next.Out-b.total.Out)
			b.total, b.revision = next, e.Kv.ModRevision
		}
	}
	b.total.Limit = b.window.Permits
	return taken, nil
}

// spanOf says which window of a limit is shown: the one until an instant, or any.
func spanOf(sliding bool, end time.Time) string {
	if sliding {
		return "wherever it begins"
	}
	return "until " + format.Exact(end)
}

// reported is what the instances have used and have in hand by their reports.
func (b *budgetJSON) reported() (n int64) {
	for _, h := range b.Instances {
		if h.InHand != nil && h.Used != nil {
			n += *h.InHand + *h.Used
		}
	}
	return n
}

func (b *budgetJSON) table(w io.Writer) {
	span, used := spanOf(b.window.ByParts(), b.End), "Used"
	if b.window.InFlight {
		span, used = "at any time", "Under way"
	}
	format.Row(w, b.Limit, span)
	format.Row(w, "Handed out", fmt.Sprintf("%d of %d, %d left", b.HandedOut, b.total.Limit, b.Left))
	if b.HandedOut > b.total.Limit {
		format.Row(w, "", "more than the limit: nothing more is handed out")
	}
	rest, count := "not known: etcd may not count all that was handed out", fmt.Sprint(b.Used)
	if b.window.Sliding && b.Withheld != "" { // it is no instance's count, but what etcd counts
		count = rest
	}
	b.statedJSON.table(w, "the provider's count")
	format.Row(w, used, count)
	if b.Used > b.HandedOut && b.Withheld == "" && !b.window.ByParts() {
		format.Row(w, "", "more than was handed out: quota-admin doctor tells whether etcd has lost counts")
	}
	format.Row(w, "In hand", fmt.Sprint(b.InHand))
	if b.reported() > b.Used+b.InHand && b.window.InFlight {
		format.Row(w, "", "the reports below are of different times: a place that went from one instance to another is in both")
	}
	if b.Rest != nil {
		rest = fmt.Sprint(*b.Rest)
	}
	switch {
	case b.RestBack.IsZero():
	case b.window.InFlight:
		rest += ", " + cause.Stranded
	default:
		rest += ", used since the last reports or elsewhere, or lost by a crash or a late answer of etcd: back at " + format.Exact(b.RestBack)
	}
	format.Row(w, "Rest", rest)
	if b.Rate != nil && b.Left > 0 && b.Withheld == "" && !b.window.ByParts() {
		format.Row(w, "Foreseen", cmp.Or(b.use().Foretell(*b.Rate, time.Now()), fmt.Sprintf("at %.4g/s, it lasts until its window ends", *b.Rate)))
	}
	format.Row(w, "Transactions", fmt.Sprint(b.Writes))
	if b.Withheld != "" {
		why, count := b.Withheld, "give the provider's count by --used N"
		if b.resumes != 0 {
			why = "until " + cause.Until(b.window.Limit, format.Latest(time.Unix(0, b.resumes))) + ", because " + why
		}
		if b.window.InFlight {
			count = "give by --used N how many calls are open now, to go on sooner"
		}
		format.Row(w, "Withheld", why+"; "+count)
	}
	if len(b.Instances) > 0 {
		format.Row(w, "INSTANCE", strings.ToUpper(used), "IN HAND")
	}
	for _, h := range b.Instances {
		if h.InHand == nil {
			format.Row(w, format.Show(h.Instance), "has not reported", "")
			continue
		}
		format.Row(w, format.Show(h.Instance), number(h.Used), fmt.Sprint(*h.InHand))
	}
}
