package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/roles"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/keys"
)

func (a *app) rolesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "roles",
		Short: "Create the least-privilege etcd roles and users",
		Long: `Create roles in etcd with the permissions that their users need, and no more:

  consumer PROVIDER     reads the provider; writes the keys of its instances
  operator [PROVIDER]   sets policies; reads fleets
  reader [PROVIDER]     reads

An existing role is corrected: other permissions are revoked from it. With --to it
is granted to a user, which is added if needed. This takes etcd's root user (--user
root, or a certificate of root). Roles apply once authentication is on: enable turns
it on.`,
		Example: `  quota-admin roles consumer payments/charge --to charge-service --no-password --user root
  quota-admin roles operator --to ann --user root
  quota-admin roles reader --to monitoring --new-password-file monitoring.secret --user root
  quota-admin roles enable --cert root.pem --key root-key.pem --no-password
  quota-admin roles list --user root`,
	}
	cmd.AddCommand(
		a.roleCommand(roles.Consumer, "PROVIDER", "the instances of one provider's consumer"),
		a.roleCommand(roles.Operator, "[PROVIDER]", "operators, who set policies, of one provider or of all"),
		a.roleCommand(roles.Reader, "[PROVIDER]", "readers, of one provider or of all"),
		a.rolesEnableCommand(),
		a.rolesListCommand(),
	)
	return cmd
}

// envNewPassword is the password of a user that is added.
const envNewPassword = "QUOTIENT_NEW_PASSWORD" //nolint:gosec // the name of a variable, not a secret

