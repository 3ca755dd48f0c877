package main

import (
	"fmt"
	"io"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// sharesJSON is what a dry run shows: every instance's share of one window, by
// the policy that is set and by the one that would be.
type sharesJSON struct {
	// Start and Window are of the new policy's shortest limit.
	Start     time.Time          `json:"start"`
	Window    string             `json:"window"`
	OldTotal  *int64             `json:"old_total"` // null: no limit of that length
	NewTotal  *int64             `json:"new_total"`
	Instances []instanceShareNew `json:"instances"`
}

type instanceShareNew struct {
	Incarnation string `json:"incarnation"`
	Name        string `json:"name"`
	Old         *int64 `json:"old_share"`
	New         *int64 `json:"new_share"`
}

// compareShares computes the shares of the window that starts at the instant
// from, for the live instances.
func compareShares(f *coordinator.Fleet, policy quota.Policy, from time.Time) *sharesJSON {
	limits := policy.LimitsAt(from.UnixNano())
	if len(limits) == 0 {
		limits = policy.Limits
	}
	w := quota.WindowAt(limits[0].Window, from.UnixNano())
	c := &sharesJSON{Start: time.Unix(0, w.Start()).UTC(), Window: w.Length.String(), Instances: []instanceShareNew{}}
	// divide returns the total under a policy, and a function to an instance's share.
	divide := func(p *quota.Policy) (total *int64, of func(id string) *int64) {
		v := f.View()
		if v.Policy = p; p == nil {
			return nil, func(string) *int64 { return nil }
		}
		n, shares, known := share.Of(&v, w)
		return knownOr(n, known), func(id string) *int64 { return knownOr(shares[id], known) }
	}
	var before, after func(string) *int64
	c.OldTotal, before = divide(f.View().Policy)
	c.NewTotal, after = divide(&policy)
	for _, s := range f.Instances {
		c.Instances = append(c.Instances, instanceShareNew{s.Instance.ID, s.Instance.Name, before(s.Instance.ID), after(s.Instance.ID)})
	}
	return c
}

// knownOr returns n, or nil if it is not known.
func knownOr(n int64, known bool) *int64 {
	if !known {
		return nil
	}
	return &n
}

// number shows n, and a dash for nil.
func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func (c *sharesJSON) table(w io.Writer) {
	fmt.Fprintf(w, "shares of the window of %s that starts at %s: total %s -> %s, %s\n",
		c.Window, format.Exact(c.Start), number(c.OldTotal), number(c.NewTotal), format.Count(len(c.Instances), "instance"))
	if len(c.Instances) == 0 {
		return
	}
	format.Row(w, "NAME", "INCARNATION", "SHARE", "NEW-SHARE")
	for _, i := range c.Instances {
		format.Row(w, format.Name(i.Name), format.Name(i.Incarnation), number(i.Old), number(i.New))
	}
}
