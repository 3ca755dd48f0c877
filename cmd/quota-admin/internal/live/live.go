// Package live is what top and the dashboard show: providers and their instances,
// read again and again, with the rates that their reports come to. Rates are of whole
// windows: none shows more than the limit because a window was cut in two.
package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// Watcher reads providers, and asks their instances to report every second. It is
// for one goroutine.
type Watcher struct {
	admin  *admin.Client
	most   int // providers that are observed: each of their instances writes every second
	seen   map[string]*Provider
	listed []admin.Stored
	turn   int
	Blind  string    // why instances do not report every second; "" if they do
	Away   time.Time // since when etcd does not answer; zero if it does
}

// NewWatcher returns a watcher that observes at most so many providers.
func NewWatcher(operator *admin.Client, most int) *Watcher {
	return &Watcher{admin: operator, most: most, seen: map[string]*Provider{}}
}

// Seen returns what is remembered of a provider, or nil.
func (w *Watcher) Seen(name string) *Provider { return w.seen[name] }

// Read lists the policies, and looks at the providers that are opened and at so many
// of the others, which take turns. All that is neither opened nor listed is forgotten, once
// etcd answers.
func (w *Watcher) Read(ctx context.Context, opened []string, others int) error {
	began := time.Now()
	rest, err := w.list(ctx, opened)
	if err != nil {
		w.away(began, err)
		return err
	}
	names := slices.Clone(opened)
	for range min(others, len(rest)) {
		names = append(names, rest[w.turn%len(rest)])
		w.turn++
	}
	for _, name := range names {
		if _, err := w.Look(ctx, name, opened...); err != nil {
			w.away(began, err)
			return err
		}
	}
	w.back(began)
	return nil
}

// Remember lists the policies, and looks at each of the first providers that was not seen
// for that long. Their instances report as they like.
func (w *Watcher) Remember(ctx context.Context, first int, every time.Duration) error {
	began := time.Now()
	rest, err := w.list(ctx, nil)
	if err != nil {
		w.away(began, err)
		return err
	}
	for i, name := range rest {
		p := w.seen[name]
		if p != nil {
			p.end()
		}
		if i >= first || p != nil && began.Sub(p.At) < every {
			continue
		}
		if err := w.look(ctx, name); err != nil {
			w.away(began, err)
			return err
		}
	}
	w.back(began)
	return nil
}

// list lists the policies, and the providers that have instances alone, since etcd has lost their policy or
// never had one. It forgets providers that are gone, and returns those that are not
// opened.
func (w *Watcher) list(ctx context.Context, opened []string) (rest []string, err error) {
	listed, err := w.admin.List(ctx)
	if err != nil {
		return nil, err
	}
	registered, err := feed.Inside(w.admin).Registered(ctx)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, s := range listed {
		has[s.Provider] = true
	}
	for _, name := range registered {
		if !has[name] {
			listed = append(listed, admin.Stored{Provider: name})
		}
	}
	slices.SortStableFunc(listed, func(x, y admin.Stored) int { return strings.Compare(x.Provider, y.Provider) })
	w.listed = listed
	for _, s := range w.listed {
		// A key that names no provider cannot be asked for; its row says so.
		if !slices.Contains(opened, s.Provider) && quota.ValidateProvider(s.Provider) == nil {
			rest = append(rest, s.Provider)
		}
	}
	for name, p := range w.seen {
		if !slices.Contains(opened, name) && !slices.Contains(rest, name) {
			p.end()
			delete(w.seen, name)
		}
	}
	for i, name := range rest {
		if p := w.seen[name]; p != nil && i >= RememberedAtMost {
			p.keep = trendAtMost
		}
	}
	return rest, nil
}

// Rows returns the table of the providers that were listed, also of those that no look
// was at yet.
func (w *Watcher) Rows(now time.Time) []Row {
	rows := make([]Row, len(w.listed))
	for i := range w.listed {
		if p := w.seen[w.listed[i].Provider]; p != nil {
			rows[i] = p.Row
		} else {
			rows[i] = RowOf(&w.listed[i], now)
		}
	}
	return rows
}

