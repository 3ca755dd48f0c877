package live

import "github.com/quotient-limiter/quotient/internal/protocol"

// ClassRate is what calls of a class got, and did not get, in permits per second, and how
// many of them wait.
type ClassRate struct {
	Class   string  `json:"class"`
	Issued  float64 `json:"issued"`
	Refused float64 `json:"refused"`
	Waiting int64   `json:"waiting"`
}

// Critical is the highest class.
const Critical = "critical"

// classes are those that are shown, the highest first, whatever lies in etcd.
var classes = [...]string{Critical, "default", "sheddable"}

// seeClasses takes the rates between the last report and r.
func (t *track) seeClasses(r *protocol.Report, elapsed float64) {
	for i, name := range classes {
		was, is := t.last.Classes[name], r.Classes[name]
		t.classes[i] = ClassRate{name, max(0, float64(is.Issued-was.Issued)/elapsed), max(0, float64(is.Refused-was.Refused)/elapsed), max(0, is.Waiting)}
	}
}

// Classes sums the instances' rates by class; nil if no call has a class of its own.
func (p *Provider) Classes() (all []ClassRate) {
	used := false
	for _, s := range p.Fleet.Instances {
		if s.Report == nil || len(s.Report.Classes) == 0 {
			continue
		}
		if !used {
			used, all = true, make([]ClassRate, len(classes))
		}
		for i, c := range p.meter.tracks[s.Instance.ID].classes {
			all[i].Class, all[i].Waiting = classes[i], all[i].Waiting+c.Waiting
			all[i].Issued, all[i].Refused = round(all[i].Issued+c.Issued), round(all[i].Refused+c.Refused)
		}
	}
	return all
}
