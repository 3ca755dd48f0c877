package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/document"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) exportCommand() *cobra.Command {
	return a.onEtcd(&cobra.Command{
		Use:   "export [PROVIDER...]",
		Short: "Write policies as a YAML document, which apply reads",
		Long: `Write the policies of all providers, or of those named, as a document for version
control: YAML, or JSON with -o json. apply reads it. The document has the current
policies with their announced changes and their defaults; author, time and reason are
in the history. A policy that cannot be read is left out, and the command then fails
after it has written the others.`,
		Example: `  quota-admin export > policies.yaml
  quota-admin export payments/charge payments/refund -o json`,
	}, func(ctx context.Context, etcd connection, args []string) error {
		var all []admin.Stored
		var err error
		if len(args) == 0 {
			if all, err = etcd.List(ctx); err != nil {
				return err
			}
		}
		for _, p := range args {
			s, err := etcd.Get(ctx, p)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		return a.export(ctx, etcd, all)
	})
}

func (a *app) export(ctx context.Context, etcd connection, all []admin.Stored) error {
	policies := map[string]document.Entry{}
	var left []string
	for _, s := range all {
		if s.Problem != nil {
			left = append(left, fmt.Sprintf("%s at revision %d (%s)", s.Provider, s.Revision, format.OneLine(s.Problem)))
			continue
		}
		e := document.Entry{Policy: s.Policy}
		if len(s.Policy.Keys.Limits) > 0 {
			o, err := feed.Inside(etcd.Client).Overrides(ctx, s.Provider)
			if err != nil {
				return err
			}
			if e.Overrides = o.Keys; o.Problem != nil {
				left = append(left, fmt.Sprintf("overrides of %s (%s)", s.Provider, format.OneLine(o.Problem)))
			}
		}
		policies[s.Provider] = e
	}
	f := a.format
	if f == format.Table {
		f = format.YAML
	}
	if err := f.Write(a.stdout, document.Of(policies, time.Now())); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left out, since they cannot be read: %s", strings.Join(left, "; "))
	}
	return nil
}

type applyJSON struct {
	Changes   []*editResult `json:"changes"`
	Unchanged int           `json:"unchanged"`
	// Keys are the changes of limits of single keys, by provider.
	Keys   map[string]map[string]keyChangeJSON `json:"keys,omitempty"`
	DryRun bool                                `json:"dry_run"`
}

func (a *app) applyCommand() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Set the policies of a document, all or none",
		Long: `Set the policies of a document, as export writes it, in one transaction: all of
them or none. Policies without a difference are not written, so a second apply
changes nothing. Fields that the document leaves out get their defaults, and a policy
without next loses its announced changes. Providers that are not in the document do
not change.

Unknown fields are refused. A transaction of etcd takes 128 operations, two for each
policy: 64 policies at most.

The overrides of keys that a provider has in the document become all that it has; a
document without overrides leaves them as they are. They are written after the policies, in
a transaction for each provider.`,
		Example: `  quota-admin apply -f policies.yaml --dry-run
  quota-admin apply -f policies.yaml --reason "release 42" --wait
  quota-admin export | sed 's/300000/150000/' | quota-admin apply -f -`,
	}
	cmd.Flags().FuncP("file", "f", "`FILE` of the document; - is the standard input", func(text string) (err error) {
		if file != "" { // the last one alone would be applied
			err = errors.New("one file is applied at a time: run apply for each")
		}
		file = text
		return err
	})
	e := a.changes(cmd)
	cmd.Flags().Lookup("reason").Usage += "; default: apply and the file's name"
	e.lazy, e.steps, e.replace = true, true, true
	addFlag(a, cmd, &e.maxStep, "max-step", parseFactor, "allow a change by `FACTOR` times up or down; default: the greatest step of each policy")
	cmd.Flags().BoolVar(&e.force, "force", false, forceUsage)
	e.withholdFlag(cmd)
	var policies map[string]document.Entry
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if file == "" {
			return usageError(cmd, "-f FILE is missing; - is the standard input")
		}
		if e.reason == "" {
			e.reason = "apply " + file
		}
		policies, err = a.readDocument(file)
		return err
	}
	e.next = func(_ context.Context, _ *admin.Client, old admin.Stored, now time.Time) (quota.Policy, error) {
		return change.Carry(old.Policy, policies[old.Provider].Policy, now), nil
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, _ []string) error {
		if err := a.checkOverrides(ctx, etcd, e, policies); err != nil {
			return err
		}
		results, err := e.run(ctx, etcd, slices.Sorted(maps.Keys(policies)))
		if err != nil && results == nil {
			return err
		}
		keys, overridesErr := a.applyOverrides(ctx, etcd, e, policies)
		var waitErr error
		if e.wait > 0 && !e.dryRun && len(keys) > 0 {
			_, waitErr = a.awaitKeys(ctx, etcd.Client, e.wait, slices.Sorted(maps.Keys(keys))...)
		}
		emitErr := a.applied(results, keys, e.dryRun)
		for _, n := range keyNotes(keys, policies) {
			a.note("%s", n)
		}
		return errors.Join(emitErr, err, overridesErr, waitErr)
	})
}

