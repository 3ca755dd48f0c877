package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// deleted is what delete shows as JSON.
type deleted struct {
	Provider string        `json:"provider"`
	Deleted  bool          `json:"deleted"`
	Revision int64         `json:"previous_revision"`
	Policy   *quota.Policy `json:"previous_policy,omitempty"`
}

func (a *app) deleteCommand() *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete PROVIDER",
		Short: "Delete the policy of a provider; its instances then issue nothing",
		Long: `Delete the policy of a provider. Its instances then issue nothing, until a policy
is set again. The history is kept.`,
		Example:           "  quota-admin delete payments/charge --reason \"contract ended\" --yes",
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the history")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask; needed where there is no terminal to ask at")
	revision := addRevisionFlag(cmd, 1, "delete only if the policy still has revision `N`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := revision.check(); err != nil {
			return err
		}
		if !yes && !isTerminal(a.stdin) {
			return usageError(cmd, "there is no terminal to ask at; give --yes to delete %s", args[0])
		}
		return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
			return a.delete(ctx, admin, args[0], reason, revision, yes)
		})
	}
	return cmd
}

// delete deletes what it has shown: a policy that changes meanwhile stays.
func (a *app) delete(ctx context.Context, admin *coordinator.Admin, provider, reason string, revision *revisionFlag, yes bool) error {
	old, err := admin.Get(ctx, provider)
	if err != nil {
		return err
	}
	if err := revision.conflict(provider, old.Revision); err != nil {
		return err
	}
	limits := "unreadable limits"
	if readable(old) {
		limits = quota.FormatLimits(old.Policy.Limits)
	}
	what := fmt.Sprintf("%s (%s, revision %d)", provider, limits, old.Revision)
	if !yes && !a.confirm("Delete the policy of "+what+"? Its instances will issue nothing.") {
		return errors.New("not deleted: not confirmed")
	}
	if _, err := admin.Delete(ctx, provider, reason, old.Revision); err != nil {
		return err
	}
	data := deleted{Provider: provider, Deleted: true, Revision: old.Revision}
	if readable(old) {
		data.Policy = &old.Policy
	}
	return a.emit(data, func(w io.Writer) { fmt.Fprintln(w, format.Clean("deleted "+what)) })
}

// confirm asks on the terminal. Everything but a yes is a no.
func (a *app) confirm(question string) bool {
	fmt.Fprint(a.stderr, format.Clean(question)+" [y/N] ")
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// isTerminal reports whether somebody can be asked.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
