// Package top shows live which provider, or instance, uses how much: on a terminal,
// or as a table, JSON or YAML at each interval.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/rates"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/status"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// cell is one value of the table. Numbers sort as such and stand on the right.
type cell struct {
	text   string
	value  any // for JSON: a string, an int64, a float64, or nil
	number float64
	isNum  bool
}

func text(s string) cell { return cell{text: format.Name(s), value: s} }

func count(n int64) cell {
	return cell{text: strconv.FormatInt(n, 10), value: n, number: float64(n), isNum: true}
}

func unknown() cell { return cell{text: "-", number: -1, isNum: true} }

func rate(perSecond float64, known bool) cell {
	if !known {
		return unknown()
	}
	return cell{text: strconv.FormatFloat(perSecond, 'f', 0, 64), value: perSecond, number: perSecond, isNum: true}
}

// column is a column's title, and its name in JSON.
type column struct{ title, name string }

var instanceColumns = []column{
	{"NAME", "name"}, {"INCARNATION", "incarnation"}, {"SHARE", "share"}, {"STATE", "state"},
	{"ISSUED/S", "issued_per_second"}, {"REFUSED/S", "refused_per_second"}, {"SHADOWED/S", "shadowed_per_second"},
	{"WAITING", "waiting"}, {"POLICY", "policy_revision"}, {"CLOCK-ERROR", "clock_error"}, {"PROOF-AGE", "proof_age"},
	{"REPORT-AGE", "report_age_seconds"},
}

var providerColumns = []column{
	{"PROVIDER", "provider"}, {"LIMITS", "limits"}, {"MODE", "mode"}, {"INSTANCES", "instances"}, {"APPLIED", "applied"},
	{"ISSUED/S", "issued_per_second"}, {"REFUSED/S", "refused_per_second"}, {"SHADOWED/S", "shadowed_per_second"},
	{"WAITING", "waiting"}, {"TROUBLES", "troubles"},
}

// Snapshot is what is shown at one moment.
type Snapshot struct {
	at      time.Time
	title   string
	what    string   // the rows are of: instances or providers
	notes   []string // what is wrong
	columns []column
	rows    [][]cell
}

// Notes says what is wrong.
func (s *Snapshot) Notes() []string { return s.notes }

// JSON is the snapshot for programs.
func (s *Snapshot) JSON() any {
	rows := []map[string]any{}
	for _, row := range s.rows {
		m := map[string]any{}
		for i, c := range row {
			m[s.columns[i].name] = c.value
		}
		rows = append(rows, m)
	}
	return map[string]any{"time": s.at.UTC(), "title": s.title, "notes": append([]string{}, s.notes...), s.what: rows}
}

// Table writes the snapshot for people.
func (s *Snapshot) Table(w io.Writer) {
	fmt.Fprintln(w, format.When(s.at)+" "+format.Clean(s.title))
	var titles []string
	for _, c := range s.columns {
		titles = append(titles, c.title)
	}
	format.Row(w, titles...)
	for _, r := range s.rows {
		var texts []string
		for _, c := range r {
			texts = append(texts, c.text)
		}
		format.Row(w, texts...)
	}
}

// ObservedAtMost is how many providers are asked to report every second: each of
// their instances then writes that often.
const ObservedAtMost = 16

// Source reads snapshots of one provider, or of all.
type Source struct {
	admin    *coordinator.Admin
	provider string // empty: all
	seen     map[string]*seen
	blind    string // why instances do not report every second
}

// seen is what is remembered of a provider.
type seen struct {
	fleet coordinator.Fleet
	meter *rates.Meter
	stop  func() // ends an observation; nil: it is not observed
}

// NewSource returns a source that Close ends.
func NewSource(admin *coordinator.Admin, provider string) *Source {
	return &Source{admin: admin, provider: provider, seen: map[string]*seen{}}
}

// Close tells the instances that nobody looks any more.
func (s *Source) Close() {
	for _, p := range s.seen {
		if p.stop != nil {
			p.stop()
		}
	}
}

