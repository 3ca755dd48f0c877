package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

type historyJSON struct {
	Provider string       `json:"provider,omitempty"` // left out: all
	Changes  []recordJSON `json:"changes"`            // newest first
	// Beside the policy: the newest pauses that instances were asked for, until resume.
	Throttle *protocol.Throttle `json:"throttle,omitempty"`
}

type recordJSON struct {
	Provider    string    `json:"provider,omitempty"` // of changes of all
	Revision    int64     `json:"revision"`
	OldRevision int64     `json:"old_revision"` // 0: there was no policy
	Time        time.Time `json:"time"`
	Author      string    `json:"author"`
	Reason      string    `json:"reason,omitempty"`
	Old         *shown    `json:"old"` // null: there was none, or it cannot be read
	New         *shown    `json:"new"` // null: deleted
	// Keys are the limits of single keys before and after the change; old and new are the same
	// then.
	Keys        map[string]keyChangeJSON `json:"keys,omitempty"`
	Differences []change.Difference      `json:"differences,omitempty"`
	Problem     string                   `json:"problem,omitempty"`
}

// keyChangeJSON has the limits of a key; empty where those of each key count.
type keyChangeJSON struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// keys are the changed keys as fields, sorted.
func (r *recordJSON) keys() (all []change.Difference) {
	for _, name := range slices.Sorted(maps.Keys(r.Keys)) {
		all = append(all, change.Difference{Field: "key " + name, Old: r.Keys[name].Old, New: r.Keys[name].New})
	}
	return all
}

// keysInLine bounds the keys that one line of a table shows.
const keysInLine = 3

// shownAtMost bounds the changes of all providers that are kept in memory.
const shownAtMost = 1000

func (a *app) historyCommand() *cobra.Command {
	all, follow, diff := false, false, false
	cmd := &cobra.Command{
		Use:   "history [PROVIDER [REVISION [REVISION]]]",
		Short: "Show the changes of a policy, newest first: author, time and reason",
		Long: `Show the changes of a policy, newest first. The last 100 of each provider are kept,
also after its deletion. With --all, show the newest ` + fmt.Sprint(shownAtMost) + ` changes of all providers.

With --diff and a revision, show what differs between the policy of that revision and the one
set now; with two revisions, between theirs.

With --follow, write a line for each change of all providers as it is made, until it is
interrupted: for a log. With -o json each line is a document.`,
		Example: `  quota-admin history payments/charge
  quota-admin history payments/charge --diff
  quota-admin history payments/charge --diff 17
  quota-admin history payments/charge --diff 17 23
  quota-admin history --all
  quota-admin history --follow -o json >> /var/log/quotient-changes.log`,
		SuggestFor: []string{"diff"},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "show each field that a change changed, or that differs between two revisions")
	cmd.Flags().BoolVar(&all, "all", false, "show the changes of all providers")
	cmd.Flags().BoolVar(&follow, "follow", false, "write changes of all providers from now on, as they are made")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && !all && !follow:
			return usageError(cmd, "PROVIDER is missing; --all shows the changes of all")
		case len(args) > 0 && (all || follow):
			return usageError(cmd, "PROVIDER, --all and --follow: give one of them")
		case all && follow, follow && diff:
			return usageError(cmd, "--follow stands alone")
		case len(args) > 1 && !diff:
			return usageError(cmd, "revisions are for --diff, which shows what differs between them")
		}
		return nil
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) (err error) {
		if follow {
			return a.follow(ctx, etcd)
		}
		if len(args) > 1 {
			return a.between(ctx, etcd, args[0], args[1:])
		}
		data := historyJSON{Provider: strings.Join(args, ""), Changes: []recordJSON{}}
		if all {
			data.Changes, err = a.allChanges(ctx, etcd)
		} else {
			data.Changes, err = recordsOf(ctx, etcd, args[0])
			if err == nil && len(data.Changes) == 0 {
				err = notFound(args[0]+" has no history", "quota-admin history --all shows the changes of all providers")
			}
			if err == nil {
				data.Throttle, err = feed.Inside(etcd.Client).Throttle(ctx, args[0])
			}
		}
		if err != nil {
			return err
		}
		for i := range data.Changes {
			r := &data.Changes[i]
			if r.Problem != "" {
				a.note("%s", r.Problem)
			}
			if diff {
				r.Differences = r.fields()
			}
		}
		if diff {
			return a.emit(data, data.differences)
		}
		return a.emit(data, data.table)
	})
}

