package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// settings are what set changes. Fields that are not named stay as they are.
type settings struct {
	limits   []quota.Limit
	at       string
	duration time.Duration
	fields   map[string][]func(*quota.Policy) // by flag
}

func (a *app) setCommand() *cobra.Command {
	s := settings{fields: map[string][]func(*quota.Policy){}}
	create := false
	cmd := &cobra.Command{
		Use:   "set PROVIDER LIMITS",
		Short: "Set the limits of a provider, now or for later",
		Long: `Set the limits of a provider. Fields without a flag keep their values; a new policy
starts with the defaults.

With --at the change is written now. It takes effect in the first window that starts
at TIME or later, in the same window on every instance, and costs no permits. TIME is
2027-01-01T00:00:00Z, 2027-01-01 00:00 or 00:00 (local time), or +90s. With --for the
limits return by themselves when the time is over. Setting limits keeps the announced
changes; get shows them, cancel removes them.

A change by a factor above --max-step is refused as a typing error, unless --force
is given. A new provider with nearly the name of another is refused too, unless
--create is given; on a terminal the command asks.

Without --if-revision the change is refused with exit code 4 if another change of
the policy is written at the same moment.`,
		Example: `  quota-admin set payments/charge 300000/s --reason campaign --wait
  quota-admin set payments/charge 150000/s --at 00:00
  quota-admin set payments/charge 500000/s --at 2027-01-01T00:00:00Z --for 2h
  quota-admin set payments/charge 500/2s,10000/1m --if-revision 17 --dry-run`,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			s.limits, err = quota.ParseLimits(args[1])
			return err
		},
	}
	a.flag(cmd, "at", "announce it for `TIME`, at least settle + 2 clock errors ahead", func(text string) error {
		s.at = text
		_, err := parseWhen(text, time.Now())
		return err
	})
	a.flag(cmd, "for", "return to the limits without this change after this time", func(text string) (err error) {
		s.duration, err = positive(text)
		return err
	})
	e := a.edits(cmd, 0)
	e.steps = true
	cmd.Flags().BoolVar(&e.force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&create, "create", false, "set a new provider although another has nearly the same name")
	for _, f := range fields {
		a.flag(cmd, f.flag, f.usage, func(text string) error {
			set, err := f.parse(text)
			s.fields[f.flag] = append(s.fields[f.flag], set)
			return err
		})
	}
	e.next = func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, err error) {
		if old.Revision == 0 && !create && !e.revision.given {
			if err := a.mayCreate(ctx, admin, old.Provider); err != nil {
				return p, err
			}
		}
		p, e.at, err = s.apply(old.Policy, now)
		return p, err
	}
	return cmd
}

// apply returns the policy that the settings make of the one that was there, and
// the instant that it is announced for, if any. An old policy without limits
// stands for none.
func (s *settings) apply(old quota.Policy, now time.Time) (p quota.Policy, at time.Time, err error) {
	p = old.Clone()
	for _, f := range fields {
		for _, set := range s.fields[f.flag] {
			set(&p)
		}
	}
	if s.at != "" {
		if at, err = parseWhen(s.at, now); err != nil {
			return p, at, err
		}
	}
	if p, err = change.SetLimits(old, p, s.limits, change.Timing{At: at, For: s.duration}, now); err != nil {
		err = refused(err)
	}
	return p, at, err
}

// mayCreate refuses a new provider whose name is nearly that of another: a typing
// error would leave the one that was meant as it is. On a terminal it asks. A user
// that may not list providers is not refused.
func (a *app) mayCreate(ctx context.Context, admin *coordinator.Admin, provider string) error {
	all, err := admin.List(ctx)
	if errors.Is(err, coordinator.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	near, least := "", 3
	for _, s := range all {
		if d := distance(provider, s.Provider); d < least && len(provider) > 2*d && withoutDigits(provider) != withoutDigits(s.Provider) {
			near, least = s.Provider, d
		}
	}
	if near == "" || isTerminal(a.stdin) && a.confirm(fmt.Sprintf("There is no provider %s, but %s. Create it?", provider, near)) {
		return nil
	}
	return refused(fmt.Errorf("there is no provider %s; did you mean %s? To set a new one give --create", provider, near))
}

// withoutDigits makes names that are numbered alike: none is a typing error of
// another.
func withoutDigits(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name)
}

// distance is how many characters must be inserted, deleted or replaced to make one
// text the other (Levenshtein).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0]++
		for j := range y {
			replaced := diagonal
			if x[i] != y[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
