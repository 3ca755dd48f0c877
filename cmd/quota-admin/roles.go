package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/roles"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
	"github.com/quotient-limiter/quotient/internal/keys"
)

func (a *app) rolesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "roles",
		Short: "Create the least-privilege etcd roles and users",
		Long: `Create roles in etcd that may do what their users need, and no more:

  consumer PROVIDER     reads the provider; writes instances, level and reports
  operator [PROVIDER]   sets policies; reads fleets
  reader [PROVIDER]     reads

A role that is there is set right: what it has beside that is revoked. With --to
it is granted to a user, who is added if need be. All of this takes etcd's root
(--user root). Roles count once authentication is on: etcdctl auth enable.`,
		Example: `  quota-admin roles consumer payments/charge --to charge-service --no-password --user root
  quota-admin roles operator --to ann --user root
  quota-admin roles reader --to monitoring --new-password-file monitoring.secret --user root
  quota-admin roles list --user root`,
		Args: a.noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.roleCommand(roles.Consumer, "the instances of one provider's consumer"),
		a.roleCommand(roles.Operator, "those who set policies, of one provider or of all"),
		a.roleCommand(roles.Reader, "those who only look, at one provider or at all"),
		a.rolesListCommand(),
	)
	return cmd
}

// envNewPassword is the password of a user that is added.
const envNewPassword = "QUOTIENT_NEW_PASSWORD" //nolint:gosec // the name of a variable, not a secret

// roleFlags are the flags of a role's command.
type roleFlags struct {
	to, passwordFile   string
	noPassword, dryRun bool
}

// grantJSON is a grant as it is shown.
type grantJSON struct {
	Key        string `json:"key"`
	End        string `json:"end,omitempty"` // first key after the range
	Permission string `json:"permission"`    // "read" or "readwrite"
}

// roleJSON is what the commands show as JSON.
type roleJSON struct {
	Role   string      `json:"role"`
	Grants []grantJSON `json:"grants"`
	User   string      `json:"user,omitempty"`
	Added  bool        `json:"user_added,omitempty"`
	DryRun bool        `json:"dry_run,omitempty"`
}

func (a *app) roleCommand(kind roles.Kind, who string) *cobra.Command {
	var f roleFlags
	use, args := string(kind)+" [PROVIDER]", upTo(1)
	if kind == roles.Consumer {
		use, args = string(kind)+" PROVIDER", exactly("PROVIDER")
	}
	cmd := &cobra.Command{
		Use:               use,
		Short:             "Create the role of " + who,
		Example:           "  quota-admin roles " + string(kind) + " payments/charge --to NAME --user root",
		Args:              args,
		ValidArgsFunction: a.completeProvider,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.to, "to", "", "grant it to the etcd user `NAME`, who is added if need be")
	flags.StringVar(&f.passwordFile, "new-password-file", "", "`file` with the password of a user that is added; else "+envNewPassword+" or a prompt")
	flags.BoolVar(&f.noPassword, "no-password", false, "a user that is added has none, and logs in by a client certificate with that name")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the role, and write nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		provider := ""
		if len(args) > 0 {
			provider = args[0]
		}
		if f.to == "" && (f.noPassword || f.passwordFile != "") {
			return usageError(cmd, "a password is of a user: give --to")
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, client *clientv3.Client) error {
			return a.makeRole(ctx, client, kind, provider, &f)
		})
	}
	return cmd
}

// upTo demands at most n providers.
func upTo(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		names := []string{"PROVIDER"}
		return exactly(names[:min(n, len(args))]...)(cmd, args)
	}
}

