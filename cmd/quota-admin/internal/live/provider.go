package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// Row is a provider in a list of them. Rates are permits per second; what is not
// known is nil.
type Row struct {
	Provider  string     `json:"provider"`
	Limits    string     `json:"limits"`
	Rate      *float64   `json:"rate"` // of the shortest limit
	Mode      string     `json:"mode"` // "none" without a policy, "broken" if it cannot be used
	Instances int        `json:"instances"`
	Applied   int        `json:"applied"`
	Issued    *float64   `json:"issued"`
	Refused   *float64   `json:"refused"`
	Shadowed  float64    `json:"shadowed"`
	Waiting   int64      `json:"waiting"`
	Troubles  int        `json:"troubles"`
	Problem   string     `json:"problem,omitempty"`
	Trend     []*float64 `json:"trend,omitempty"` // issued, by the newest points
}

// Event is something that happened to a provider's instances.
type Event struct {
	At   int64  `json:"t"`    // milliseconds since the Unix epoch
	Kind string `json:"kind"` // Joined, Left, Lost or Refusals
	Text string `json:"text"`
}

const (
	// PointsAtMost is how many points are kept of each provider.
	PointsAtMost = 300
	trendAtMost  = 60
	eventsAtMost = 50
	namesAtMost  = 5 // in an event
	// calm is how long nothing is refused until refusals have ended.
	calm = 5 * time.Second
)

// Provider is what is remembered of a provider between two looks. It is pure: see
// takes a fleet and an instant.
type Provider struct {
	Fleet  *coordinator.Fleet // empty before the first look
	At     time.Time          // of the last look
	Row    Row
	Points []Point // oldest first
	Events []Event // oldest first
	Status Status

	meter    *meter
	here     map[string]quota.Instance // nil before the first look
	rated    bool                      // rates of the whole fleet were known
	refusing bool
	refused  time.Time // when something last was
	stop     func()    // ends the observation; nil: it is not observed
}

func newProvider(name string) *Provider {
	return &Provider{meter: newMeter(), Fleet: &coordinator.Fleet{Provider: name}, Row: Row{Provider: name}}
}

func (p *Provider) end() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// Bucket returns the length of a point.
func (p *Provider) Bucket() time.Duration { return p.meter.length }

// RowOf is the row of a policy that was listed.
func RowOf(s *coordinator.Stored, now time.Time) Row {
	row := Row{Provider: s.Provider, Mode: "none"}
	switch {
	case s.Problem != nil:
		row.Problem, row.Mode = format.OneLine(s.Problem), "broken"
	case s.Revision != 0:
		current := change.Current(s.Policy, now).WithDefaults()
		row.Limits, row.Mode = quota.FormatLimits(current.Limits), string(current.Mode)
		if limits := s.Policy.LimitsAt(now.UnixNano()); len(limits) > 0 {
			row.Rate = new(float64(limits[0].Permits) / limits[0].Window.Seconds())
		}
	}
	return row
}

func (p *Provider) see(now time.Time, f *coordinator.Fleet) {
	p.Fleet, p.At = f, now
	for _, point := range p.meter.see(now, f) {
		p.Points = append(p.Points, point.short())
	}
	p.Points = p.Points[max(0, len(p.Points)-PointsAtMost):]
	p.Status = StatusOf(f, now)
	row := RowOf(&f.Policy, now)
	row.Provider, row.Instances, row.Applied, row.Troubles = f.Provider, p.Status.Instances, p.Status.Applied, len(p.Status.Troubles)
	issued, refused, known := 0.0, 0.0, false
	for i := range f.Instances {
		if r := f.Instances[i].Report; r != nil {
			x := p.meter.of(f.Instances[i].Instance.ID, now)
			issued, refused, known = issued+x.Issued, refused+x.Refused, known || x.Known
			row.Shadowed += x.Shadowed
			row.Waiting += r.Waiting
		}
	}
	row.Shadowed = round(row.Shadowed)
	total, whole := p.meter.total()
	if whole {
		issued = total
	}
	if known {
		row.Issued, row.Refused = new(round(issued)), new(round(refused))
	}
	for _, point := range p.Points[max(0, len(p.Points)-trendAtMost):] {
		if point.Total != nil || row.Trend != nil { // most providers of many are not observed
			row.Trend = append(row.Trend, point.Total)
		}
	}
	p.Row = row
	p.seeInstances(now)
	if whole {
		p.seeRefusals(now, refused)
	}
	p.Events = p.Events[max(0, len(p.Events)-eventsAtMost):]
}

func (p *Provider) event(now time.Time, kind, text string) {
	p.Events = append(p.Events, Event{now.UnixMilli(), kind, kind + " " + text})
}