// checkOverrides refuses overrides beyond the greatest step, as keys set does, before anything
// is written.
func (a *app) checkOverrides(ctx context.Context, etcd connection, e *edit, policies map[string]document.Entry) error {
	for provider, entry := range policies {
		if len(entry.Overrides) == 0 || e.force {
			continue
		}
		old, err := feed.Inside(etcd.Client).Overrides(ctx, provider)
		if errors.Is(err, admin.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(entry.Overrides)) {
			was, will := ofKey(&old.Policy.Policy, old.Keys[name]), ofKey(&entry.Policy, entry.Overrides[name])
			if was == nil || will == nil || slices.Equal(was.Limits, will.Limits) {
				continue
			}
			if err := change.CheckStep(*was, *will, nil, time.Now(), e.maxStep); err != nil {
				return refused(fmt.Errorf("key %s of %s: %w", format.Show(name), provider, err))
			}
		}
	}
	return nil
}

// applyOverrides makes the overrides of each provider those that a document has of it. It
// returns the changes of those providers that had others.
func (a *app) applyOverrides(ctx context.Context, etcd connection, e *edit, policies map[string]document.Entry) (map[string]map[string]keyChangeJSON, error) {
	all := map[string]map[string]keyChangeJSON{}
	for _, provider := range slices.Sorted(maps.Keys(policies)) {
		want := policies[provider].Overrides
		if want == nil {
			continue
		}
		differ := func(old protocol.KeyOverrides) map[string]*protocol.Override {
			next := maps.Clone(want)
			for name := range old.Keys {
				if want[name] == nil {
					next[name] = nil
				}
			}
			return next
		}
		was := map[string]*protocol.Override{}
		changes, err := feed.Inside(etcd.Client).SetOverrides(ctx, provider, e.reason, func(old protocol.KeyOverrides) (map[string]*protocol.Override, error) {
			was = old.Keys
			if e.dryRun {
				return nil, nil
			}
			return differ(old), nil
		})
		if e.dryRun && errors.Is(err, admin.ErrNotFound) {
			err = nil // the policy would be written before
		}
		if err != nil {
			return all, fmt.Errorf("overrides of %s: %w", provider, err)
		}
		if e.dryRun {
			changes = map[string]protocol.KeyChange{}
			for name, next := range differ(protocol.KeyOverrides{Keys: was}) {
				if !was[name].Equal(next) {
					changes[name] = protocol.KeyChange{Old: was[name], New: next}
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(changes)) {
			if all[provider] == nil {
				all[provider] = map[string]keyChangeJSON{}
			}
			all[provider][name] = keyChangeJSON{changes[name].Old.String(), changes[name].New.String()}
		}
	}
	return all, nil
}

// keyNotes says which limits that keys get do not slide. What is said of several keys of a provider is one line.
func keyNotes(changes map[string]map[string]keyChangeJSON, policies map[string]document.Entry) (notes []string) {
	for _, provider := range slices.Sorted(maps.Keys(changes)) {
		said, of := map[string][]string{}, policies[provider]
		for _, name := range slices.Sorted(maps.Keys(changes[provider])) {
			if own, each := of.Overrides[name], of.Policy.Keys.Limits; own != nil && len(each) > 0 {
				for _, n := range byTheClock(own.Limits, each) {
					said[n] = append(said[n], format.Show(name))
				}
			}
		}
		for _, n := range slices.Sorted(maps.Keys(said)) {
			who := said[n][0]
			if more := len(said[n]) - 1; more > 0 {
				who += " and " + format.Count(more, "more key")
			}
			notes = append(notes, fmt.Sprintf("%s: key %s: %s", provider, who, n))
		}
	}
	return notes
}

// keysShown bounds the keys of a provider whose changes the table of apply shows.
const keysShown = 10

func (a *app) applied(results []*editResult, keys map[string]map[string]keyChangeJSON, dryRun bool) error {
	r := applyJSON{Changes: []*editResult{}, Keys: keys, DryRun: dryRun}
	did, verb := "changed", "changed"
	for _, one := range results {
		if !one.changed {
			r.Unchanged++
			continue
		}
		r.Changes = append(r.Changes, one)
		did = fmt.Sprintf("changed at revision %d", one.New.Revision)
	}
	if dryRun {
		did, verb = "would change", "would change"
	}
	return a.emit(r, func(w io.Writer) {
		fmt.Fprintf(w, "policies: %d %s, %d as they were\n", len(r.Changes), did, r.Unchanged)
		for _, provider := range slices.Sorted(maps.Keys(r.Keys)) {
			of := r.Keys[provider]
			fmt.Fprintf(w, "%s: limits of %s %s\n", format.Show(provider), format.Count(len(of), "key"), verb)
			for i, name := range slices.Sorted(maps.Keys(of)) {
				if i == keysShown {
					fmt.Fprintf(w, "%s: and %s; -o json shows all\n", format.Show(provider), format.Count(len(of)-i, "more key"))
					break
				}
				(&keyResult{Provider: provider, Key: name, Old: of[name].Old, New: of[name].New, Changed: true}).table(w)
			}
		}
	})
}

func (a *app) readDocument(file string) (map[string]document.Entry, error) {
	in := a.stdin
	if file == "-" {
		file = "stdin"
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	}
	text, err := io.ReadAll(io.LimitReader(in, document.Most+1))
	if err != nil {
		return nil, err
	}
	policies, problems := document.Parse(file, text)
	if len(problems) > 0 {
		return nil, &fault{errors.New(problems[0]), nil, problems[1:]}
	}
	return policies, nil
}
