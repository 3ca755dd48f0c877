package main

import (
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// exactly demands the named arguments, the first of which, if any, is a
// provider.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usageError(cmd, "%s is missing", strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return usageError(cmd, "%q is one argument too many", args[len(names)])
		case len(args) == 0:
			return nil
		}
		if err := quota.ValidateProvider(args[0]); err != nil {
			return usageError(cmd, "%v", err)
		}
		return nil
	}
}

// atMostOne takes one argument of any kind, or none.
func atMostOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usageError(cmd, "%q is one argument too many after %s", args[1], name)
		}
		return nil
	}
}

// revisionFlag is --if-revision.
type revisionFlag struct {
	cmd   *cobra.Command
	least int64 // the smallest revision that makes sense
	value int64
}

const revisionFlagName = "if-revision"

// addRevisionFlag adds --if-revision to a command that writes.
func addRevisionFlag(cmd *cobra.Command, least int64, usage string) *revisionFlag {
	f := &revisionFlag{cmd: cmd, least: least}
	cmd.Flags().Int64Var(&f.value, revisionFlagName, 0, usage)
	return f
}

// conflict returns an error if the policy is at another revision than the one
// given.
func (f *revisionFlag) conflict(provider string, have int64) error {
	if !f.given() || f.value == have {
		return nil
	}
	return &coordinator.ConflictError{Provider: provider, Have: have, Want: f.value}
}

func (f *revisionFlag) given() bool { return f.cmd.Flags().Changed(revisionFlagName) }

func (f *revisionFlag) check() error {
	if f.given() && f.value < f.least {
		return usageError(f.cmd, "--%s %d: a revision is at least %d; get shows it", revisionFlagName, f.value, f.least)
	}
	return nil
}

// envAuthor names who a change is recorded for, where a machine makes it on
// somebody's behalf.
const envAuthor = "QUOTIENT_AUTHOR"

// author says who runs the tool, for the history: user@host.
func author(env func(string) string) string {
	if name := env(envAuthor); name != "" {
		return name
	}
	name := env("SUDO_USER") // the person behind root
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	if name == "" {
		name = "unknown"
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
