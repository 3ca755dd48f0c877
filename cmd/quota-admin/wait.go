package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

const defaultWait = 30 * time.Second

type waitJSON struct {
	Provider  string    `json:"provider"`
	Revision  int64     `json:"revision"`
	Applied   int       `json:"applied"`
	Instances int       `json:"instances"`
	InForce   time.Time `json:"in_force_from"`
	Laggards  []laggard `json:"laggards,omitempty"`

	policy  int64 // revision of the policy; Revision is later where limits of single keys changed after it
	paused  bool  // the policy has all issue nothing: once all have applied it, it is in force
	healthy bool  // wait until instances issue permits, too
	only    bool  // nothing was changed
}

func (a *app) waitCommand() *cobra.Command {
	healthy, most := false, defaultWait
	cmd := &cobra.Command{
		Use:   "wait PROVIDER...",
		Short: "Wait until every instance has applied the policy, or is healthy",
		Long: `Wait until every live instance has applied the policy that is set, and the limits of single
keys. With --healthy, wait until there is an instance, and each is active or paused and
reports no problem. The exit code is 8 if that takes longer than --timeout.`,
		Example: `  quota-admin wait payments/charge
  quota-admin wait payments/charge payments/refund --healthy --timeout 2m`,
	}
	cmd.Flags().BoolVar(&healthy, "healthy", false, "also wait until there is an instance, and each is active or paused, without a problem")
	addFlag(a, cmd, &most, "timeout", positive, "wait at most this `duration`; default: "+defaultWait.String())
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		var waits, left []*waitJSON
		for _, provider := range args {
			w, err := waitFor(ctx, etcd.Client, provider)
			if err != nil {
				return err
			}
			w.healthy, w.only = healthy, true
			waits = append(waits, w)
		}
		left = append(left, waits...)
		err := a.awaitAll(ctx, etcd.Client, most, left)
		if a.format == format.Table {
			return err
		}
		return errors.Join(a.emit(map[string]any{"waits": waits}, nil), err)
	})
}

// waitFor returns what to wait for where the newest changes of a provider are to be applied: of its policy, and of the
// limits of single keys. These are left out, and the change of the policy counts as a new one, if the history may not be
// read.
func waitFor(ctx context.Context, operator *admin.Client, provider string) (*waitJSON, error) {
	s, err := operator.Get(ctx, provider)
	if err != nil {
		return nil, err
	}
	records, err := operator.History(ctx, provider)
	if err != nil && !errors.Is(err, coordinator.ErrPermission) {
		return nil, err
	}
	w, was := &waitJSON{Provider: provider, Revision: s.Revision, policy: s.Revision, paused: s.Policy.Mode == quota.ModePause}, quota.Policy{}
	for _, r := range records {
		if r.Revision == s.Revision && r.Old != nil {
			was = *r.Old
		}
		for _, both := range r.Keys {
			w.Revision = max(w.Revision, r.Revision)
			if from := keyInForce(&s.Policy, both, r.Time); from.After(w.InForce) {
				w.InForce = from
			}
		}
	}
	if from := inForce(was, s.Policy, time.Time{}, s.Policy.Time); from.After(w.InForce) {
		w.InForce = from
	}
	return w, nil
}

// awaitKeys waits, for at most so long, until every instance has applied changes of the limits of single keys that were
// made before.
func (a *app) awaitKeys(ctx context.Context, operator *admin.Client, most time.Duration, providers ...string) (all []*waitJSON, err error) {
	for _, provider := range providers {
		w, err := waitFor(ctx, operator, provider)
		if err != nil {
			return nil, fmt.Errorf("the change is made; whether every instance has applied it is not known: %w", err)
		}
		all = append(all, w)
	}
	return all, a.awaitAll(ctx, operator, most, slices.Clone(all))
}

// keyInForce is inForce of a change of the limits of one key, made at an instant under a policy. Its texts are those of
// admin.Record.Keys. It is zero if the provider has no limits by key.
func keyInForce(p *quota.Policy, change [2]string, now time.Time) time.Time {
	var own [2]*protocol.Override
	for i, text := range change {
		if o, err := protocol.ParseOverride(text); err == nil && text != "" {
			own[i] = o
		}
	}
	before, after, at := ofKey(p, own[0]), ofKey(p, own[1]), time.Time{}
	if before == nil || after == nil {
		return at
	}
	if own[0].In(p.Keys).Owners != own[1].In(p.Keys).Owners { // it counts as if it was announced
		at = now.Add(p.Settle)
	}
	return inForce(*before, *after, at, now)
}

// ill says why an instance that has applied the policy is not healthy; "" if it is.
func ill(r *protocol.Report) string {
	switch {
	case r.Problem != "":
		return fmt.Sprintf("is %s: %s", r.State, r.Problem)
	case r.State != quota.StateActive && r.State != quota.StatePaused:
		return fmt.Sprintf("is %s", r.State)
	}
	return ""
}

// laggard is an instance that has not said that it applied the policy.
type laggard struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Why         string `json:"why"`
}

func (w *waitJSON) summary() string {
	return fmt.Sprintf("applied by %d of %s at revision %d, in force from %s", w.Applied, format.Count(w.Instances, "instance"), w.Revision, format.Exact(w.InForce))
}

// waitEvery is how often the reports are looked at: they come once a second.
const waitEvery = 300 * time.Millisecond

