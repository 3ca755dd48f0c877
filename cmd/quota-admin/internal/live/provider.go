package live

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/rates"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/status"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// Row is a provider in a list of them. Rates are permits per second; what is not
// known is nil.
type Row struct {
	Provider  string    `json:"provider"`
	Limits    string    `json:"limits"`
	Rate      *float64  `json:"rate"` // of the shortest limit
	Mode      string    `json:"mode"` // "none" without a policy, "broken" if it cannot be used
	Instances int       `json:"instances"`
	Applied   int       `json:"applied"`
	Issued    *float64  `json:"issued"`
	Refused   *float64  `json:"refused"`
	Shadowed  float64   `json:"shadowed"`
	Waiting   int64     `json:"waiting"`
	Troubles  int       `json:"troubles"`
	Problem   string    `json:"problem,omitempty"`
	Recent    []float64 `json:"recent,omitempty"` // issued, by the newest points
}

// Event is something that happened to a provider.
type Event struct {
	At   int64  `json:"t"`    // milliseconds since the Unix epoch
	Kind string `json:"kind"` // change, join, leave, loss or refusals
	Text string `json:"text"`
}

const (
	recentAtMost = 60
	// eventsFor is how long an event is kept: as long as the chart is.
	eventsFor    = 5 * time.Minute
	eventsAtMost = 100
	// quiet is how long nothing is refused before refusals are an event again.
	quiet = 10 * time.Second
)

// Provider is what is remembered of a provider between two looks. It is pure: see
// takes a fleet and an instant.
type Provider struct {
	Fleet  *coordinator.Fleet // empty before the first look
	At     time.Time          // of the last look
	Row    Row
	Points []rates.Point // that the last look finished
	Events []Event       // oldest first

	meter   *rates.Meter
	here    map[string]quota.Instance // nil before the first look
	refused time.Time                 // when something last was
	stop    func()                    // ends the observation; nil: it is not observed
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
	before := p.Fleet.Policy
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
	row.Recent = p.Row.Recent
	for _, pt := range p.Points {
		if pt.Total != nil {
			row.Recent = append(row.Recent, round(*pt.Total))
		}
	}
	row.Recent = slices.Clone(row.Recent[max(0, len(row.Recent)-recentAtMost):])
	p.Row = row
	p.note(now, &before, refused)
}

// note adds what happened since the last look to the events.
func (p *Provider) note(now time.Time, before *coordinator.Stored, refused float64) {
	first := p.here == nil
	here := make(map[string]quota.Instance, len(p.Fleet.Instances))
	for _, s := range p.Fleet.Instances {
		here[s.Instance.ID] = s.Instance
	}
	joined, left, lost := []string{}, []string{}, []string{}
	for id, i := range here {
		if _, ok := p.here[id]; !ok {
			joined = append(joined, nameOf(i))
		}
	}
	for id, i := range p.here {
		if _, ok := here[id]; ok {
			continue
		}
		if !i.Until.IsZero() && !i.Until.After(now.Add(time.Second)) { // it had announced its end
			left = append(left, nameOf(i))
		} else {
			lost = append(lost, nameOf(i))
		}
	}
	p.here = here
	event := func(kind, text string) { p.Events = append(p.Events, Event{now.UnixMilli(), kind, text}) }
	if after := &p.Fleet.Policy; !first && after.Revision != before.Revision {
		event("change", changeOf(before, after, now))
	}
	if !first && len(joined) > 0 {
		event("join", "Joined: "+some(joined))
	}
	if len(left) > 0 {
		event("leave", "Left: "+some(left))
	}
	if len(lost) > 0 {
		event("loss", "Lost: "+some(lost))
	}
	if refused > 0 {
		if now.Sub(p.refused) > quiet {
			event("refusals", fmt.Sprintf("Refusals begin: %.4g/s", refused))
		}
		p.refused = now
	}
	since := now.Add(-eventsFor).UnixMilli()
	p.Events = slices.DeleteFunc(p.Events, func(e Event) bool { return e.At < since })
	p.Events = p.Events[max(0, len(p.Events)-eventsAtMost):]
}

func nameOf(i quota.Instance) string {
	if i.Name == "" || i.Name == i.ID {
		return i.ID
	}
	return i.Name + " (" + i.ID + ")"
}

// some names a few.
func some(names []string) string {
	const most = 5
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// changeOf is a change of the policy in words.
func changeOf(before, after *coordinator.Stored, now time.Time) string {
	if after.Revision == 0 {
		return "Policy deleted"
	}
	if after.Problem != nil {
		return "Policy cannot be used: " + format.OneLine(after.Problem)
	}
	words := []string{}
	if old, is := RowOf(before, now), RowOf(after, now); old.Limits != is.Limits {
		words = append(words, old.Limits+" → "+is.Limits)
	}
	for _, d := range change.Beside(&before.Policy, &after.Policy) {
		words = append(words, d.Field+" "+d.New)
	}
	return "Changed by " + after.Policy.Author + ": " + strings.Join(words, ", ")
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
