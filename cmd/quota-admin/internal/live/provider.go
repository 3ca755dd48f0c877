package live

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/rates"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/status"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// Row is a provider in a list of them. Rates are permits per second; what is not
// known is nil.
type Row struct {
	Provider  string   `json:"provider"`
	Limits    string   `json:"limits"`
	Rate      *float64 `json:"rate"` // of the shortest limit
	Mode      string   `json:"mode"` // "none" without a policy, "broken" if it cannot be used
	Instances int      `json:"instances"`
	Applied   int      `json:"applied"`
	Issued    *float64 `json:"issued"`
	Refused   *float64 `json:"refused"`
	Shadowed  float64  `json:"shadowed"`
	Waiting   int64    `json:"waiting"`
	Troubles  int      `json:"troubles"`
	Problem   string   `json:"problem,omitempty"`
}

// Departure is an instance that was there until a moment ago.
type Departure struct {
	At   int64  `json:"t"` // milliseconds since the Unix epoch
	Text string `json:"text"`
}

const (
	lostFor    = time.Minute // is how long a departure is told
	lostAtMost = 20
)

// Provider is what is remembered of a provider between two looks. It is pure: see
// takes a fleet and an instant.
type Provider struct {
	Fleet  *coordinator.Fleet // empty before the first look
	At     time.Time          // of the last look
	Row    Row
	Points []rates.Point // that the last look finished
	Lost   []Departure   // oldest first

	meter *rates.Meter
	here  map[string]quota.Instance
	stop  func() // ends the observation; nil: it is not observed
}

func newProvider(name string) *Provider {
	return &Provider{meter: rates.New(), Fleet: &coordinator.Fleet{Provider: name}, Row: Row{Provider: name}}
}

func (p *Provider) end() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// Bucket returns the length of a point.
func (p *Provider) Bucket() time.Duration { return p.meter.Bucket() }

// RowOf is the row of a policy that was listed.
func RowOf(s *coordinator.Stored, now time.Time) Row {
	row := Row{Provider: s.Provider, Mode: "none"}
	switch {
	case s.Problem != nil:
		row.Problem, row.Mode = s.Problem.Error(), "broken"
	case s.Revision != 0:
		current := change.Current(s.Policy, now).WithDefaults()
		row.Limits, row.Mode = quota.FormatLimits(current.Limits), string(current.Mode)
		if limits := s.Policy.LimitsAt(now.UnixNano()); len(limits) > 0 {
			row.Rate = new(float64(limits[0].Permits) / limits[0].Window.Seconds())
		}
	}
	return row
}

// see takes a look at the fleet.
func (p *Provider) see(now time.Time, f *coordinator.Fleet) {
	p.Fleet, p.At = f, now
	p.Points = p.meter.See(now, f)
	row := RowOf(&f.Policy, now)
	row.Provider = f.Provider
	sum := status.Of(f, now)
	row.Instances, row.Applied, row.Troubles = sum.Instances, sum.Applied, len(status.Troubles(f))
	issued, refused, known := 0.0, 0.0, false
	for i := range f.Instances {
		if r := f.Instances[i].Report; r != nil {
			x := p.meter.Of(f.Instances[i].Instance.ID, now)
			issued, refused, known = issued+x.Issued, refused+x.Refused, known || x.Known
			row.Shadowed += x.Shadowed
			row.Waiting += r.Waiting
		}
	}
	row.Shadowed = round(row.Shadowed)
	if total, whole := p.meter.Total(); whole {
		issued = total
	}
	if known {
		row.Issued, row.Refused = new(round(issued)), new(round(refused))
	}
	p.Row = row
	p.seeLost(now)
}

// seeLost notes who is gone since the last look.
func (p *Provider) seeLost(now time.Time) {
	here := make(map[string]quota.Instance, len(p.Fleet.Instances))
	for _, s := range p.Fleet.Instances {
		here[s.Instance.ID] = s.Instance
	}
	for id, i := range p.here {
		if _, ok := here[id]; !ok {
			how := "Lost: "
			if !i.Until.IsZero() && !i.Until.After(now.Add(time.Second)) { // it had announced its end
				how = "Left: "
			}
			p.Lost = append(p.Lost, Departure{now.UnixMilli(), how + i.Name + " (" + id + ")"})
		}
	}
	p.here = here
	since := now.Add(-lostFor).UnixMilli()
	p.Lost = slices.DeleteFunc(p.Lost, func(d Departure) bool { return d.At < since })
	p.Lost = p.Lost[max(0, len(p.Lost)-lostAtMost):]
}

// round keeps what people read of a rate, and answers short.
func round(f float64) float64 { return math.Round(f*10) / 10 }

// Detail sums up the shares and lists the instances, at most so many.
func (p *Provider) Detail(now time.Time, most int) (sumOfShares int64, lines [][]any) {
	lines = [][]any{}
	for i := range p.Fleet.Instances {
		s := &p.Fleet.Instances[i]
		if s.ShareKnown {
			sumOfShares += s.Share
		}
		if i < most {
			lines = append(lines, p.Line(s, now))
		}
	}
	return sumOfShares, lines
}