// awaitAll waits, for at most so long, until every live instance has reported that it
// applied each of the policies. The error names the instances that have not.
func (a *app) awaitAll(ctx context.Context, operator *admin.Client, most time.Duration, all []*waitJSON) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var providers []string
	for _, w := range all {
		providers = append(providers, w.Provider)
	}
	// An instance reports a new policy by itself; while it is observed it also
	// reports within a second what is wrong with it.
	if stop, err := operator.Observe(ctx, providers...); err == nil {
		defer stop()
	}
	var failed []error
	for {
		all = slices.DeleteFunc(all, func(w *waitJSON) bool {
			done, err := w.look(ctx, operator)
			if err != nil {
				failed = append(failed, err)
			} else if done && a.format == format.Table {
				fmt.Fprintf(a.stdout, "%s: %s\n", format.Show(w.Provider), w.summary())
			}
			return done || err != nil
		})
		if len(all) == 0 {
			return errors.Join(failed...)
		}
		select {
		case <-ctx.Done():
			for _, w := range all {
				failed = append(failed, w.late(most))
			}
			return errors.Join(failed...)
		case <-time.After(waitEvery):
		}
	}
}

func (w *waitJSON) look(ctx context.Context, operator *admin.Client) (bool, error) {
	f, err := feed.Inside(operator).Fleet(ctx, w.Provider)
	if ctx.Err() != nil {
		return false, nil //nolint:nilerr // late tells it
	}
	if err != nil {
		if !w.only { // it follows a change
			err = w.unknown(err)
		}
		return false, err
	}
	now := time.Now()
	if w.count(&f, now); w.Applied < w.Instances && f.Policy.Revision == 0 {
		err = fmt.Errorf("the policy of %s was deleted while waiting", w.Provider)
	}
	done := w.Applied == w.Instances && (w.Instances > 0 || !w.healthy)
	if done && w.paused && w.InForce.After(now) {
		w.InForce = now.Truncate(time.Millisecond).UTC()
	}
	return done, err
}

// unknown says of a change that it is written, where an error keeps it from being followed.
func (w *waitJSON) unknown(err error) error {
	return &fault{fmt.Errorf("%s: revision %d is written; whether every instance has applied it is not known: %w", w.Provider, w.Revision, err), errLate,
		[]string{"quota-admin wait " + w.Provider + " follows it when etcd answers; quota-admin doctor finds the cause"}}
}

// count compares what the instances reported last with what was written.
func (w *waitJSON) count(f *protocol.Fleet, now time.Time) {
	w.Applied, w.Instances, w.Laggards = 0, len(f.Instances), nil
	for _, s := range f.Instances {
		r, why := s.Report, "has not reported yet"
		switch {
		case r != nil && r.PolicyRevision >= w.policy && max(r.PolicyRevision, r.Revision) >= w.Revision:
			if why = ill(r); !w.healthy || why == "" {
				w.Applied++
				continue
			}
		case s.Problem != nil:
			why = format.OneLine(s.Problem)
		case r != nil:
			has := fmt.Sprintf("policy revision %d", r.PolicyRevision)
			if r.PolicyRevision >= w.policy {
				has = fmt.Sprintf("revision %d", r.Revision)
			}
			why = fmt.Sprintf("has %s, is %s, reported %v ago", has, r.State, max(0, now.Sub(r.Time)).Round(time.Second))
			if r.Problem != "" {
				why += ": " + r.Problem
			}
		}
		w.Laggards = append(w.Laggards, laggard{s.Instance.Name, s.Instance.ID, why})
	}
}

// laggardsShown bounds the names in an error; JSON has all.
const laggardsShown = 10

func (w *waitJSON) late(most time.Duration) error {
	switch {
	case w.Instances == 0 && w.only:
		return &fault{fmt.Errorf("no instance of %s was running within %v; the first that starts will use the policy", w.Provider, most), errLate, nil}
	case w.Instances == 0:
		return &fault{fmt.Errorf("the fleet of %s could not be read within %v; the change is made", w.Provider, most), errLate, nil}
	}
	var lines []string
	for _, l := range w.Laggards[:min(laggardsShown, len(w.Laggards))] {
		lines = append(lines, l.Incarnation+": "+l.Why)
	}
	if more := len(w.Laggards) - laggardsShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	made := "the change is made, but "
	switch {
	case w.healthy:
		return &fault{fmt.Errorf("%s: %d of %s are healthy after %v", w.Provider, w.Applied, format.Count(w.Instances, "instance"), most), errLate, lines}
	case w.only:
		made = ""
	}
	return &fault{fmt.Errorf("%s: %sapplied by %d of %s at revision %d after %v",
		w.Provider, made, w.Applied, format.Count(w.Instances, "instance"), w.Revision, most), errLate, lines}
}

func when(text string) (time.Time, error) { return parseWhen(text, time.Now()) }

// parseWhen reads an instant: with date and zone, with the date in the zone of now, as
// the next time of day there, or as a time from now.
func parseWhen(text string, now time.Time) (time.Time, error) {
	if d, ok := strings.CutPrefix(text, "+"); ok {
		if ahead, err := time.ParseDuration(d); err == nil && ahead >= 0 {
			// Full seconds are easier on the eye.
			return now.Add(ahead + time.Second - 1).Truncate(time.Second).UTC(), nil
		}
	}
	for days, t := range []string{text, now.Format("2006-01-02 ") + text, now.AddDate(0, 0, 1).Format("2006-01-02 ") + text} {
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
			if at, err := time.ParseInLocation(layout, t, now.Location()); err == nil && (days == 0 || at.After(now)) {
				return at.UTC(), nil
			}
		}
	}
	return time.Time{}, errors.New("write a time as 2027-01-01T00:00:00Z, 2027-01-01 00:00 or 00:00 (local time), or +90s")
}

// gives reports whether what a limit of the next policy gives more counts at once.
func gives(old, next quota.Policy, l quota.Limit, now time.Time) bool {
	return share.Gives(&old, &next, quota.WindowAt(l.Window, now.UnixNano()))
}
