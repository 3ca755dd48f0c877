package dashboard

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/rates"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/status"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// lostFor is how long an instance that is gone stays on the page.
const lostFor = time.Minute

// instancesAtMost bounds what a page is sent each second, whatever lies in etcd.
const instancesAtMost = 5000

// lostAtMost bounds them, newest first.
const lostAtMost = 20

// provider is what is remembered of one provider between two looks. It is pure:
// see takes a fleet and an instant.
type provider struct {
	meter *rates.Meter
	here  map[string]quota.Instance
	lost  []lostInstance

	fleet *coordinator.Fleet // empty before the first look
	at    time.Time          // of the last look
	row   providerRow
}

func newProvider(name string) *provider {
	return &provider{
		meter: rates.New(), fleet: &coordinator.Fleet{Provider: name},
		row: providerRow{Provider: name},
	}
}

// see takes a look at the fleet and returns the chart's new points.
func (p *provider) see(now time.Time, f *coordinator.Fleet) []rates.Point {
	p.fleet, p.at = f, now
	p.seeLost(now)
	points := p.meter.See(now, f)
	row := providerRow{Provider: f.Provider, Instances: len(f.Instances), Mode: "none"}
	switch s := &f.Policy; {
	case s.Revision == 0:
	case s.Problem != nil:
		row.Problem, row.Mode = s.Problem.Error(), "broken"
	default:
		current := change.Current(s.Policy, now)
		row.Limits, row.Mode = quota.FormatLimits(current.Limits), string(current.WithDefaults().Mode)
		if limits := s.Policy.LimitsAt(now.UnixNano()); len(limits) > 0 {
			row.Rate = new(float64(limits[0].Permits) / limits[0].Window.Seconds())
		}
	}
	if total, known := p.meter.Total(); known {
		row.Issued = new(round(total))
	}
	p.add(now, &row)
	row.Troubles = len(status.Troubles(f))
	p.row = row
	return points
}

// add adds up what the instances say.
func (p *provider) add(now time.Time, row *providerRow) {
	refused, known := 0.0, false
	for i := range p.fleet.Instances {
		s := &p.fleet.Instances[i]
		if s.Report == nil {
			continue
		}
		r := p.meter.Of(s.Instance.ID, now)
		refused, known = refused+r.Refused, known || r.Known
		row.Shadowed += r.Shadowed
		row.Waiting += s.Report.Waiting
		if s.Report.PolicyRevision == p.fleet.Policy.Revision && p.fleet.Policy.Revision != 0 {
			row.Applied++
		}
	}
	row.Shadowed = round(row.Shadowed)
	if known {
		row.Refused = new(round(refused))
	}
}

// seeLost notes who is gone since the last look.
func (p *provider) seeLost(now time.Time) {
	here := make(map[string]quota.Instance, len(p.fleet.Instances))
	for _, s := range p.fleet.Instances {
		here[s.Instance.ID] = s.Instance
	}
	for id, i := range p.here {
		if _, ok := here[id]; !ok {
			left := !i.Until.IsZero() && !i.Until.After(now.Add(time.Second))
			p.lost = append([]lostInstance{{Name: i.Name, Incarnation: id, At: now.UnixMilli(), Left: left}}, p.lost...)
		}
	}
	p.here = here
	for n, l := range p.lost {
		if n == lostAtMost || now.UnixMilli()-l.At > lostFor.Milliseconds() {
			p.lost = p.lost[:n]
			break
		}
	}
}

// detail returns the provider in full, as of the last look; reports grow older
// since.
func (p *provider) detail(now time.Time) *detail {
	f := p.fleet
	d := &detail{
		Provider: f.Provider, Revision: f.Revision, Policy: policyOf(&f.Policy, p.at), Bucket: p.meter.Bucket().Seconds(),
		Troubles: status.Troubles(f), Columns: columns, Instances: make([][]any, 0, len(f.Instances)), Lost: append([]lostInstance{}, p.lost...),
		Gone: f.Policy.Revision == 0 && len(f.Instances) == 0,
	}
	for i := range f.Instances {
		s := &f.Instances[i]
		if s.ShareKnown {
			d.SumOfShares += s.Share
		}
		if i < instancesAtMost {
			d.Instances = append(d.Instances, p.line(now, s))
		}
	}
	if n := len(f.Instances); n > instancesAtMost {
		d.Troubles = append(d.Troubles, fmt.Sprintf("of %d instances the first %d are shown", n, instancesAtMost))
	}
	return d
}

// line is an instance, by columns.
func (p *provider) line(now time.Time, s *coordinator.InstanceStatus) []any {
	var share any
	if s.ShareKnown {
		share = s.Share
	}
	problem := ""
	if s.Problem != nil {
		problem = s.Problem.Error()
	}
	i, r := s.Instance, s.Report
	line := []any{i.Name, i.ID, i.Host, i.Version, share}
	if r == nil {
		line = append(line, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil)
	} else {
		if problem == "" {
			problem = r.Problem
		}
		x := p.meter.Of(i.ID, now)
		var used, refused, shadowed any
		if x.Known {
			used, refused, shadowed = round(x.Issued), round(x.Refused), round(x.Shadowed)
		}
		age := max(0, x.Age).Round(time.Second).Seconds()
		line = append(line, string(r.State), used, refused, shadowed, r.Waiting, r.PolicyRevision, r.ClockError, r.ClockSource, r.ProofAge, age)
	}
	return append(line, milliseconds(i.From), milliseconds(i.Until), problem)
}