func (p *Provider) seeInstances(now time.Time) {
	here, names := make(map[string]quota.Instance, len(p.Fleet.Instances)), map[string][]string{}
	for _, s := range p.Fleet.Instances {
		here[s.Instance.ID] = s.Instance
		if _, ok := p.here[s.Instance.ID]; !ok && p.here != nil {
			names["Joined"] = append(names["Joined"], cmp.Or(s.Instance.Name, s.Instance.ID))
		}
	}
	for id, i := range p.here {
		if _, ok := here[id]; !ok {
			kind := "Lost"
			if !i.Until.IsZero() && !i.Until.After(now.Add(time.Second)) { // it had announced its end
				kind = "Left"
			}
			names[kind] = append(names[kind], cmp.Or(i.Name, id))
		}
	}
	p.here = here
	for _, kind := range []string{"Lost", "Left", "Joined"} {
		if all := names[kind]; len(all) > 0 {
			slices.Sort(all)
			if more := len(all) - namesAtMost; more > 0 {
				all = append(all[:namesAtMost], fmt.Sprintf("%d more", more))
			}
			p.event(now, kind, strings.Join(all, ", "))
		}
	}
}

// seeRefusals notes when refusals begin and end. The begin of those that a new page
// finds is unknown.
func (p *Provider) seeRefusals(now time.Time, refused float64) {
	switch {
	case refused > 0:
		if p.rated && !p.refusing {
			p.event(now, "Refusals", "began")
		}
		p.refusing, p.refused = true, now
	case p.refusing && now.Sub(p.refused) > calm:
		p.event(now, "Refusals", "ended")
		p.refusing = false
	}
	p.rated = true
}

// Status is a provider's instances in numbers.
type Status struct {
	// Limit is the shortest in force, which shares are of; nil if none is.
	Limit          *quota.Limit
	Mode           quota.Mode
	Instances      int
	Applied        int // that reported the policy that is set
	SumOfShares    int64
	PolicyRevision int64 // 0: none that can be used
	Problem        string
	// Troubles says what is wrong with instances, and what they say themselves: one line
	// for all that have the same. It is never nil, so that it is a list in JSON.
	Troubles []string
}

// StatusOf sums up what was read.
func StatusOf(f *coordinator.Fleet, now time.Time) Status {
	s := Status{Instances: len(f.Instances)}
	if f.Policy.Problem != nil {
		s.Problem = format.OneLine(f.Policy.Problem)
	} else if s.PolicyRevision = f.Policy.Revision; s.PolicyRevision != 0 {
		s.Mode = f.Policy.Policy.Mode
		if limits := f.Policy.Policy.LimitsAt(now.UnixNano()); len(limits) > 0 {
			s.Limit = &limits[0]
		}
	}
	for _, i := range f.Instances {
		s.SumOfShares += i.Share
		if i.Report != nil && s.PolicyRevision != 0 && i.Report.PolicyRevision == s.PolicyRevision {
			s.Applied++
		}
	}
	s.Troubles = s.troubles(f)
	return s
}

// Line is the status in one line.
func (s *Status) Line() string {
	total := "no policy in force"
	if s.Limit != nil {
		total = "total " + s.Limit.String()
		if s.Mode != quota.ModeEnforce {
			total += " (mode " + format.Clean(string(s.Mode)) + ")"
		}
	}
	line := fmt.Sprintf("%s, %s, sum of shares %d", total, format.Count(s.Instances, "instance"), s.SumOfShares)
	if s.PolicyRevision != 0 && s.Instances > 0 {
		line += fmt.Sprintf(", policy revision %d applied by %d of %d", s.PolicyRevision, s.Applied, s.Instances)
	}
	return line
}

// Beyond says that the shares, as read, sum to more than the limit; "" if they do
// not.
func (s *Status) Beyond() string {
	if s.Limit == nil || s.SumOfShares <= s.Limit.Permits {
		return ""
	}
	return fmt.Sprintf("shares sum to %d, more than the total of %d: somebody wrote into etcd by hand; see doctor", s.SumOfShares, s.Limit.Permits)
}

// troublesAtMost bounds the lines, whatever lies in etcd.
const troublesAtMost = 100

func (s *Status) troubles(f *coordinator.Fleet) []string {
	who := map[string][]string{} // by trouble
	for _, i := range f.Instances {
		if i.Problem != nil {
			text := format.OneLine(i.Problem)
			who[text] = append(who[text], i.Instance.ID)
		}
		if i.Report != nil && i.Report.Problem != "" {
			text := "it says: " + i.Report.Problem
			who[text] = append(who[text], i.Instance.ID)
		}
	}
	lines := []string{}
	if line := s.Beyond(); line != "" {
		lines = append(lines, line)
	}
	all := slices.Sorted(maps.Keys(who))
	for _, text := range all[:min(troublesAtMost, len(all))] {
		subject := "instance " + who[text][0]
		if n := len(who[text]); n > 1 {
			subject += fmt.Sprintf(" and %d more", n-1)
		}
		lines = append(lines, subject+": "+text)
	}
	if more := len(all) - troublesAtMost; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d other troubles", more))
	}
	return lines
}
