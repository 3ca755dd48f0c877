package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Set and show overrides: limits of single keys, in place of those for every key",
		Long: `Set and show overrides: the limits of single keys, in place of those that the policy of
the provider has for every key (set --keys). A provider has at most 10,000 overrides.
history shows their changes. export and apply have them too.`,
		Example: `  quota-admin keys set github installation-4711 400/s --reason "ticket 17"
  quota-admin keys list github
  quota-admin keys delete github installation-4711`,
	}
	cmd.AddCommand(a.keysSetCommand(), a.keysDeleteCommand(), a.keysListCommand())
	return cmd
}

// keyResult is the change of one key's limits.
type keyResult struct {
	Provider string      `json:"provider"`
	Key      string      `json:"key"`
	Old      string      `json:"old,omitempty"` // left out: it had no override
	New      string      `json:"new,omitempty"` // left out: it has none now
	Changed  bool        `json:"changed"`
	DryRun   *sharesJSON `json:"dry_run,omitempty"`
	Wait     *waitJSON   `json:"wait,omitempty"`
}

// keyEdit is a change of the limits of one key, with the flags that both commands have.
type keyEdit struct {
	a      *app
	reason string
	dryRun bool
	wait   time.Duration // 0: it does not wait
	// check refuses new limits of a key that has others by a policy; nil: it does not.
	check func(old, next quota.Policy) error
}

func (a *app) keyEdit(cmd *cobra.Command) *keyEdit {
	e := &keyEdit{a: a}
	cmd.Flags().StringVar(&e.reason, "reason", "", "`why`, for the history")
	a.waitFlag(cmd, &e.wait)
	cmd.Flags().BoolVar(&e.dryRun, "dry-run", false, "show the share that each instance would get, and write nothing")
	return e
}

func (a *app) keysSetCommand() *cobra.Command {
	force, most, own, owners := false, 0.0, protocol.Override{}, int64(0)
	cmd := &cobra.Command{
		Use:   "set PROVIDER KEY LIMITS",
		Short: "Set the limits of one key",
		Long: `Set the limits of one key, in place of those that the policy has for every key. Windows are
of 250 ms to a month, as in set --keys. A limit of 0/s blocks the key. A change by a factor
above the policy's greatest step is refused as a typing error, unless --force is given. The
key has the policy's number of owners, unless --owners gives it one of its own.`,
		Example: `  quota-admin keys set github installation-4711 400/s --reason "ticket 17"
  quota-admin keys set github installation-4711 400/s,5000/m --dry-run
  quota-admin keys set github big-account 4000/s --owners 3`,
		PreRunE: func(cmd *cobra.Command, args []string) (err error) {
			if cmd.Flags().Changed("owners") {
				own.Owners = &owners
			}
			own.Limits, err = quota.ParseLimits(args[2])
			return err
		},
	}
	e := a.keyEdit(cmd)
	addFlag(a, cmd, &most, "max-step", parseFactor, "allow a change by `FACTOR` times up or down; default: the greatest step of the policy")
	cmd.Flags().BoolVar(&force, "force", false, forceUsage)
	cmd.Flags().Int64Var(&owners, "owners", 0, "`N` instances share the limits of the key, and others borrow from them; 0: all share them; default: as the policy says")
	e.check = func(old, next quota.Policy) error {
		if force {
			return nil
		}
		return change.CheckStep(old, next, nil, time.Now(), most)
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		return e.run(ctx, etcd, args[0], args[1], &own)
	})
}

func (a *app) keysDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete PROVIDER KEY",
		Short:   "Delete the override of one key: the limits for every key apply to it again",
		Example: `  quota-admin keys delete github installation-4711 --reason "ticket 17"`,
	}
	e := a.keyEdit(cmd)
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		return e.run(ctx, etcd, args[0], args[1], nil)
	})
}

