package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// markIn reads the mark from an answer of a cluster.
func markIn(r *etcdserverpb.RangeResponse, cluster uint64) escrow.MarkAt {
	for _, kv := range r.GetKvs() {
		return escrow.ReadMark(kv.Value, kv.ModRevision, cluster)
	}
	return escrow.ReadMark(nil, 0, cluster)
}

func readMark(ctx context.Context, client *clientv3.Client, key string) (escrow.MarkAt, error) {
	r, err := client.Get(ctx, key)
	if err != nil {
		return escrow.MarkAt{}, etcdcall.Wrap(ctx, "read the mark of the store", err)
	}
	return markIn((*etcdserverpb.RangeResponse)(r), r.Header.ClusterId), nil
}

// remark renews the mark of a provider's store. With unused it says of all keys that they used nothing that etcd
// does not count; without, it withholds what runs.
func (a *app) remark(ctx context.Context, etcd connection, key, provider string, p *quota.Policy, unused bool) error {
	m, err := readMark(ctx, etcd.client, key)
	if err != nil {
		return err
	}
	next, text := m.WithKeysTold(time.Now().UnixNano(), p.WithDefaults().ClockError), "Keys that etcd does not count, and that were given no count, are counted as unused.\n"
	if next.Before == 0 { // whoever set the provider here has said that nothing was used
		text += fmt.Sprintf("By its mark this store was never restored, so nothing of %s itself is withheld. If it was: quota-admin budget %s --withhold\n", provider, provider)
	}
	if unused {
		err = writeMark(ctx, etcd.client, key, m, next)
	} else if next, err = withhold(ctx, etcd, key, provider, m, p); err == nil {
		text = fmt.Sprintf("Nothing more is handed out %s.\nGive the counts to go on sooner, also those that you have given before.\n", goesOn(next, p))
	}
	if err != nil {
		return err
	}
	return a.emit(map[string]any{"provider": provider, "keys_unused": unused, "withheld_before": time.Unix(0, next.Before).UTC()}, func(w io.Writer) { fmt.Fprint(w, text) })
}

// clockBehind returns an error if an instance has reported at an instant to which the clock of this machine has not come.
func clockBehind(ctx context.Context, etcd connection, p *quota.Policy, provider string) error {
	f, err := feed.Inside(etcd.Client).Fleet(ctx, provider)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, i := range f.Instances {
		if r := i.Report; r != nil && r.Time.Sub(now) > 2*p.WithDefaults().ClockError {
			return refused(fmt.Errorf("this machine's clock says %s, and %s reported at %s: windows that have begun since would not be withheld: correct the clock, or run this on another host",
				format.Exact(now.UTC()), format.Show(cmp.Or(i.Instance.Name, i.Instance.ID)), format.Exact(r.Time)))
		}
	}
	return nil
}

// withhold writes the mark by which the running windows are withheld. "Now" is by the clock of this machine, which is
// neither corrected nor measured: if that is behind, windows that have begun since are not withheld. So clockBehind is
// asked before.
func withhold(ctx context.Context, etcd connection, key, provider string, m escrow.MarkAt, p *quota.Policy) (escrow.Mark, error) {
	if err := clockBehind(ctx, etcd, p, provider); err != nil {
		return escrow.Mark{}, err
	}
	next := m.Withholding(time.Now().UnixNano(), p.WithDefaults().ClockError)
	return next, writeMark(ctx, etcd.client, key, m, next)
}

// writeMark replaces the mark that was read.
func writeMark(ctx context.Context, client *clientv3.Client, key string, m escrow.MarkAt, next escrow.Mark) error {
	value, err := escrow.Encode(next)
	if err != nil {
		return err
	}
	r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", m.Revision)).Then(clientv3.OpPut(key, value)).Commit()
	if err == nil && !r.Succeeded {
		err = errors.New("an instance wrote the mark at the same moment: try again")
	}
	return etcdcall.Wrap(ctx, "mark the store", err)
}

// goesOn says of which limits of a policy a mark that was written now withholds something, and until when if nobody gives a
// count.
func goesOn(m escrow.Mark, p *quota.Policy) string {
	at, now := escrow.MarkAt{Mark: m, Revision: 1, AnsweredBy: m.Cluster}, time.Now().UnixNano()
	var all []string
	say := func(windows []protocol.Budget, ofKeys bool) {
		for _, b := range windows {
			if resumes := at.Of(b.Since(), ofKeys).Resumes(&b); resumes != 0 {
				limit := b.String()
				if ofKeys {
					limit += " of each key"
				}
				all = append(all, "of "+limit+" until "+cause.Until(b.Limit, format.Latest(time.Unix(0, resumes))))
			}
		}
	}
	say(protocol.BudgetsAt(p, now), false)
	say(protocol.KeyBudgetsAt(p, now), true)
	return strings.Join(all, ", ")
}

// mark makes the mark of a provider whose new policy has long limits, where that is for the operator to say, and notes
// what it says. An instance takes permits as soon as it learns of the policy, so this comes before the policy is
// written. Whoever sets the first long limit says that nothing of it was used: package admin writes that mark. That is
// wrong where etcd has lost its data: --withhold says so, of each policy of the command.
func (e *edit) mark(ctx context.Context, etcd connection, r *editResult) error {
	was, long := longOf(&r.old.Policy), longOf(&r.new.Policy)
	if first := r.changed && was == ""; long == "" || !first && !e.withhold {
		return nil
	}
	layout, err := keys.New(e.a.etcd.Prefix)
	if err != nil {
		return err
	}
	key := layout.BudgetMark(r.Provider)
	m, err := readMark(ctx, etcd.client, key)
	count := "quota-admin budget " + r.Provider + " --used N"
	if len(r.new.Policy.Keys.Limits) > 0 && len(protocol.Long(&r.new.Policy)) == 0 {
		count = "quota-admin budget " + r.Provider + " --key KEY --used N"
	}
	switch {
	case errors.Is(err, coordinator.ErrPermission) && !e.withhold:
		return nil // package admin leaves the mark to the instances then, which withhold
	case err != nil:
		return err
	case e.withhold && e.dryRun:
		r.counts = "nothing more of " + long + " would be handed out until the provider's count is given"
	case e.withhold:
		next, err := withhold(ctx, etcd, key, r.Provider, m, &r.new.Policy)
		if err != nil {
			return err
		}
		what := "the provider's count"
		if r.new.Policy.InFlight() {
			what = "how many calls are open now"
		}
		r.counts = fmt.Sprintf("nothing more is handed out %s; give %s to go on sooner, also if you have given it before: %s", goesOn(next, &r.new.Policy), what, count)
	case m.Revision == 0:
		r.counts = fmt.Sprintf("etcd counts %s from 0; if some was used before, as when etcd has lost its data, %s gives the provider's count; with --withhold nothing is handed out until then", long, count)
	}
	return nil
}

// longOf returns the limits of more than a minute, of the provider and of keys; "" if there are none.
func longOf(p *quota.Policy) string {
	var ofKeys []quota.Limit
	if of := protocol.OfKeys(p); of != nil {
		ofKeys = protocol.Long(of)
	}
	return cause.Limits(protocol.Long(p), ofKeys)
}