type diffJSON struct {
	Provider    string              `json:"provider"`
	From        int64               `json:"from_revision"`
	To          int64               `json:"to_revision"`
	Differences []change.Difference `json:"differences"`
}

// between shows what differs between the policies of two revisions. Without the second one it
// takes the policy that is set now.
func (a *app) between(ctx context.Context, etcd connection, provider string, revisions []string) error {
	fleet, err := feed.Inside(etcd.Client).Fleet(ctx, provider)
	if err != nil {
		return err
	}
	now := admin.Stored(fleet.Policy)
	d := diffJSON{Provider: provider, From: revisionOf(revisions[0]), To: now.Revision, Differences: []change.Difference{}}
	from, err := policyAt(ctx, etcd.Client, now, d.From)
	if err != nil {
		return err
	}
	to := policyIn(now)
	if len(revisions) == 2 {
		d.To = revisionOf(revisions[1])
		if to, err = policyAt(ctx, etcd.Client, now, d.To); err != nil {
			return err
		}
	}
	d.Differences = append(d.Differences, change.Diff(from, to)...)
	return a.emit(d, func(w io.Writer) {
		fmt.Fprintf(w, "%s: revision %d -> %d\n", format.Show(d.Provider), d.From, d.To)
		if len(d.Differences) == 0 {
			fmt.Fprintln(w, "no difference")
		}
		for _, one := range d.Differences {
			fmt.Fprintf(w, "  %v\n", one)
		}
	})
}

func recordsOf(ctx context.Context, etcd connection, provider string) (changes []recordJSON, err error) {
	records, err := etcd.History(ctx, provider)
	for _, r := range records {
		one := recordJSON{"", r.Revision, r.OldRevision, r.Time, r.Author, r.Reason, (*shown)(r.Old), (*shown)(r.New), nil, nil, format.OneLine(r.Problem)}
		for name, k := range r.Keys {
			if one.Keys == nil {
				one.Keys = map[string]keyChangeJSON{}
			}
			one.Keys[name] = keyChangeJSON{k[0], k[1]}
		}
		changes = append(changes, one)
	}
	return changes, err
}

// allChanges are those of all providers that have a history, newest first.
func (a *app) allChanges(ctx context.Context, etcd connection) (changes []recordJSON, err error) {
	k, err := keys.New(a.etcd.Prefix)
	if err != nil {
		return nil, err
	}
	asked, cancel := context.WithTimeout(ctx, a.etcd.CommandTimeout)
	defer cancel()
	r, err := etcd.client.Get(asked, k.History(""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, etcdcall.Wrap(ctx, "read the history", err)
	}
	last := ""
	for _, kv := range r.Kvs { // in the order of their keys
		provider := providerOf(k, string(kv.Key))
		if provider == "" || provider == last {
			continue
		}
		last = provider
		of, err := recordsOf(ctx, etcd, provider)
		if err != nil {
			return nil, err
		}
		for i := range of {
			of[i].Provider = provider
		}
		changes = append(changes, of...)
		slices.SortStableFunc(changes, func(x, y recordJSON) int { return cmp.Compare(y.Revision, x.Revision) })
		changes = changes[:min(shownAtMost, len(changes)):min(shownAtMost, len(changes))]
	}
	return changes, nil
}

// providerOf returns the provider of a record's key; "" if it names none.
func providerOf(k keys.Layout, key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, k.History("")), "/")
	provider, err := url.PathUnescape(name)
	if err != nil || quota.ValidateProvider(provider) != nil {
		return ""
	}
	return provider
}