// look reads a provider once more.
func (s *Source) look(ctx context.Context, name string, now time.Time) (*seen, error) {
	p := s.seen[name]
	if p == nil {
		p = &seen{fleet: coordinator.Fleet{Provider: name}, meter: rates.New()}
		s.seen[name] = p
	}
	if p.stop == nil && s.blind == "" && len(s.seen) <= ObservedAtMost {
		stop, err := s.admin.Observe(ctx, name)
		switch {
		case errors.Is(err, coordinator.ErrPermission):
			s.blind = "this user may not ask for a report every second: numbers are up to 30 s old"
		case err == nil:
			p.stop = stop
		}
	}
	f, err := s.admin.Refresh(ctx, &p.fleet)
	if err != nil {
		return nil, err
	}
	if f.Policy.Revision == 0 && len(f.Instances) == 0 {
		return nil, fmt.Errorf("%s: %w", name, coordinator.ErrNotFound)
	}
	p.fleet = f
	p.meter.See(now, &p.fleet)
	return p, nil
}

// Read returns what there is now. Rates need a call each second.
func (s *Source) Read(ctx context.Context) (*Snapshot, error) {
	read := s.readAll
	if s.provider != "" {
		read = s.readOne
	}
	t, err := read(ctx, time.Now())
	if err == nil && s.blind != "" {
		t.notes = append(t.notes, s.blind)
	}
	return t, err
}

func (s *Source) readOne(ctx context.Context, now time.Time) (*Snapshot, error) {
	p, err := s.look(ctx, s.provider, now)
	if err != nil {
		return nil, err
	}
	sum := status.Of(&p.fleet, now)
	t := &Snapshot{at: now, title: s.provider + ": " + sum.Line(), what: "instances", notes: status.Troubles(&p.fleet), columns: instanceColumns}
	if sum.Problem != "" {
		t.notes = append([]string{"the policy cannot be applied: " + sum.Problem}, t.notes...)
	}
	for _, i := range p.fleet.Instances {
		share, x := unknown(), p.meter.Of(i.Instance.ID, now)
		if i.ShareKnown {
			share = count(i.Share)
		}
		row := []cell{text(i.Instance.Name), text(i.Instance.ID), share}
		if r := i.Report; r == nil {
			none := cell{text: "-"}
			row = append(row, none, unknown(), unknown(), unknown(), unknown(), unknown(), none, none, unknown())
		} else {
			age := max(0, now.Sub(r.Time))
			row = append(row, text(string(r.State)), rate(x.Issued, x.Known), rate(x.Refused, x.Known), rate(x.Shadowed, x.Known),
				count(r.Waiting), count(r.PolicyRevision), text(r.ClockError), text(r.ProofAge),
				cell{text: age.Round(time.Second).String(), value: age.Round(time.Millisecond).Seconds(), number: age.Seconds(), isNum: true})
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

func (s *Source) readAll(ctx context.Context, now time.Time) (*Snapshot, error) {
	all, err := s.admin.List(ctx)
	if err != nil {
		return nil, err
	}
	t := &Snapshot{at: now, title: format.Count(len(all), "provider"), what: "providers", columns: providerColumns}
	for _, stored := range all {
		if stored.Problem != nil {
			t.notes = append(t.notes, stored.Provider+": "+format.OneLine(stored.Problem))
			continue
		}
		p, err := s.look(ctx, stored.Provider, now)
		if errors.Is(err, coordinator.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		t.rows = append(t.rows, p.row(now))
	}
	return t, nil
}

// row is a provider's line.
func (p *seen) row(now time.Time) []cell {
	var issued, refused, shadowed float64
	var waiting int64
	known := false
	for _, i := range p.fleet.Instances {
		if i.Report == nil {
			continue
		}
		x := p.meter.Of(i.Instance.ID, now)
		issued, refused, shadowed, known = issued+x.Issued, refused+x.Refused, shadowed+x.Shadowed, known || x.Known
		waiting += i.Report.Waiting
	}
	if total, ok := p.meter.Total(); ok {
		issued = total
	}
	sum := status.Of(&p.fleet, now)
	current := change.Current(p.fleet.Policy.Policy, now).WithDefaults()
	return []cell{
		text(p.fleet.Provider), text(quota.FormatLimits(current.Limits)), text(string(current.Mode)), count(int64(sum.Instances)),
		{text: fmt.Sprintf("%d/%d", sum.Applied, sum.Instances), value: int64(sum.Applied), number: float64(sum.Applied - sum.Instances), isNum: true},
		rate(issued, known), rate(refused, known), rate(shadowed, known), count(waiting), count(int64(len(status.Troubles(&p.fleet)))),
	}
}

// before orders two cells of a column.
func before(a, b cell) int {
	switch {
	case !a.isNum || !b.isNum:
		return strings.Compare(a.text, b.text)
	case a.number < b.number:
		return -1
	case a.number > b.number:
		return 1
	}
	return 0
}
