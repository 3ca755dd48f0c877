package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) deleteCommand() *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete PROVIDER",
		Short: "Delete the policy of a provider; its instances then issue nothing",
		Long: `Delete the policy of a provider. Its instances then issue nothing until a policy
is set again. The history is kept.`,
		Example: "  quota-admin delete payments/charge --reason \"contract ended\" --yes",
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !isTerminal(a.stdin) {
				return usageError(cmd, "there is no terminal to ask at; give --yes to delete %s", args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the history")
	var revision revisionFlag
	a.revisionFlag(cmd, &revision, 1, "delete the policy only if it has revision `N`")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation; required without a terminal")
	return a.needsAdmin(cmd, func(ctx context.Context, admin *coordinator.Admin, args []string) error {
		if !revision.given {
			revision.value = coordinator.AnyRevision
		}
		if !yes { // what it has shown is deleted: a policy that changes meanwhile stays
			old, err := admin.Get(ctx, args[0])
			if err == nil {
				err = revision.conflict(old)
			}
			if err != nil {
				return err
			}
			if revision.value = old.Revision; !a.confirm("Delete the policy of " + spelled(old) + "? Its instances will issue nothing.") {
				return errors.New("not deleted: not confirmed")
			}
		}
		old, err := admin.Delete(ctx, args[0], reason, revision.value)
		if err != nil {
			return err
		}
		return a.emit(editResult{Provider: old.Provider, Old: toJSON(old)}, func(w io.Writer) { fmt.Fprintln(w, format.Clean("deleted "+spelled(old))) })
	})
}

// spelled names a policy with its limits.
func spelled(s coordinator.Stored) string {
	limits := "unreadable limits"
	if p := policyIn(s); p != nil {
		limits = quota.FormatLimits(p.Limits)
	}
	return fmt.Sprintf("%s (%s, revision %d)", s.Provider, limits, s.Revision)
}

// confirm asks on the terminal. Everything but a yes is a no.
func (a *app) confirm(question string) bool {
	fmt.Fprint(a.stderr, format.Clean(question)+" [y/N] ")
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