type roleResult struct {
	roles.Role
	User   string `json:"user,omitempty"`
	Added  bool   `json:"user_added,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (a *app) roleCommand(kind roles.Kind, provider, who string) *cobra.Command {
	var r roleResult
	var passwordFile string
	user := roles.User{}
	cmd := &cobra.Command{
		Use:     string(kind) + " " + provider,
		Short:   "Create the role of " + who,
		Example: "  quota-admin roles " + string(kind) + " payments/charge --to NAME --user root",
	}
	flags := cmd.Flags()
	flags.StringVar(&user.Name, "to", "", "grant it to the etcd user `NAME`, which is added if needed")
	flags.StringVar(&passwordFile, "new-password-file", "", "`file` with the password of a user that is added; else "+envNewPassword+" or a prompt")
	flags.BoolVar(&user.NoPassword, "no-password", false, "add the user without a password; it logs in by a client certificate with that name")
	flags.BoolVar(&r.DryRun, "dry-run", false, "show the role, and write nothing")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if r.User = user.Name; r.User == "" && (user.NoPassword || passwordFile != "") {
			return usageError(cmd, "a password is of a user: give --to")
		}
		return nil
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		layout, err := keys.New(a.etcd.Prefix)
		if err != nil {
			return err
		}
		if r.Role, err = roles.New(layout, kind, strings.Join(args, "")); err != nil {
			return err
		}
		if !r.DryRun {
			if err := a.makeRole(ctx, a.rolesOf(etcd), &r, user, passwordFile); err != nil {
				return err
			}
		}
		return a.emit(r, func(w io.Writer) { rolesTable(w, r) })
	})
}

func (a *app) rolesOf(etcd connection) roles.Etcd {
	return roles.Etcd{Client: etcd.client, Timeout: a.etcd.CommandTimeout}
}

func (a *app) makeRole(ctx context.Context, etcd roles.Etcd, r *roleResult, user roles.User, passwordFile string) error {
	// The password first: without one nothing should be half done.
	err := a.passwordOf(ctx, etcd, &user, passwordFile)
	if err == nil {
		err = etcd.Put(ctx, r.Role)
	}
	if err == nil && user.Name != "" {
		r.Added, err = etcd.GrantTo(ctx, user, r.Name)
	}
	if err != nil {
		return err
	}
	if on, err := etcd.Authenticated(ctx); err == nil && !on {
		a.note("authentication is off, so roles do not count yet: see quota-admin help roles enable")
	}
	return nil
}

// passwordOf finds the password of a user that is to be added and needs one.
func (a *app) passwordOf(ctx context.Context, etcd roles.Etcd, user *roles.User, file string) error {
	if user.Name == "" || user.NoPassword {
		return nil
	}
	exists, err := etcd.UserExists(ctx, user.Name)
	if err == nil && !exists {
		user.Password, err = a.newPassword(user.Name, file)
	}
	return err
}

func (a *app) newPassword(user, file string) (string, error) {
	if file != "" {
		return etcdflags.ReadSecret(file)
	}
	if p := a.env(envNewPassword); p != "" {
		return p, nil
	}
	first, ok, err := a.etcd.Ask("Password for the new etcd user " + user + ": ")
	if err == nil && !ok {
		err = fmt.Errorf("user %s is to be added and needs a password: give --new-password-file or %s, or --no-password if it logs in by certificate", user, envNewPassword)
	}
	if err != nil {
		return "", err
	}
	again, _, err := a.etcd.Ask("The same again: ")
	switch {
	case err != nil:
	case first == "":
		err = errors.New("the password is empty")
	case first != again:
		err = errors.New("the two passwords differ")
	}
	return first, err
}

func (a *app) rolesEnableCommand() *cobra.Command {
	const root = "root" // as etcd names its superuser, and the role
	var passwordFile string
	user := roles.User{Name: root}
	cmd := &cobra.Command{
		Use:   "enable",
		Short: "Turn etcd's authentication on, with its user root",
		Long: `Turn etcd's authentication on. Its user root is added if needed, with role root.
Create the other roles and users first: from then on etcd refuses everybody else.
A second run changes nothing.`,
		Example: "  quota-admin roles enable --cert root.pem --key root-key.pem --no-password",
	}
	flags := cmd.Flags()
	flags.StringVar(&passwordFile, "new-password-file", "", "`file` with the password of root, if it is added; else "+envNewPassword+" or a prompt")
	flags.BoolVar(&user.NoPassword, "no-password", false, "add root without a password; it logs in by a client certificate of that name, as this command must")
	return a.onEtcd(cmd, func(ctx context.Context, c connection, _ []string) error {
		if name := a.etcd.CertificateUser(); user.NoPassword && name != root {
			return usageError(cmd, "--no-password: then only a certificate of root logs in, and --cert is of %q; connect by root's certificate, or give root a password", name)
		}
		etcd := a.rolesOf(c)
		err := a.passwordOf(ctx, etcd, &user, passwordFile)
		if err == nil {
			_, err = etcd.GrantTo(ctx, user, root)
		}
		if err == nil {
			err = etcd.Authenticate(ctx)
		}
		if err != nil {
			return err
		}
		return a.emit(map[string]bool{"authentication": true}, func(w io.Writer) { fmt.Fprintln(w, "authentication is on") })
	})
}

func (a *app) rolesListCommand() *cobra.Command {
	return a.onEtcd(&cobra.Command{
		Use:     "list",
		Short:   "Show Quotient's roles in etcd and their permissions",
		Example: "  quota-admin roles list --user root",
	}, func(ctx context.Context, etcd connection, _ []string) error {
		found, err := a.rolesOf(etcd).List(ctx)
		if err != nil {
			return err
		}
		all := []roleResult{}
		for _, r := range found {
			all = append(all, roleResult{Role: r})
		}
		if len(all) == 0 {
			a.note("etcd has no role of Quotient")
		}
		return a.emit(map[string]any{"roles": all}, func(w io.Writer) { rolesTable(w, all...) })
	})
}

func rolesTable(w io.Writer, all ...roleResult) {
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
			format.Row(w, format.Show(r.Name), g.Permission, format.Show(keys))
		}
	}
	for _, r := range all {
		switch {
		case r.DryRun:
			fmt.Fprintln(w, "dry run: nothing was written")
		case r.Added:
			fmt.Fprintf(w, "added user %s and granted it %s\n", format.Show(r.User), format.Show(r.Name))
		case r.User != "":
			fmt.Fprintf(w, "granted %s to user %s, whose password is as it was\n", format.Show(r.Name), format.Show(r.User))
		}
	}
}