// follow writes a line for each change that is made, until ctx ends. A client of etcd watches
// again by itself after an outage.
func (a *app) follow(ctx context.Context, etcd connection) error {
	k, err := keys.New(a.etcd.Prefix)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	a.note("following the changes of all providers")
	for r := range etcd.client.Watch(clientv3.WithRequireLeader(ctx), k.History(""), clientv3.WithPrefix(), clientv3.WithFilterDelete()) {
		if err := r.Err(); err != nil && ctx.Err() == nil {
			return etcdcall.Wrap(ctx, "follow the changes", err)
		}
		for _, e := range r.Events {
			provider := providerOf(k, string(e.Kv.Key))
			if provider == "" {
				continue
			}
			changes, err := recordsOf(ctx, etcd, provider)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			i := slices.IndexFunc(changes, func(c recordJSON) bool { return c.Revision == e.Kv.CreateRevision })
			if i < 0 {
				continue // more than 100 changes ago by now
			}
			changes[i].Provider = provider
			if err := a.writeRecord(&changes[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRecord writes a change on one line.
func (a *app) writeRecord(r *recordJSON) error {
	if a.format != format.Table {
		return a.format.WriteLine(a.stdout, r)
	}
	_, err := fmt.Fprintln(a.stdout, r.line())
	return err
}

// line says who changed what.
func (r *recordJSON) line() string {
	old, next, also := r.words()
	text := fmt.Sprintf("%s %s revision %d: %s -> %s", format.When(r.Time), format.Show(r.Provider), r.Revision, old, next)
	if also != "" {
		text += "; " + also
	}
	text += ", by " + format.Show(r.Author)
	if r.Reason != "" {
		text += ": " + format.Show(r.Reason)
	}
	return text
}

// policies are those before and after the change, as they stood then.
func (r *recordJSON) policies() (old, next *quota.Policy) {
	return change.At((*quota.Policy)(r.Old), r.Time), change.At((*quota.Policy)(r.New), r.Time)
}

// words are the limits before and after, and what else was changed.
func (r *recordJSON) words() (old, next, also string) {
	was, is := r.policies()
	old, next = format.Show(change.Limits(was)), format.Show(change.Limits(is))
	if r.Old == nil && r.OldRevision != 0 {
		old = "unreadable"
	}
	if r.Problem != "" {
		next = "unreadable"
	}
	var others []string
	for _, d := range change.Beside(was, is) {
		others = append(others, d.String())
	}
	keys := r.keys()
	for _, d := range keys[:min(len(keys), keysInLine)] {
		others = append(others, d.String())
	}
	if more := len(keys) - keysInLine; more > 0 {
		others = append(others, fmt.Sprintf("and %d more keys", more))
	}
	return old, next, strings.Join(others, "; ")
}

// fields are those that the change changed, of a new policy those that differ from the
// defaults.
func (r *recordJSON) fields() []change.Difference {
	old, next := r.policies()
	switch {
	case len(r.Keys) > 0:
		return r.keys()
	case next == nil:
		return nil
	case old == nil && r.OldRevision == 0:
		defaults := quota.Policy{Limits: next.Limits}.WithDefaults()
		return append([]change.Difference{{Field: "limits", New: change.Limits(next)}}, change.Beside(&defaults, next)...)
	}
	return change.Diff(old, next)
}

func (h *historyJSON) table(w io.Writer) {
	if len(h.Changes) == 0 && h.Provider == "" {
		return
	}
	of := func(provider string) []string {
		if h.Provider != "" {
			return nil
		}
		return []string{provider}
	}
	format.Row(w, append(of("PROVIDER"), "REVISION", "TIME", "AUTHOR", "OLD", "NEW", "ALSO", "REASON")...)
	for _, r := range h.Changes {
		old, next, also := r.words()
		format.Row(w, append(of(format.Name(r.Provider)), fmt.Sprint(r.Revision), format.When(r.Time), format.Show(r.Author), old, next, cmp.Or(also, "-"), format.Show(r.Reason))...)
	}
	t := cmp.Or(h.Throttle, new(protocol.Throttle))
	if len(t.Asks) > 0 {
		format.Row(w, "PAUSE", "ASKED", "INSTANCE", "UNTIL", "WHY")
		for _, a := range t.Asks {
			format.Row(w, "", format.Exact(a.At), format.Show(a.By), format.Exact(a.Until), format.Show(a.Why))
		}
	}
}

// differences writes each change with each field that it changed.
func (h *historyJSON) differences(w io.Writer) {
	for _, r := range h.Changes {
		of := r.Provider
		if of != "" {
			of = format.Show(of) + " "
		}
		fmt.Fprintf(w, "%srevision %d at %s by %s, reason %s\n", of, r.Revision, format.When(r.Time), format.Show(r.Author), format.Show(r.Reason))
		for _, d := range r.Differences {
			fmt.Fprintf(w, "  %v\n", d)
		}
		if r.Problem == "" && r.New == nil {
			fmt.Fprintln(w, "  deleted")
		}
	}
}
