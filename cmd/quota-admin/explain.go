package main

import (
	"fmt"
	"io"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// explanation is why an instance has its share.
type explanation struct {
	Weight int64 `json:"weight"` // in force, an operator's included
	// Demand is what the level says that the instance asks for, in permits per
	// second; Claim is what it claims by that, and Equal its part of what nobody
	// claims. They are 0 unless shares are by demand.
	Demand float64 `json:"demand"`
	Claim  int64   `json:"claim"`
	Equal  int64   `json:"equal"`
	Why    string  `json:"why"`
}

// explain finds out why every instance has its share of the shortest limit's
// running window.
func (f *fleet) explain() {
	v := f.read.View()
	view := &v
	if view.Policy == nil || f.Limit == nil {
		return
	}
	at := f.now.UnixNano()
	w := quota.WindowAt(f.status.Limit.Window, at)
	parts, weights := int64(0), int64(0)
	for _, i := range view.Instances {
		if i.TakesPart(w.Start()) {
			parts++
			weights += share.Weight(view.Policy, &i)
		}
	}
	level, asks, byDemand := share.LevelOf(view, w)
	if byDemand {
		f.Level = &levelJSON{Revision: view.Level.At(w.Start()).Revision, Base: level.Base, Most: level.Most, Claimed: level.Claimed, Author: view.Level.Author}
	}
	byID := make(map[string]quota.Instance, len(view.Instances))
	for _, i := range view.Instances {
		byID[i.ID] = i
	}
	for n := range f.Instances {
		j := &f.Instances[n]
		i := byID[j.Incarnation]
		x := &explanation{Weight: share.Weight(view.Policy, &i)}
		j.Explain = x
		switch {
		case !i.From.IsZero() && i.From.UnixNano() > w.Start():
			x.Why = "takes part from " + format.When(i.From)
		case !i.TakesPart(w.Start()):
			x.Why = "has left"
		case view.Policy.Mode == quota.ModePause:
			x.Why = "paused"
		case view.Policy.Share == quota.ShareWeighted:
			x.Why = fmt.Sprintf("weight %d of %d", x.Weight, weights)
		case byDemand:
			x.Demand = float64(asks[i.ID]) / w.Length.Seconds()
			x.Claim = level.Claim(asks[i.ID])
			if j.Share != nil {
				x.Equal = *j.Share - x.Claim
			}
			x.Why = fmt.Sprintf("claims %d, and has %d of what nobody claims", x.Claim, x.Equal)
			if x.Claim == level.Most && x.Claim > 0 {
				x.Why = fmt.Sprintf("claims the most that anybody may, %d, and has %d of what nobody claims", x.Claim, x.Equal)
			}
		case view.Policy.Share == quota.ShareDemand:
			x.Why = fmt.Sprintf("no level is in force yet: one of %d equal parts", parts)
		default:
			x.Why = fmt.Sprintf("one of %d equal parts", parts)
		}
		if r := j.Report; r != nil && j.Share != nil && r.Share < *j.Share && r.PolicyRevision == f.PolicyRevision {
			x.Why += fmt.Sprintf("; said %d itself, as larger shares are held back for the settle time", r.Share)
		}
	}
}

// levelJSON is the level in force for the running window.
type levelJSON struct {
	Revision int64  `json:"revision"` // of the reports that it was worked out from
	Base     int64  `json:"base"`
	Most     int64  `json:"most"`
	Claimed  int64  `json:"claimed"`
	Author   string `json:"author"`
}

// explained is the table of instances --explain.
func (f *fleet) explained(w io.Writer) {
	format.Row(w, "NAME", "INCARNATION", "SHARE", "WEIGHT", "DEMAND/S", "CLAIM", "EQUAL", "WHY")
	for _, i := range f.Instances {
		x := i.Explain
		if x == nil {
			x = &explanation{Why: "no policy is in force"}
		}
		format.Row(w, format.Name(i.Name), format.Name(i.Incarnation), number(i.Share), fmt.Sprint(x.Weight), fmt.Sprintf("%.4g", x.Demand),
			fmt.Sprint(x.Claim), fmt.Sprint(x.Equal), x.Why)
	}
}