func (a *app) makeRole(ctx context.Context, client *clientv3.Client, kind roles.Kind, provider string, f *roleFlags) error {
	layout, err := keys.New(a.etcd.Prefix)
	if err != nil {
		return err
	}
	etcd := roles.Etcd{Client: client, Timeout: a.etcd.CommandTimeout}
	role, err := roles.New(layout, kind, provider)
	if err != nil {
		return err
	}
	result := roleOf(role)
	result.User, result.DryRun = f.to, f.dryRun
	if f.dryRun {
		return a.emitRoles([]roleJSON{result}, result)
	}
	// The password first: without one nothing should be half done.
	user := roles.User{Name: f.to, NoPassword: f.noPassword}
	if f.to != "" && !f.noPassword {
		exists, err := etcd.UserExists(ctx, f.to)
		if err != nil {
			return err
		}
		if !exists {
			if user.Password, err = a.newPassword(f); err != nil {
				return err
			}
		}
	}
	if err := etcd.Put(ctx, role); err != nil {
		return err
	}
	if f.to != "" {
		if result.Added, err = etcd.GrantTo(ctx, user, role.Name); err != nil {
			return err
		}
	}
	if err := a.emitRoles([]roleJSON{result}, result); err != nil {
		return err
	}
	if on, err := etcd.Authenticated(ctx); err == nil && !on {
		a.note("authentication is off, so roles do not count yet: add a user root with role root, then etcdctl auth enable")
	}
	return nil
}

// newPassword finds the password of a user that is added.
func (a *app) newPassword(f *roleFlags) (string, error) {
	if f.passwordFile != "" {
		text, err := etcdflags.ReadSecret(f.passwordFile)
		if err != nil {
			return "", err
		}
		if p := strings.TrimRight(text, "\r\n"); p != "" {
			return p, nil
		}
		return "", fmt.Errorf("%s is empty", f.passwordFile)
	}
	if p := a.env(envNewPassword); p != "" {
		return p, nil
	}
	first, ok, err := a.etcd.Ask("Password for the new etcd user " + f.to + ": ")
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("user %s is to be added and needs a password: give --new-password-file or %s, or --no-password for one who logs in by certificate", f.to, envNewPassword)
	}
	again, _, err := a.etcd.Ask("The same again: ")
	switch {
	case err != nil:
		return "", err
	case first == "":
		return "", errors.New("the password is empty")
	case first != again:
		return "", errors.New("the two passwords differ")
	}
	return first, nil
}

func (a *app) rolesListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "Show Quotient's roles in etcd and what they may do",
		Example: "  quota-admin roles list --user root",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, client *clientv3.Client) error {
				ctx, cancel := context.WithTimeout(ctx, a.etcd.CommandTimeout)
				defer cancel()
				found, err := roles.Etcd{Client: client, Timeout: a.etcd.CommandTimeout}.List(ctx)
				if err != nil {
					return err
				}
				all := []roleJSON{}
				for _, r := range found {
					all = append(all, roleOf(r))
				}
				if len(all) == 0 {
					a.note("etcd has no role of Quotient")
				}
				return a.emitRoles(all, map[string]any{"roles": all})
			})
		},
	}
}

func roleOf(r roles.Role) roleJSON {
	j := roleJSON{Role: r.Name, Grants: []grantJSON{}}
	for _, g := range r.Grants {
		p := "read"
		if g.Write {
			p = "readwrite"
		}
		j.Grants = append(j.Grants, grantJSON{g.Key, g.End, p})
	}
	return j
}

func (a *app) emitRoles(all []roleJSON, data any) error {
	return a.emit(data, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		format.Row(w, "ROLE", "PERMISSION", "KEYS")
		for _, r := range all {
			for _, g := range r.Grants {
				keys := g.Key
				if g.End != "" {
					keys += "*"
				}
				format.Row(w, format.Show(r.Role), g.Permission, format.Show(keys))
			}
		}
		for _, r := range all {
			switch {
			case r.DryRun:
				fmt.Fprintln(w, "dry run: nothing was written")
			case r.Added:
				fmt.Fprintf(w, "added user %s and granted it %s\n", format.Show(r.User), format.Show(r.Role))
			case r.User != "":
				fmt.Fprintf(w, "granted %s to user %s, whose password is as it was\n", format.Show(r.Role), format.Show(r.User))
			}
		}
	})
}