// Look reads a provider once more. Providers that are opened are observed before
// others. Rates need a look every second.
func (w *Watcher) Look(ctx context.Context, name string, opened ...string) (*Provider, error) {
	p := w.seen[name]
	if p == nil {
		p = newProvider(name)
		w.seen[name] = p
	}
	p.keep = PointsAtMost
	if p.stop == nil && w.Blind == "" && w.mayObserve(name, opened) {
		stop, err := w.admin.Observe(ctx, name)
		switch {
		case errors.Is(err, coordinator.ErrPermission):
			w.Blind = "this user may not ask for a report every second: numbers are up to 30 s old"
		case err == nil:
			p.stop = stop
		}
	}
	if err := w.look(ctx, name); err != nil {
		return nil, err
	}
	return p, nil
}

func (w *Watcher) look(ctx context.Context, name string) error {
	p := w.seen[name]
	if p == nil {
		p = newProvider(name)
		w.seen[name] = p
	}
	f, err := feed.Inside(w.admin).Fleet(ctx, name)
	if err != nil {
		return err
	}
	now := time.Now()
	var ended map[string]protocol.Instance
	if ids := p.unexplained(now, &f); len(ids) > 0 {
		if ended, err = feed.Inside(w.admin).Ended(ctx, name, p.Fleet.Revision, f.Revision, ids); err != nil {
			return err
		}
	}
	p.see(now, &f, ended)
	return nil
}

// mayObserve reports whether there is room to observe a provider. One that is opened
// takes the place of one that is not.
func (w *Watcher) mayObserve(name string, opened []string) bool {
	observed, other := 0, (*Provider)(nil)
	for name, o := range w.seen {
		if o.stop != nil {
			if observed++; !slices.Contains(opened, name) {
				other = o
			}
		}
	}
	full := observed >= w.most
	if full && slices.Contains(opened, name) && other != nil {
		other.end()
		full = false
	}
	return !full
}

// Close forgets everything, and lets the instances report as they like.
func (w *Watcher) Close() {
	for _, p := range w.seen {
		p.end()
	}
	clear(w.seen)
	w.listed, w.Blind, w.Away = nil, "", time.Time{}
}

// Seconds is a duration of a report in seconds; nil if it is none, as "unknown".
func Seconds(text string) *float64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil
	}
	return new(d.Seconds())
}

// Header is a column of a table.
type Header struct {
	Title string // for people; "" if it is for programs only
	Name  string // in JSON
	Unit  string
}

// Instances are the columns of Provider.Line.
var Instances = []Header{
	{"NAME", "name", ""}, {"INCARNATION", "incarnation", ""}, {"", "host", ""}, {"", "version", ""}, {"SHARE", "share", ""}, {"STATE", "state", ""},
	{"ISSUED/S", "issued_per_second", ""}, {"REFUSED/S", "refused_per_second", ""}, {"SHADOWED/S", "shadowed_per_second", ""},
	{"WAITING", "waiting", ""}, {"BORROWED", "borrowed", ""}, {"HOSTS", "borrowed_from", ""}, {"LENT", "lent", ""}, {"GUESTS", "lent_to", ""}, {"POLICY", "policy_revision", ""}, {"CLOCK-ERROR", "clock_error", ""}, {"", "clock_source", ""}, {"PROOF-AGE", "proof_age", ""},
	{"REPORT-AGE", "report_age_seconds", "s"}, {"", "heard_seconds", ""}, {"", "from", ""}, {"", "until", ""}, {"", "problem", ""},
}

// Line returns an instance's values: texts, int64s, float64s, and nil for what is
// not known. Rates are permits per second, loans are permits of the shortest limit's last
// whole window, and instants milliseconds since the Unix epoch.
func (p *Provider) Line(s *protocol.InstanceStatus, now time.Time) []any {
	i, r := &s.Instance, s.Report
	line := []any{i.Name, i.ID, i.Host, i.Version, nil}
	if s.ShareKnown {
		line[4] = s.Share
	}
	problem := ""
	if r == nil {
		line = append(line, make([]any, 15)...)
	} else {
		problem = r.Problem
		x := p.meter.of(i.ID, now)
		rate := func(perSecond float64) any {
			if !x.Known {
				return nil
			}
			return round(perSecond)
		}
		line = append(line, cause.Word(r.State, r.Debt), rate(x.Issued), rate(x.Refused), rate(x.Shadowed), r.Waiting,
			r.Borrowed, int64(r.Hosts), r.Lent, int64(r.Guests), r.PolicyRevision,
			r.ClockError, r.ClockSource, r.ProofAge, max(0, now.Sub(r.Time)).Round(time.Millisecond).Seconds(), max(0, x.Age).Round(time.Second).Seconds())
	}
	if s.Problem != nil {
		problem = s.Problem.Error()
	}
	return append(line, milliseconds(i.From), milliseconds(i.Until), problem)
}

