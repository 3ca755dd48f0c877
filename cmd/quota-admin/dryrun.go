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
	c := &sharesJSON{Start: from, Instances: []instanceShareNew{}}
	limits := policy.LimitsAt(from.UnixNano())
	if len(limits) == 0 {
		limits = policy.Limits
	}
	w := quota.WindowAt(limits[0].Window, from.UnixNano())
	c.Start, c.Window = time.Unix(0, w.Start()).UTC(), w.Length.String()
	before := f.View()
	after := before
	after.Policy = &policy
	oldTotal, oldShares, oldOK := int64(0), map[string]int64(nil), false
	if before.Policy != nil {
		oldTotal, oldShares, oldOK = share.Of(&before, w)
	}
	newTotal, newShares, newOK := share.Of(&after, w)
	known := func(n int64, ok bool) *int64 {
		if !ok {
			return nil
		}
		return &n
	}
	c.OldTotal, c.NewTotal = known(oldTotal, oldOK), known(newTotal, newOK)
	for _, s := range f.Instances {
		id := s.Instance.ID
		c.Instances = append(c.Instances, instanceShareNew{
			Incarnation: id, Name: s.Instance.Name, Old: known(oldShares[id], oldOK), New: known(newShares[id], newOK),
		})
	}
	return c
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
