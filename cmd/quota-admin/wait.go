package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
)

// waitFlag is --wait, with an optional time.
type waitFlag struct{ most time.Duration }

const defaultWait = 30 * time.Second

func addWait(cmd *cobra.Command, f *waitFlag) {
	cmd.Flags().Var(f, "wait", "wait until every instance has applied it, at most this long")
	cmd.Flags().Lookup("wait").NoOptDefVal = defaultWait.String()
}

func (f *waitFlag) given() bool { return f.most > 0 }
func (f *waitFlag) String() string {
	if f.most == 0 {
		return ""
	}
	return f.most.String()
}
func (f *waitFlag) Type() string { return "duration" }
func (f *waitFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("write a time above 0, as in --wait=1m; --wait alone is %v", defaultWait)
	}
	f.most = d
	return nil
}

// waitJSON is what came of waiting, as JSON.
type waitJSON struct {
	Provider  string    `json:"provider"`
	Revision  int64     `json:"revision"`
	Applied   int       `json:"applied"`
	Instances int       `json:"instances"`
	InForce   time.Time `json:"in_force_from"`
	Laggards  []laggard `json:"laggards,omitempty"`
}

// laggard is an instance that has not said that it applied the policy.
type laggard struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Why         string `json:"why"`
}

// summary is the line that says who has applied what.
func (w *waitJSON) summary(now time.Time) string {
	return fmt.Sprintf("applied by %d of %s at revision %d, in force from %s", w.Applied, format.Count(w.Instances, "instance"), w.Revision, clockTime(w.InForce, now))
}

// waitEvery is how often the reports are looked at: they come once a second.
const waitEvery = 300 * time.Millisecond

// await waits until every live instance has reported that it applied the policy,
// or until ctx ends, after most. The error names the instances that have not.
func (a *app) await(ctx context.Context, admin *coordinator.Admin, s coordinator.Stored, from time.Time, most time.Duration) (*waitJSON, error) {
	// An instance reports a new policy by itself; looked at, it also tells within
	// a second of what troubles it.
	if stop, err := admin.Observe(ctx, s.Provider); err == nil {
		defer stop()
	}
	w := &waitJSON{Provider: s.Provider, Revision: s.Revision, InForce: from}
	for {
		f, err := admin.Fleet(ctx, s.Provider)
		switch {
		case err == nil:
			w.count(&f, time.Now())
			if w.Applied == w.Instances {
				return w, nil
			}
			if f.Policy.Revision == 0 {
				return w, fmt.Errorf("the policy of %s was deleted while waiting", s.Provider)
			}
		case ctx.Err() == nil:
			return w, err
		}
		select {
		case <-ctx.Done():
			return w, w.late(ctx.Err(), most)
		case <-time.After(waitEvery):
		}
	}
}

// count compares what the instances reported last with what was written.
func (w *waitJSON) count(f *coordinator.Fleet, now time.Time) {
	w.Applied, w.Instances, w.Laggards = 0, len(f.Instances), nil
	for _, s := range f.Instances {
		r, why := s.Report, "has not reported yet"
		switch {
		case r != nil && r.PolicyRevision >= w.Revision:
			w.Applied++
			continue
		case s.Problem != nil:
			why = format.OneLine(s.Problem)
		case r != nil:
			why = fmt.Sprintf("has policy revision %d, is %s, reported %v ago", r.PolicyRevision, r.State, max(0, now.Sub(r.Time)).Round(time.Second))
			if r.Problem != "" {
				why += ": " + r.Problem
			}
		}
		w.Laggards = append(w.Laggards, laggard{s.Instance.Name, s.Instance.ID, why})
	}
}

// laggardsShown bounds the names in an error; JSON has all.
const laggardsShown = 10

func (w *waitJSON) late(err error, most time.Duration) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if w.Instances == 0 {
		return kinded{fmt.Errorf("the fleet of %s could not be read within %v; the change is made", w.Provider, most), errLate}
	}
	var lines []string
	for i, l := range w.Laggards {
		if i == laggardsShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(w.Laggards)-i))
			break
		}
		lines = append(lines, l.Incarnation+": "+l.Why)
	}
	return &hinted{kinded{fmt.Errorf("%s: applied by %d of %s at revision %d after %v; the change is made, but not by: %s",
		w.Provider, w.Applied, format.Count(w.Instances, "instance"), w.Revision, most, strings.Join(w.names(), ", ")), errLate}, lines}
}

func (w *waitJSON) names() (names []string) {
	for i, l := range w.Laggards {
		if i == laggardsShown {
			return append(names, fmt.Sprintf("and %d more", len(w.Laggards)-i))
		}
		names = append(names, l.Incarnation)
	}
	return names
}