func milliseconds(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// Row is a provider in a list of them. Rates are permits per second; an unknown
// number is nil.
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
	Trend     []*float64 `json:"trend,omitempty"`  // issued, by the newest points
	Bounds    []*float64 `json:"bounds,omitempty"` // the limits of these points
}

const (
	// PointsAtMost is how many points are kept of each provider.
	PointsAtMost = 900
	trendAtMost  = 60
	// RememberedAtMost is how many providers keep all their points, beside those that are
	// opened. The others keep their trend.
	RememberedAtMost = 32
)

// Provider is what is remembered of a provider between two looks. It is pure: see
// takes an instant and what was read.
type Provider struct {
	Fleet  *protocol.Fleet // empty before the first look
	At     time.Time       // of the last look
	Row    Row
	Points []Point // oldest first
	Events []Event // oldest first
	Status Status

	keep     int       // points
	asked    time.Time // of the newest pause that a provider asked for
	meter    *meter
	rated    bool // rates of the whole fleet were known
	refusing bool
	refused  time.Time // when something last was
	stop     func()    // ends the observation; nil: it is not observed
}

func newProvider(name string) *Provider {
	return &Provider{keep: PointsAtMost, meter: newMeter(), Fleet: &protocol.Fleet{Provider: name}, Row: Row{Provider: name}}
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
func RowOf(s *admin.Stored, now time.Time) Row {
	row := Row{Provider: s.Provider, Mode: "none"}
	switch {
	case s.Problem != nil:
		row.Problem, row.Mode = format.OneLine(s.Problem), "broken"
	case s.Revision != 0:
		current := change.Current(s.Policy, now).WithDefaults()
		row.Limits, row.Mode = change.Limits(&current), string(current.Mode)
		if limits := protocol.LimitsAt(&s.Policy, now.UnixNano()); len(limits) > 0 && !protocol.Free(limits[0]) {
			row.Rate = new(float64(limits[0].Permits) / limits[0].Window.Seconds())
		}
	}
	return row
}

// see takes over a look. Of the instances that are gone since the look before, ended has what their keys said last, as far
// as that was read.
func (p *Provider) see(now time.Time, f *protocol.Fleet, ended map[string]protocol.Instance) {
	before, looked := p.Fleet, p.At
	p.Fleet, p.At = f, now
	p.meter.observed(p.stop != nil)
	for _, point := range p.meter.see(now, f) {
		p.Points = append(p.Points, point.short())
	}
	p.Points = p.Points[max(0, len(p.Points)-p.keep):]
	p.Status = StatusOf(f, now)
	if line := p.meter.clockTrouble(f); line != "" {
		p.Status.Troubles = append(p.Status.Troubles, line)
	}
	row := RowOf((*admin.Stored)(&f.Policy), now)
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
	} else if most := p.meter.most(now); most != nil {
		issued = min(issued, *most) // these rates are of different times
	}
	if known {
		row.Issued, row.Refused = new(round(issued)), new(round(refused))
	}
	for _, point := range p.Points[max(0, len(p.Points)-trendAtMost):] {
		if point.Total != nil || row.Trend != nil { // most providers of many are not observed
			row.Trend, row.Bounds = append(row.Trend, point.Total), append(row.Bounds, point.Limit)
		}
	}
	p.Row = row
	p.seeInstances(before, looked, now, ended)
	p.seePauses(now)
	if whole {
		p.seeRefusals(now, refused)
	}
}

// Unrated reports whether an instance has reported only once: it has no rates yet.
func (p *Provider) Unrated() bool {
	return slices.ContainsFunc(p.Fleet.Instances, func(s protocol.InstanceStatus) bool {
		return s.Report != nil && !p.meter.of(s.Instance.ID, p.At).Known
	})
}

