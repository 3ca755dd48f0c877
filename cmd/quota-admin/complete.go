package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
)

// completionTime bounds what a press of the tab key may take.
const completionTime = time.Second

// initCompletion adds cobra's completion command, after root got its output, and
// makes its errors like those of the others.
func (a *app) initCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args = a.noCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range cmd.Commands() {
			shell.Args = exactly()
		}
	}
}

// completeProvider offers the names of the providers that have a policy. Where
// etcd does not answer it offers nothing, silently: the shell shows whatever is
// printed.
func (a *app) completeProvider(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeProviders(cmd, args, prefix)
}

// completeProviders is completeProvider for commands that take several.
func (a *app) completeProviders(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	a.etcd.Stdin, a.etcd.Stderr = strings.NewReader(""), io.Discard // no password prompt
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	if a.etcd.Resolve() != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	a.etcd.DialTimeout = completionTime
	client, err := a.etcd.Client(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer client.Close()
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Prefix: a.etcd.Prefix, Timeout: completionTime})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	all, err := admin.List(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range all {
		if strings.HasPrefix(s.Provider, prefix) && format.Printable(s.Provider) && !slices.Contains(args, s.Provider) {
			names = append(names, s.Provider)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
