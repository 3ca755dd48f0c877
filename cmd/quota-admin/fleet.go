package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	Limit       *limitJSON     `json:"limit"`
	Count       int            `json:"count"`
	SumOfShares int64          `json:"sum_of_shares"`
	Instances   []instanceJSON `json:"instances"`
	// Problem is why the policy that is set cannot be applied.
	Problem string `json:"problem,omitempty"`

	limit quota.Limit
	now   time.Time
}

// limitJSON is a limit as in a policy's JSON.
type limitJSON struct {
	Permits int64  `json:"permits"`
	Window  string `json:"window"`
}

// readFleet reads a provider's policy, instances and reports. Shares and total
// are computed from one view, so that they belong together.
func readFleet(ctx context.Context, admin *coordinator.Admin, provider string, now time.Time) (*fleet, error) {
	all, err := admin.Instances(ctx, provider)
	if err != nil {
		return nil, err
	}
	view, err := admin.View(ctx, provider)
	if err != nil {
		return nil, err
	}
	f := newFleet(provider, view, all, now)
	if view.Policy == nil {
		// None is set, or one that nobody can apply.
		s, err := admin.Get(ctx, provider)
		if err != nil && !(errors.Is(err, coordinator.ErrNotFound) && f.Count > 0) {
			return nil, err
		}
		f.Problem = problem(s)
	}
	return f, nil
}

// newFleet joins what a view says with what the instances say of themselves.
// Instances that came after all was read have no report yet.
func newFleet(provider string, view quota.View, all []coordinator.InstanceStatus, now time.Time) *fleet {
	f := &fleet{
		Provider: provider, Revision: view.Revision, PolicyRevision: view.PolicyRevision,
		Count: len(view.Instances), Instances: []instanceJSON{}, now: now,
	}
	var shares map[string]int64
	if view.Policy != nil {
		if limits := view.Policy.LimitsAt(now.UnixNano()); len(limits) > 0 {
			f.limit = limits[0]
			f.Limit = &limitJSON{f.limit.Permits, f.limit.Window.String()}
			_, shares, _ = share.Of(&view, quota.WindowAt(f.limit.Window, now.UnixNano()))
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
	}
	plural := "s"
	if f.Count == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s, %d instance%s, sum of shares %d", total, f.Count, plural, f.SumOfShares)
}