// Late is how old a report may be until the instance counts as silent.
func (p *Provider) Late() time.Duration {
	if p.stop != nil {
		return 8 * time.Second
	}
	return slowPatience
}

// Status is a provider's instances in numbers.
type Status struct {
	PolicyRevision int64 `json:"policy_revision"` // 0: none that can be used
	// Limit is the shortest in force, which shares are of; nil if none is.
	Limit       *quota.Limit `json:"-"`
	Budgets     []Budget     `json:"-"`
	Mode        quota.Mode   `json:"-"`
	Instances   int          `json:"count"`
	Applied     int          `json:"applied"` // that reported the policy that is set
	SumOfShares int64        `json:"sum_of_shares"`
	Problem     string       `json:"problem,omitempty"` // why the policy cannot be applied
	// Troubles says what is wrong with instances, and what they say themselves: one line
	// for all that have the same. It is never nil, so that it is a list in JSON.
	Troubles []string `json:"-"`
}

// StatusOf sums up what was read.
func StatusOf(f *protocol.Fleet, now time.Time) Status {
	s := Status{Instances: len(f.Instances)}
	if f.Policy.Problem != nil {
		s.Problem = format.OneLine(f.Policy.Problem)
	} else if s.PolicyRevision = f.Policy.Revision; s.PolicyRevision != 0 {
		s.Mode = f.Policy.Policy.Mode
		if limits := protocol.LimitsAt(&f.Policy.Policy, now.UnixNano()); len(limits) > 0 {
			s.Limit = &limits[0]
		}
	}
	for i := range f.Budgets {
		s.Budgets = append(s.Budgets, BudgetOf(&f.Budgets[i], f.Instances))
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

// Rate looks at a provider until its reports tell how many permits a second it issues, for
// at most that time. It is nil if they do not.
func (w *Watcher) Rate(ctx context.Context, provider string, most time.Duration) (*float64, error) {
	over := time.Now().Add(most)
	for {
		p, err := w.Look(ctx, provider) // which observes it from then on, until ctx ends
		switch {
		case err != nil:
			return nil, err
		case p.Row.Issued != nil || len(p.Fleet.Instances) == 0 || time.Now().After(over):
			return p.Row.Issued, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// lookEvery is how often Rate looks: reports come once a second.
const lookEvery = 500 * time.Millisecond

// Line is the status in one line.
func (s *Status) Line() string {
	total := "no policy in force"
	if s.Limit != nil {
		total = "total"
		if !protocol.Free(*s.Limit) {
			total += " " + s.Limit.String()
		}
		if s.Mode != quota.ModeEnforce {
			total += " (mode " + format.Clean(string(s.Mode)) + ")"
		}
	}
	for i, b := range s.Budgets {
		if i > 0 || !protocol.Free(*s.Limit) {
			total += ","
		}
		total += " " + b.String()
	}
	line := fmt.Sprintf("%s, %s", total, format.Count(s.Instances, "instance"))
	if s.Limit == nil || !protocol.Free(*s.Limit) {
		line += fmt.Sprintf(", sum of shares %d", s.SumOfShares)
	}
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

func (s *Status) troubles(f *protocol.Fleet) []string {
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
	for _, i := range f.Left {
		text := fmt.Sprintf("left at %s with an unpaid debt of %d permits", format.Exact(i.Report.Time), i.Report.Debt)
		who[text] = append(who[text], i.Instance.ID)
	}
	lines := []string{}
	if line := s.Beyond(); line != "" {
		lines = append(lines, line)
	}
	all := slices.Sorted(maps.Keys(who))
	for _, text := range all[:min(troublesAtMost, len(all))] {
		lines = append(lines, subjectOf(who[text])+": "+text)
	}
	if more := len(all) - troublesAtMost; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d other troubles", more))
	}
	return lines
}

// subjectOf names the first of instances, and how many more there are.
func subjectOf(ids []string) string {
	if len(ids) == 1 {
		return "instance " + ids[0]
	}
	return fmt.Sprintf("instance %s and %d more", ids[0], len(ids)-1)
}
