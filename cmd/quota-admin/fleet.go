package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/trouble"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// fleet is what instances shows as JSON.
type fleet struct {
	Provider       string `json:"provider"`
	Revision       int64  `json:"revision"`
	PolicyRevision int64  `json:"policy_revision"` // 0: there is no valid policy
	// Limit is the shortest one in force, which the shares are of; null where
	// none is.
	Limit *limitJSON `json:"limit"`
	// Level is that in force for the running window, null unless shares are by
	// demand.
	Level *levelJSON `json:"level,omitempty"`
	Count int        `json:"count"`
	// Applied is how many reported that they apply the policy at PolicyRevision.
	Applied     int            `json:"applied"`
	SumOfShares int64          `json:"sum_of_shares"`
	Instances   []instanceJSON `json:"instances"`
	// Problem is why the policy that is set cannot be applied.
	Problem string `json:"problem,omitempty"`

	limit quota.Limit
	mode  quota.Mode
	now   time.Time

	view    quota.View
	demands map[string]int64 // coordinator.Fleet.Demands
}

// limitJSON is a limit as in a policy's JSON.
type limitJSON struct {
	Permits int64  `json:"permits"`
	Window  string `json:"window"`
}

// readFleet reads a provider's policy, instances and reports, all at one
// revision.
func readFleet(ctx context.Context, admin *coordinator.Admin, provider string, now time.Time) (*fleet, error) {
	read, err := admin.Fleet(ctx, provider)
	if err != nil {
		return nil, err
	}
	if read.Policy.Revision == 0 && len(read.Instances) == 0 {
		return nil, fmt.Errorf("%s: %w", provider, coordinator.ErrNotFound)
	}
	view := read.View()
	f := newFleet(provider, view, read.Demands, read.Instances, now)
	f.view, f.demands = view, read.Demands
	f.Problem = problem(read.Policy)
	return f, nil
}

// newFleet joins what a view says with what the instances say of themselves.
// Instances that came after all was read have no report yet.
func newFleet(provider string, view quota.View, demands map[string]int64, all []coordinator.InstanceStatus, now time.Time) *fleet {
	f := &fleet{
		Provider: provider, Revision: view.Revision, PolicyRevision: view.PolicyRevision,
		Count: len(view.Instances), Instances: []instanceJSON{}, now: now,
	}
	var shares map[string]int64
	if view.Policy != nil {
		if limits := view.Policy.LimitsAt(now.UnixNano()); len(limits) > 0 {
			f.limit, f.mode = limits[0], view.Policy.Mode
			f.Limit = &limitJSON{f.limit.Permits, f.limit.Window.String()}
			_, shares, _ = share.Of(&view, quota.WindowAt(f.limit.Window, now.UnixNano()), demands)
		}
	}
	alive := make(map[string]quota.Instance, len(view.Instances))
	for _, i := range view.Instances {
		alive[i.ID] = i
	}
	for _, s := range all {
		i, ok := alive[s.Instance.ID]
		if !ok {
			continue // ended meanwhile
		}
		delete(alive, i.ID)
		f.add(i, s, shares)
	}
	for _, i := range view.Instances {
		if _, ok := alive[i.ID]; ok {
			f.add(i, coordinator.InstanceStatus{}, shares)
		}
	}
	return f
}

func (f *fleet) add(i quota.Instance, s coordinator.InstanceStatus, shares map[string]int64) {
	j := instanceJSON{
		Incarnation: i.ID, Name: i.Name, Host: i.Host, PID: i.PID, Version: i.Version, Weight: i.Weight,
		Started: i.Started, From: i.From, Until: i.Until, Report: s.Report,
	}
	if n, ok := shares[i.ID]; ok || f.Limit != nil {
		j.Share = &n
		f.SumOfShares += n
	}
	if s.Report != nil && s.Report.PolicyRevision == f.PolicyRevision && f.PolicyRevision != 0 {
		f.Applied++
	}
	if s.Problem != nil {
		j.Problem = oneLine(s.Problem)
	}
	f.Instances = append(f.Instances, j)
}

// summary is the line under the table.
func (f *fleet) summary() string {
	total := "no policy in force"
	if f.Limit != nil {
		total = "total " + f.limit.String()
		if f.mode != quota.ModeEnforce {
			total += " (mode " + clean(string(f.mode)) + ")"
		}
	}
	line := fmt.Sprintf("%s, %s, sum of shares %d", total, instances(f.Count), f.SumOfShares)
	if f.PolicyRevision != 0 && f.Count > 0 {
		line += fmt.Sprintf(", policy revision %d applied by %d of %d", f.PolicyRevision, f.Applied, f.Count)
	}
	return line
}

// troubles says what is wrong with instances, and what they say themselves.
func (f *fleet) troubles() []string {
	var l trouble.List
	for _, i := range f.Instances {
		l.Found(i.Incarnation, i.Problem)
		if i.Report != nil {
			l.Said(i.Incarnation, i.Report.Problem)
		}
	}
	return l.Lines()
}

func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}
