package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/status"
	"github.com/quotient-limiter/quotient/coordinator"
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

	read   coordinator.Fleet
	status status.Status
	now    time.Time
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
	s := status.Of(&read, now)
	f := &fleet{
		Provider: provider, Revision: read.Revision, PolicyRevision: s.PolicyRevision, Count: s.Instances, Applied: s.Applied,
		SumOfShares: s.SumOfShares, Instances: []instanceJSON{}, Problem: s.Problem, read: read, status: s, now: now,
	}
	if s.Limit != nil {
		f.Limit = &limitJSON{s.Limit.Permits, s.Limit.Window.String()}
	}
	for _, i := range read.Instances {
		f.Instances = append(f.Instances, instanceOf(i))
	}
	return f, nil
}

func instanceOf(s coordinator.InstanceStatus) instanceJSON {
	i := s.Instance
	j := instanceJSON{
		Incarnation: i.ID, Name: i.Name, Host: i.Host, PID: i.PID, Version: i.Version, Weight: i.Weight,
		Started: i.Started, From: i.From, Until: i.Until, Report: s.Report, Problem: problem(s.Problem),
	}
	if s.ShareKnown {
		j.Share = &s.Share
	}
	return j
}
