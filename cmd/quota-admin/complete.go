package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/top"
	"github.com/quotient-limiter/quotient/internal/cli/commandline"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// askWithin is how long etcd has to answer a press of the tab key.
const askWithin = time.Second

// ask lets a completion read from etcd. Where etcd does not answer it offers nothing,
// silently: the shell shows whatever is printed.
func (a *app) ask(cmd *cobra.Command, f func(context.Context, connection) ([]string, error)) (words []string, _ cobra.ShellCompDirective) {
	a.etcd.Stdin, a.etcd.Stderr = strings.NewReader(""), io.Discard // no password prompt
	ctx, cancel := context.WithTimeout(cmd.Context(), askWithin)
	defer cancel()
	if err := a.connected(ctx, func(c connection) (err error) {
		words, err = f(ctx, c)
		return err
	}); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeArgument offers the providers that have a policy, a provider's instances, or the
// revisions of its history, by the line of usage.
func (a *app) completeArgument(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch name, _ := argument(cmd, len(args)); name {
	case "PROVIDER", "PREFIX":
		return a.ask(cmd, func(ctx context.Context, c connection) (names []string, err error) {
			all, err := c.List(ctx)
			for _, s := range all {
				if strings.HasPrefix(s.Provider, prefix) && format.Printable(s.Provider) && !slices.Contains(args, s.Provider) {
					names = append(names, s.Provider)
				}
			}
			return names, err
		})
	case "KEY", "KEY-PREFIX":
		return a.ask(cmd, func(ctx context.Context, c connection) (names []string, err error) {
			o, err := feed.Inside(c.Client).Overrides(ctx, args[0])
			for _, name := range slices.Sorted(maps.Keys(o.Keys)) {
				if strings.HasPrefix(name, prefix) && format.Printable(name) {
					names = append(names, name)
				}
			}
			return names, err
		})
	case "REVISION":
		return a.ask(cmd, func(ctx context.Context, c connection) ([]string, error) { return revisions(ctx, c, args[0]) })
	case "INSTANCE":
		return a.ask(cmd, func(ctx context.Context, c connection) (names []string, err error) {
			f, err := feed.Inside(c.Client).Fleet(ctx, args[0])
			for _, i := range f.Instances {
				if format.Printable(i.Instance.ID) {
					names = append(names, i.Instance.ID)
				}
			}
			return names, err
		})
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// revisions are those of a provider's history, newest first, each with what it set.
func revisions(ctx context.Context, c connection, provider string) (words []string, err error) {
	records, err := c.History(ctx, provider)
	for _, r := range records {
		words = append(words, fmt.Sprintf("%d\t%s by %s", r.Revision, format.Show(change.Limits(r.New)), format.Show(r.Author)))
	}
	return words, err
}

// completeFlags lets a shell complete the values of a command's flags.
func (a *app) completeFlags(cmd *cobra.Command) {
	of := func(name string, f func(ctx context.Context, c connection, provider string) ([]string, error)) {
		if cmd.Flags().Lookup(name) == nil {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.ask(cmd, func(ctx context.Context, c connection) ([]string, error) { return f(ctx, c, args[0]) })
		})
	}
	of("if-revision", func(ctx context.Context, c connection, provider string) ([]string, error) {
		s, err := c.Get(ctx, provider)
		return []string{fmt.Sprint(s.Revision)}, err
	})
	of("limit", func(ctx context.Context, c connection, provider string) (limits []string, err error) {
		s, err := c.Get(ctx, provider)
		for _, l := range protocol.Long(&s.Policy) {
			limits = append(limits, l.String())
		}
		for _, b := range protocol.KeyBudgetsAt(&s.Policy, 0) {
			limits = append(limits, b.String())
		}
		return limits, err
	})
	of("key", func(ctx context.Context, c connection, provider string) ([]string, error) {
		o, err := feed.Inside(c.Client).Overrides(ctx, provider)
		return slices.Sorted(maps.Keys(o.Keys)), err
	})
	for name, words := range map[string][]string{
		"classes": {"critical=10", "off"}, "keys": {"off"}, "by": top.Bys, "wait": {defaultWait.String()},
	} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	commandline.Values(cmd)
}
