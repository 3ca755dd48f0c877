package live

import (
	"cmp"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Key is what calls for a key got, and did not get, in permits per second, by the newest
// reports of the instances that have it among their busiest keys.
type Key struct {
	Key       string  `json:"key"`
	Issued    float64 `json:"issued"`
	Refused   float64 `json:"refused"`
	Instances int     `json:"instances"`
}

// keysAtMost bounds the busiest keys that are shown, whatever lies in etcd.
const keysAtMost = 50

// BusiestKeys returns the busiest keys of a fleet, the busiest first. It is never nil, so that
// it is a list in JSON.
func BusiestKeys(f *protocol.Fleet) []Key {
	by := map[string]*Key{}
	for _, s := range f.Instances {
		if s.Report == nil {
			continue
		}
		for _, r := range s.Report.BusiestKeys {
			k := by[r.Key]
			if k == nil {
				k = &Key{Key: r.Key}
				by[r.Key] = k
			}
			k.Issued, k.Refused, k.Instances = k.Issued+r.Issued, k.Refused+r.Refused, k.Instances+1
		}
	}
	all := []Key{}
	for _, k := range by {
		k.Issued, k.Refused = round(k.Issued), round(k.Refused)
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Issued+b.Refused, a.Issued+a.Refused), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), keysAtMost)]
}