// run changes the override of a key, or deletes it if next is nil.
func (e *keyEdit) run(ctx context.Context, etcd connection, provider, key string, next *protocol.Override) error {
	r := keyResult{Provider: provider, Key: key}
	var notes []string
	changes, err := feed.Inside(etcd.Client).SetOverrides(ctx, provider, e.reason, func(old protocol.KeyOverrides) (map[string]*protocol.Override, error) {
		was := old.Keys[key]
		if next == nil && was == nil {
			return nil, notFound(fmt.Sprintf("key %s of %s has no limits of its own", format.Show(key), provider), "quota-admin keys list "+provider+" shows the keys that have")
		}
		if next != nil && protocol.ValidateOverride(key, next) != nil {
			return nil, refused(protocol.ValidateOverride(key, next))
		}
		before, after := ofKey(&old.Policy.Policy, was), ofKey(&old.Policy.Policy, next)
		if e.check != nil && before != nil && after != nil {
			if err := e.check(*before, *after); err != nil {
				return nil, refused(fmt.Errorf("key %s of %s: %w", format.Show(key), provider, err))
			}
		}
		if before != nil && after != nil {
			notes = atOnce(*before, *after, time.Now())
		}
		if all := old.Policy.Policy.Keys; before != nil && was.In(all).Owners != next.In(all).Owners {
			notes = []string{fmt.Sprintf("with another number of owners the change counts from the first window that starts %v after it; until then each instance has the smaller of both shares", old.Policy.Policy.Settle)}
		}
		if goes, comes := protocol.Continued(before, after, false); len(goes) > 0 && len(comes) > 0 {
			notes = append(notes, countsOn(goes, comes, " --key KEY"))
		}
		if after != nil && next != nil {
			notes = append(notes, byTheClock(next.Limits, old.Policy.Policy.Keys.Limits)...)
		}
		r.Old, r.New, r.Changed = was.String(), next.String(), !was.Equal(next)
		if !e.dryRun || !r.Changed {
			return map[string]*protocol.Override{key: next}, nil
		}
		f, err := feed.Inside(etcd.Client).Fleet(ctx, provider)
		if err == nil && after != nil {
			r.DryRun = compareKey(&f, key, was, next, after.Limits)
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	r.Changed = e.dryRun && r.Changed || len(changes) > 0
	if e.a.format == format.Table {
		if err := e.a.emit(nil, r.table); err != nil {
			return err
		}
	}
	if r.Changed {
		for _, n := range notes {
			e.a.note("%s", n)
		}
	}
	if e.dryRun {
		e.a.note("dry run: nothing was written")
	}
	if r.Changed && !e.dryRun && e.wait > 0 {
		var all []*waitJSON
		if all, err = e.a.awaitKeys(ctx, etcd.Client, e.wait, provider); len(all) > 0 {
			r.Wait = all[0]
		}
	}
	if e.a.format == format.Table {
		return err
	}
	return errors.Join(e.a.emit(r, nil), err)
}

func (r *keyResult) table(w io.Writer) {
	key := format.Show(r.Provider) + ": key " + format.Show(r.Key)
	limits := func(text string) string {
		if text == "" {
			return "those of each key"
		}
		return text
	}
	if !r.Changed {
		fmt.Fprintf(w, "%s: %s (%s)\n", key, noChange, limits(r.New))
		return
	}
	fmt.Fprintf(w, "%s: %s -> %s\n", key, limits(r.Old), limits(r.New))
	if r.DryRun != nil {
		r.DryRun.table(w)
	}
}

// ofKey is the policy of a key with its override, or without; nil if the provider has no limits
// by key.
func ofKey(p *quota.Policy, own *protocol.Override) *quota.Policy {
	k := protocol.OfKeys(p)
	if k != nil && own != nil {
		k.Limits = protocol.WithPhases(own.Limits, k.Limits)
	}
	return k
}

// byTheClock says which limits of one key do not slide because none of those of each key has the same window.
func byTheClock(own, each []quota.Limit) (notes []string) {
	for _, l := range own {
		if l.Long() && !slices.ContainsFunc(each, func(e quota.Limit) bool { return e.Window == l.Window }) {
			notes = append(notes, fmt.Sprintf("%v goes by the clock, and does not slide: %s, the limits of each key, have no window of the same length", l, quota.FormatLimits(each)))
		}
	}
	return notes
}

// limitsOf is empty for none.
func limitsOf(limits []quota.Limit) string {
	if len(limits) == 0 {
		return ""
	}
	return quota.FormatLimits(limits)
}

// compareKey computes the shares of a key in the window of its first limit that begins now; nil
// if that has none, because instances take its permits from etcd.
func compareKey(f *protocol.Fleet, key string, was, will *protocol.Override, in []quota.Limit) *sharesJSON {
	if in[0].Long() {
		return nil
	}
	w := quota.WindowAt(in[0].Window, time.Now().UnixNano())
	c := &sharesJSON{Start: time.Unix(0, w.Start()).UTC(), Window: w.Length.Seconds(), window: w.Length, Instances: []instanceShareNew{}}
	divide := func(own *protocol.Override) (total *int64, shares map[string]int64) {
		v := f.View()
		if own != nil {
			v.Overrides = map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Keys: map[string]*protocol.Override{key: own}}}
		}
		n, shares, known := share.OfKey(&v, key, w)
		return knownOr(n, known), shares
	}
	var before, after map[string]int64
	c.OldTotal, before = divide(was)
	c.NewTotal, after = divide(will)
	for _, s := range f.Instances {
		id := s.Instance.ID
		c.Instances = append(c.Instances, instanceShareNew{id, s.Instance.Name, knownOr(before[id], c.OldTotal != nil), knownOr(after[id], c.NewTotal != nil)})
	}
	return c
}

type keysJSON struct {
	Provider string            `json:"provider"`
	Each     string            `json:"each"` // the limits of all other keys; empty: they have none
	Keys     map[string]string `json:"keys"`
	Problem  string            `json:"problem,omitempty"`
}

func (a *app) keysListCommand() *cobra.Command {
	return a.onEtcd(&cobra.Command{
		Use:   "list PROVIDER [KEY-PREFIX]",
		Short: "Show the keys that have limits of their own, or those whose name begins with KEY-PREFIX",
		Example: `  quota-admin keys list github
  quota-admin keys list github installation-47`,
	}, func(ctx context.Context, etcd connection, args []string) error {
		o, err := feed.Inside(etcd.Client).Overrides(ctx, args[0])
		if err != nil {
			return err
		}
		each, shown := o.Policy.Policy.Keys.Limits, map[string]string{} // with what the policy says of windows as long
		data := keysJSON{args[0], limitsOf(each), map[string]string{}, format.OneLine(o.Problem)}
		for name, own := range o.Keys {
			if strings.HasPrefix(name, strings.Join(args[1:], "")) {
				data.Keys[name] = own.String()
				in := *own
				in.Limits = protocol.WithPhases(own.Limits, each)
				shown[name] = in.String()
			}
		}
		if data.Problem != "" {
			a.note("%s", data.Problem)
		}
		if len(data.Keys) == 0 {
			a.note("no key has limits of its own; each key: %s", orNone(data.Each))
		} else if data.Each == "" {
			a.note("%s has no limits by key, so these do not count", args[0])
		} else {
			a.note("each key without limits of its own: %s", data.Each)
		}
		return a.emit(data, func(w io.Writer) {
			if len(data.Keys) > 0 {
				format.Row(w, "KEY", "LIMITS")
			}
			for _, name := range slices.Sorted(maps.Keys(data.Keys)) {
				format.Row(w, format.Name(name), shown[name])
			}
		})
	})
}

func orNone(text string) string {
	if text == "" {
		return "no limits"
	}
	return text
}
