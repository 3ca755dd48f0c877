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
	"github.com/quotient-limiter/quotient/coordinator"
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
		var all []coordinator.Stored
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
		return a.export(all)
	})
}

func (a *app) export(all []coordinator.Stored) error {
	policies := map[string]quota.Policy{}
	var left []string
	for _, s := range all {
		if s.Problem != nil {
			left = append(left, fmt.Sprintf("%s at revision %d (%s)", s.Provider, s.Revision, format.OneLine(s.Problem)))
			continue
		}
		policies[s.Provider] = s.Policy
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
	DryRun    bool          `json:"dry_run"`
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
policy: 64 policies at most.`,
		Example: `  quota-admin apply -f policies.yaml --dry-run
  quota-admin apply -f policies.yaml --reason "release 42" --wait
  quota-admin export | sed 's/300000/150000/' | quota-admin apply -f -`,
	}
	cmd.Flags().FuncP("file", "f", "`FILE` of the document; - is the standard input", func(text string) (err error) {
		if file != "" { // the last one alone would be applied
			err = errors.New("one document is applied at a time")
		}
		file = text
		return err
	})
	e := a.changes(cmd)
	cmd.Flags().Lookup("reason").Usage += "; default: apply and the file's name"
	e.lazy, e.steps, e.replace = true, true, true
	addFlag(a, cmd, &e.maxStep, "max-step", parseFactor, "allow a change by `FACTOR` times up or down; default: the greatest step of each policy")
	cmd.Flags().BoolVar(&e.force, "force", false, forceUsage)
	var policies map[string]quota.Policy
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
	e.next = func(_ context.Context, _ *coordinator.Admin, old coordinator.Stored, now time.Time) (quota.Policy, error) {
		return change.Carry(old.Policy, policies[old.Provider], now), nil
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, _ []string) error {
		results, err := e.run(ctx, etcd.Admin, slices.Sorted(maps.Keys(policies)))
		if err != nil && results == nil {
			return err
		}
		return errors.Join(a.applied(results, e.dryRun), err)
	})
}

func (a *app) applied(results []*editResult, dryRun bool) error {
	r := applyJSON{Changes: []*editResult{}, DryRun: dryRun}
	did := "changed"
	for _, one := range results {
		if !one.changed {
			r.Unchanged++
			continue
		}
		r.Changes = append(r.Changes, one)
		did = fmt.Sprintf("changed at revision %d", one.New.Revision)
	}
	if dryRun {
		did = "would change"
	}
	return a.emit(r, func(w io.Writer) { fmt.Fprintf(w, "%d %s, %d as they were\n", len(r.Changes), did, r.Unchanged) })
}

func (a *app) readDocument(file string) (map[string]quota.Policy, error) {
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
