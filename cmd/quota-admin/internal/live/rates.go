package live

import (
	"cmp"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Rate is what calls for a key, or of a label, got and did not get, in permits per second.
// Instances is the number of those that have it among their busiest, in their newest reports, and Told is when
// the oldest of these reports was made, by its instance's clock.
type Rate struct {
	Name      string    `json:"name"`
	Issued    float64   `json:"issued"`
	Refused   float64   `json:"refused"`
	Instances int       `json:"instances"`
	Told      time.Time `json:"-"`
}

const (
	// keysAtMost bounds the busiest keys that are shown, whatever lies in etcd.
	keysAtMost = 50
	// labelsAtMost bounds the busiest labels that are shown by name.
	labelsAtMost = 20
)

// BusiestKeys returns the busiest keys of a fleet, the busiest first. It is never nil, so that
// it is a list in JSON.
func BusiestKeys(f *protocol.Fleet) []Rate {
	all := busiest(f, func(r *protocol.Report) []protocol.Rate { return r.BusiestKeys })
	return all[:min(len(all), keysAtMost)]
}

// BusiestLabels returns the busiest labels of a fleet, the busiest first, with all others
// together as the last. Calls without a label have the name "". It is never nil.
func BusiestLabels(f *protocol.Fleet) []Rate {
	all := busiest(f, func(r *protocol.Report) []protocol.Rate { return r.BusiestLabels })
	shown, others := []Rate{}, Rate{Name: protocol.OtherLabel}
	for _, r := range all {
		if len(shown) < labelsAtMost && r.Name != protocol.OtherLabel {
			shown = append(shown, r)
			continue
		}
		others.add(r)
		others.Instances = max(others.Instances, r.Instances)
	}
	if others.Instances > 0 {
		others.Issued, others.Refused = some(others.Issued), some(others.Refused)
		shown = append(shown, others)
	}
	return shown
}

// busiest sums the rates of the instances' newest reports by name, the busiest first.
func busiest(f *protocol.Fleet, of func(*protocol.Report) []protocol.Rate) []Rate {
	by := map[string]*Rate{}
	for _, s := range f.Instances {
		if s.Report == nil {
			continue
		}
		for _, r := range of(s.Report) {
			k := by[r.Name]
			if k == nil {
				k = &Rate{Name: r.Name}
				by[r.Name] = k
			}
			k.add(Rate{Issued: r.Issued, Refused: r.Refused, Told: s.Report.Time})
			k.Instances++
		}
	}
	all := []Rate{}
	for _, k := range by {
		k.Issued, k.Refused = some(k.Issued), some(k.Refused)
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(b.Issued+b.Refused, a.Issued+a.Refused), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// add adds the permits of another rate.
func (k *Rate) add(r Rate) {
	k.Issued, k.Refused = k.Issued+r.Issued, k.Refused+r.Refused
	if k.Told.IsZero() || r.Told.Before(k.Told) {
		k.Told = r.Told
	}
}

// some rounds a rate, but one above 0 not to 0: that would say that no call is refused.
func some(perSecond float64) float64 {
	if perSecond > 0 {
		return max(0.1, round(perSecond))
	}
	return 0
}
