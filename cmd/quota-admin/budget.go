package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcderr"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

type budgetJSON struct {
	Limit string    `json:"limit"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// HandedOut is what instances have taken and not given back. Used is what they have
	// told of it, up to 10 s ago; the rest is in hand, or stranded with those that ended.
	HandedOut int64         `json:"handed_out"`
	Used      int64         `json:"used"`
	InHand    int64         `json:"in_hand"`
	Stranded  int64         `json:"stranded"`
	Elsewhere int64         `json:"elsewhere"` // used by others, by the provider's count
	Left      int64         `json:"left"`
	Withheld  string        `json:"withheld,omitempty"`
	Writes    int64         `json:"transactions"`
	Holdings  []holdingJSON `json:"holdings"`
	// Rate is how many permits a second the fleet issues; null if no reports tell. At this
	// rate the limit is used up at Exhausted, if its window does not end before.
	Rate      *float64  `json:"issued_per_second"`
	Exhausted time.Time `json:"exhausted,omitzero"`

	total    escrow.Total
	revision int64
	cluster  uint64
	alive    []escrow.Holding
	key      string
}

type holdingJSON struct {
	Instance string `json:"instance"`
	Taken    int64  `json:"taken"`
	Used     int64  `json:"used"`
	Ended    bool   `json:"ended"` // the instance is gone
}

func (a *app) budgetCommand() *cobra.Command {
	var k keyCounts
	used, of := int64(-1), ""
	cmd := &cobra.Command{
		Use:   "budget PROVIDER",
		Short: "Show and correct the permits taken of limits per hour, day or month",
		Long: `Show, for each limit of more than a minute, the permits of the running window: those
handed out, used (by reports up to 10 s old), in the hands of each instance, stranded
with instances that ended, and used elsewhere, by the provider's count. While instances
run, say when the limit is used up at the rate of the last seconds. With --key, show
those of one key.

With --used N the window counts N permits as used, by the provider's count, and the
permits in the hands of living instances. It ends the withholding after a restore of
etcd.

The same is done for keys, once top shows all instances as active. --key KEY --used N and
--keys-file FILE give the counts of single keys. --keys-unused says that all other keys
used nothing that etcd does not count. --withhold withholds the running windows of a
provider that came after the backup, before instances take permits of it.`,
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
	cmd.Flags().BoolVar(&k.unused, "keys-unused", false, "no key used anything that etcd does not count, nor was given a count")
	cmd.Flags().BoolVar(&k.withhold, "withhold", false, "etcd may have lost what was taken: withhold the running windows until counts are given")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return k.check(cmd, used >= 0, of) }
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		if k.any() {
			return a.budgetOfKeys(ctx, etcd, args[0], &k, used)
		}
		w := live.NewWatcher(etcd.Admin, 1)
		rate, err := w.Rate(ctx, args[0], ratesWithin)
		w.Close()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, a.etcd.CommandTimeout)
		defer cancel()
		all, keys, err := a.budgets(ctx, etcd, args[0])
		if err != nil {
			return err
		}
		if used >= 0 {
			for taken, try := true, 1; taken; try++ {
				chosen := chosenBudget(all, of)
				if chosen == nil {
					return usageError(cmd, "--used is of one limit: name it by --limit")
				}
				err := chosen.correct(ctx, etcd.client, used)
				if taken = errors.Is(err, errTaken) && try < correctTries; err != nil && !taken {
					return err
				}
				if all, keys, err = a.budgets(ctx, etcd, args[0]); err != nil {
					return err
				}
			}
		}
		for _, b := range all {
			if b.Rate = rate; rate != nil {
				b.Exhausted = b.use().Exhausted(*rate, time.Now())
			}
		}
		shown := map[string]any{"provider": args[0], "budgets": all}
		if len(keys) > 0 {
			shown["keys"] = keys
		}
		return a.emit(shown, func(w io.Writer) { budgetTables(w, args[0], all, keys) })
	})
}

func budgetTables(w io.Writer, provider string, all []*budgetJSON, keys []keysBudgetJSON) {
	for _, b := range all {
		b.table(w)
	}
	for _, b := range keys {
		b.table(w, provider)
	}
}

// chosenBudget returns the only one of the budgets, or the one of a limit; nil if that is none or
// several.
func chosenBudget(all []*budgetJSON, limit string) *budgetJSON {
	chosen := slices.DeleteFunc(slices.Clone(all), func(b *budgetJSON) bool { return limit != "" && b.Limit != limit })
	if len(chosen) != 1 {
		return nil
	}
	return chosen[0]
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
	p, now := s.Policy.WithDefaults(), time.Now().UnixNano()
	ofKeys := protocol.KeyBudgetsAt(&p, now)
	if len(protocol.Long(&p))+len(ofKeys) == 0 {
		return nil, nil, fmt.Errorf("%s has no limit of more than a minute, such as 5000/h: add one with quota-admin set", provider)
	}
	all := []*budgetJSON{}
	for _, w := range protocol.BudgetsAt(&p, now) {
		b := &budgetJSON{Limit: w.String(), Start: time.Unix(0, w.Start).UTC(), End: time.Unix(0, w.End).UTC(), Holdings: []holdingJSON{}}
		if err := b.read(ctx, etcd.client, k, provider, w); err != nil {
			return nil, nil, etcderr.Wrap(ctx, "read the budgets of "+provider, err)
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
		withheld = append(withheld, keysBudgetJSON{w.String(), time.Unix(0, w.Start).UTC(), time.Unix(0, w.End).UTC(), mark.Seen(w.Start, true).Lost})
	}
	return all, withheld, nil
}

func (b *budgetJSON) read(ctx context.Context, client *clientv3.Client, k keys.Layout, provider string, w protocol.Budget) error {
	b.key = k.BudgetTotal(provider, w.Name(), w.Start)
	folder := k.BudgetHoldings(provider, w.Name(), w.Start)
	r, err := client.Txn(ctx).Then(clientv3.OpGet(b.key), clientv3.OpGet(folder, clientv3.WithPrefix()),
		clientv3.OpGet(k.Instances(provider), clientv3.WithPrefix(), clientv3.WithKeysOnly()), clientv3.OpGet(k.BudgetMark(provider))).Commit()
	if err != nil {
		return err
	}
	b.cluster = r.Header.ClusterId
	b.total = escrow.Total{Limit: w.Permits, Cluster: b.cluster}
	for _, kv := range r.Responses[0].GetResponseRange().Kvs {
		if b.revision = kv.ModRevision; b.revision != 0 {
			b.total = escrow.ReadTotal(kv.Value, b.cluster)
			b.total.Limit = cmp.Or(b.total.Limit, w.Permits)
		}
	}
	instances := map[string]bool{}
	for _, kv := range r.Responses[2].GetResponseRange().Kvs {
		if id, ok := keys.IncarnationIn(k.Instances(provider), string(kv.Key)); ok {
			instances[id] = true
		}
	}
	for _, kv := range r.Responses[1].GetResponseRange().Kvs {
		h, err := escrow.Decode[escrow.Holding](kv.Value)
		if err != nil {
			return err
		}
		ended := !instances[h.By]
		if b.Used += h.Used; ended {
			b.Stranded += h.Taken - h.Used
		} else {
			b.InHand += h.Taken - h.Used
			b.alive = append(b.alive, h)
		}
		b.Holdings = append(b.Holdings, holdingJSON{h.By, h.Taken, h.Used, ended})
	}
	f := escrow.Reading{Store: *markIn(r.Responses[3].GetResponseRange(), b.cluster).Seen(w.Start, false), Total: b.total, TotalRevision: b.revision}
	b.Withheld = f.Withheld()
	b.HandedOut, b.Writes = b.total.Out, b.total.Writes
	b.Elsewhere = max(0, b.HandedOut-b.Used-b.InHand-b.Stranded)
	if b.Withheld == "" {
		b.Left = max(0, w.Permits-b.HandedOut)
	}
	b.total.Limit = w.Permits
	return nil
}

// use is the budget as top knows it.
func (b *budgetJSON) use() live.Budget {
	return live.Budget{Limit: b.Limit, Permits: b.total.Limit, Left: b.Left, End: b.End}
}

// errTaken is returned where a count was changed between reading and writing it, as often as it was
// tried.
var errTaken = fmt.Errorf("instances took permits at the same moment, %d times: try again", correctTries)

// correctTries is how often a count is read and written, while others write it too.
const correctTries = 3

// correct writes what was used, unless somebody else writes at the same moment.
func (b *budgetJSON) correct(ctx context.Context, client *clientv3.Client, used int64) error {
	lease := clientv3.WithIgnoreLease()
	if b.revision == 0 {
		l, err := client.Grant(ctx, 2*int64(b.End.Sub(b.Start).Seconds()))
		if err != nil {
			return etcderr.Wrap(ctx, "correct the budget", err)
		}
		lease = clientv3.WithLease(l.ID)
	}
	text, err := escrow.Encode(b.total.Corrected(used, b.alive, b.cluster))
	if err != nil {
		return err
	}
	r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(b.key), "=", b.revision)).
		Then(clientv3.OpPut(b.key, text, lease)).Commit()
	if err == nil && !r.Succeeded {
		return errTaken
	}
	return etcderr.Wrap(ctx, "correct the budget", err)
}

func (b *budgetJSON) table(w io.Writer) {
	format.Row(w, b.Limit, "until "+format.Exact(b.End))
	format.Row(w, "Handed out", fmt.Sprintf("%d of %d, %d left", b.HandedOut, b.total.Limit, b.Left))
	if b.HandedOut > b.total.Limit {
		format.Row(w, "", "more than the limit: nothing more is handed out")
	}
	format.Row(w, "Used", fmt.Sprint(b.Used))
	format.Row(w, "In hand", fmt.Sprint(b.InHand))
	format.Row(w, "Stranded", fmt.Sprint(b.Stranded))
	format.Row(w, "Elsewhere", fmt.Sprint(b.Elsewhere))
	if b.Rate != nil && b.Withheld == "" {
		format.Row(w, "Foreseen", cmp.Or(b.use().Foretell(*b.Rate, time.Now()), fmt.Sprintf("at %.4g/s, it lasts until its window ends", *b.Rate)))
	}
	format.Row(w, "Transactions", fmt.Sprint(b.Writes))
	if b.Withheld != "" {
		format.Row(w, "Withheld", b.Withheld+": give the provider's count by --used N")
	}
	if len(b.Holdings) > 0 {
		format.Row(w, "INSTANCE", "TAKEN", "USED", "IN HAND")
	}
	for _, h := range b.Holdings {
		name := format.Show(h.Instance)
		if h.Ended {
			name += " (ended)"
		}
		format.Row(w, name, fmt.Sprint(h.Taken), fmt.Sprint(h.Used), fmt.Sprint(h.Taken-h.Used))
	}
}
