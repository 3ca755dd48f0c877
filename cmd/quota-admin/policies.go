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

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) getCommand() *cobra.Command {
	return a.onEtcd(&cobra.Command{
		Use:     "get PROVIDER",
		Short:   "Show the policy of a provider",
		Example: "  quota-admin get payments/charge",
	}, func(ctx context.Context, etcd connection, args []string) error {
		stored, err := etcd.Get(ctx, args[0])
		if err != nil {
			return err
		}
		data := toJSON(stored)
		if data.Throttle, err = feed.Inside(etcd.Client).Throttle(ctx, args[0]); err != nil {
			return err
		}
		return a.emit(data, func(w io.Writer) { describe(w, stored, data.Throttle, time.Now()) })
	})
}

func describe(w io.Writer, s admin.Stored, throttle *protocol.Throttle, now time.Time) {
	line := func(name, value string) { format.Row(w, name+":", value) }
	line("Provider", format.Show(s.Provider))
	line("Revision", fmt.Sprint(s.Revision))
	if s.Problem != nil {
		line("Problem", format.Clean(format.OneLine(s.Problem)))
	}
	t := cmp.Or(throttle, new(protocol.Throttle))
	for _, a := range t.Asks {
		if a.Until.After(now) {
			line("Held back", fmt.Sprintf("until %s, asked of %s: %s", format.Exact(a.Until), format.Show(a.By), format.Show(a.Why)))
		}
	}
	if policyIn(s) == nil {
		return
	}
	p := change.Current(s.Policy, now).WithDefaults()
	line("Limits", change.Limits(&p))
	for _, next := range p.Next {
		line("Next", quota.FormatLimits(next.Limits)+" from "+format.Exact(next.From))
	}
	for _, d := range change.Diff(nil, &p) {
		if name := strings.ReplaceAll(d.Field, "_", " "); name != "limits" && !strings.HasPrefix(name, "next ") {
			line(strings.ToUpper(name[:1])+name[1:], format.Show(d.New))
		}
	}
	line("Changed", format.When(p.Time))
	line("Author", format.Show(p.Author))
	line("Reason", format.Show(p.Reason))
}

func (a *app) listCommand() *cobra.Command {
	return a.onEtcd(&cobra.Command{
		Use:   "list [PREFIX]",
		Short: "Show the policies of all providers, or of those whose name begins with PREFIX",
		Example: `  quota-admin list
  quota-admin list payments/`,
	}, func(ctx context.Context, etcd connection, args []string) error {
		all, err := etcd.List(ctx)
		if err != nil {
			return err
		}
		prefix := strings.Join(args, "")
		all = slices.DeleteFunc(all, func(s admin.Stored) bool { return !strings.HasPrefix(s.Provider, prefix) })
		if len(all) == 0 {
			a.note("no policies of providers %s* under %s", prefix, a.etcd.Prefix)
		}
		policies := []*storedJSON{}
		for _, s := range all {
			policies = append(policies, toJSON(s))
			if s.Problem != nil {
				a.note("%s: %s", s.Provider, format.OneLine(s.Problem))
			}
		}
		return a.emit(map[string]any{"policies": policies}, func(w io.Writer) { listTable(w, all) })
	})
}

func listTable(w io.Writer, all []admin.Stored) {
	if len(all) == 0 {
		return
	}
	format.Row(w, "PROVIDER", "LIMITS", "EACH KEY", "MODE", "OUTAGE", "SETTLE", "NEXT", "REVISION", "CHANGED", "AUTHOR")
	for _, s := range all {
		name, revision := format.Name(s.Provider), fmt.Sprint(s.Revision)
		if policyIn(s) == nil {
			format.Row(w, name, "invalid", "-", "-", "-", "-", "-", revision, "-", "-")
			continue
		}
		p := change.Current(s.Policy, time.Now()).WithDefaults()
		format.Row(w, name, change.Limits(&p), cmp.Or(limitsOf(p.Keys.Limits), "-"), format.Show(string(p.Mode)),
			format.Show(string(p.Outage)), p.Settle.String(), nextOf(p), revision, format.When(p.Time), format.Name(p.Author))
	}
}

func nextOf(p quota.Policy) string {
	switch {
	case !p.From.IsZero():
		return "begins " + format.Exact(p.From)
	case len(p.Next) == 0:
		return "-"
	}
	text := quota.FormatLimits(p.Next[0].Limits) + " from " + format.Exact(p.Next[0].From)
	if more := len(p.Next) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
