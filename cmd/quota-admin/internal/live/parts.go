package live

import (
	"cmp"
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// leaders are the names that stand by themselves in a chart, of all that issue permits.
type leaders struct {
	weight map[string]float64 // what each name issues, smoothed
	shown  []string
}

// see takes what each name issued. It keeps in shown the names that issue most. A name stays
// until another issues half as much again: names that change places make no picture.
func (l *leaders) see(by map[string]float64) {
	const smooth, stays = 0.2, 1.5
	rank := map[string]float64{}
	for name := range by {
		l.weight[name] += 0 // adds it if it is new
	}
	for name, v := range l.weight {
		v += smooth * (by[name] - v)
		l.weight[name], rank[name] = v, v
		if slices.Contains(l.shown, name) {
			rank[name] *= stays
		}
		if v < 1e-3 {
			delete(l.weight, name)
		}
	}
	all := slices.SortedFunc(maps.Keys(l.weight), func(a, b string) int { return cmp.Or(cmp.Compare(rank[b], rank[a]), format.Natural(a, b)) })
	l.shown = all[:min(len(all), named)]
}

// parts are what the names of a kind issue by the newest reports, in permits per second.
type parts struct {
	leaders
	rate  map[string]float64
	whole bool // these names are all: every permit has one
}

// seeParts takes what the newest reports say of classes, labels and keys. Their rates are means
// of some seconds, and of different ones.
func (c *meter) seeParts(f *protocol.Fleet) {
	by := map[string]map[string]float64{"class": {}, "label": {}, "key": {}}
	for _, s := range f.Instances {
		if s.Report != nil && len(s.Report.Classes) > 0 {
			for _, r := range c.tracks[s.Instance.ID].classes {
				by["class"][r.Class] += r.Issued
			}
		}
	}
	for _, r := range BusiestLabels(f) {
		by["label"][r.Name] += r.Issued
	}
	for _, r := range BusiestKeys(f) {
		by["key"][r.Name] += r.Issued
	}
	for kind, rate := range by {
		if len(rate) == 0 {
			delete(c.parts, kind)
			continue
		}
		p := c.parts[kind]
		if p == nil {
			p = &parts{leaders: leaders{weight: map[string]float64{}}, whole: kind != "key"}
			c.parts[kind] = p
		}
		p.rate = rate
		p.see(rate)
	}
}

// divide divides a total as the newest reports do. So the parts are never more than the total.
func (c *meter) divide(total float64) map[string]map[string]float64 {
	if len(c.parts) == 0 {
		return nil
	}
	by := map[string]map[string]float64{}
	for kind, p := range c.parts {
		sum, part := 0.0, map[string]float64{}
		for _, rate := range p.rate {
			sum += rate
		}
		if !p.whole {
			sum = max(sum, total)
		}
		for _, name := range p.shown {
			if name != protocol.OtherLabel && sum > 0 {
				part[name] = total * p.rate[name] / sum
			}
		}
		by[kind] = part
	}
	return by
}
