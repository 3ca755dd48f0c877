// Package top shows live which provider, or instance, uses how much: on a terminal,
// or as a table, JSON or YAML at each interval.
package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator/admin"
)

// Snapshot is what is shown at one moment. A value is a text, an int64, a float64,
// or nil: not known.
type Snapshot struct {
	at      time.Time
	title   string
	what    string   // the rows are of: instances, classes, keys, labels or providers
	Notes   []string // what is wrong
	below   string   // what the columns do not say
	columns []live.Header
	rows    [][]any
	budgets []live.Foreseen
	// unrated says that an instance has reported only once: it has no rates yet.
	unrated bool
}

func (s *Snapshot) titles() (all []string) {
	for _, c := range s.columns {
		all = append(all, c.Title)
	}
	return all
}

func (s *Snapshot) cells(row []any) (all []string) {
	for i, v := range row {
		text := "-"
		switch v := v.(type) {
		case string:
			text = format.Name(v)
		case int64:
			text = strconv.FormatInt(v, 10)
		case float64:
			if text = number(v); s.columns[i].Unit != "" {
				text = strconv.FormatFloat(v, 'f', 0, 64) + s.columns[i].Unit
			}
		}
		all = append(all, text)
	}
	return all
}

// number shows a rate as the dashboard does: with one digit after the point below 10.
func number(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// compare orders two values of a column; what is not known comes first.
func compare(a, b any) int {
	number := func(v any) float64 {
		switch v := v.(type) {
		case int64:
			return float64(v)
		case float64:
			return v
		}
		return -1
	}
	x, _ := a.(string)
	y, _ := b.(string)
	return cmp.Or(format.Natural(x, y), cmp.Compare(number(a), number(b)))
}

// JSON is the snapshot for programs.
func (s *Snapshot) JSON() any {
	rows := []map[string]any{}
	for _, row := range s.rows {
		m := map[string]any{}
		for i, v := range row {
			switch name := s.columns[i].Name; name {
			case "clock_error", "proof_age":
				text, _ := v.(string)
				m[name+"_seconds"] = live.Seconds(text)
			default:
				m[name] = v
			}
		}
		rows = append(rows, m)
	}
	data := map[string]any{"time": s.at.UTC(), "title": s.title, "notes": append([]string{}, s.Notes...), s.what: rows}
	if len(s.budgets) > 0 {
		data["budgets"] = s.budgets
	}
	return data
}

// Table writes the snapshot for people.
func (s *Snapshot) Table(w io.Writer) error {
	fmt.Fprintln(w, format.When(s.at)+" "+format.Clean(s.title))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	format.Row(t, s.titles()...)
	for _, row := range s.rows {
		format.Row(t, s.cells(row)...)
	}
	if s.below != "" {
		defer fmt.Fprintln(w, format.Clean(s.below))
	}
	return t.Flush()
}

// ObservedAtMost is how many providers are asked to report every second.
const ObservedAtMost = 16

// readEvery is how often Each reads: reports come once a second, and rates are of whole
// windows only if none is missed.
const readEvery = time.Second

// Subject is what a snapshot shows: a provider by instance, class, key or label, or all providers if
// none is named.
type Subject struct {
	Provider string
	By       string
}

// Values of Subject.By.
const (
	ByInstance = "instance"
	ByClass    = "class"
	ByKey      = "key"
	ByLabel    = "label"
)

// Bys are all of them.
var Bys = []string{ByInstance, ByClass, ByKey, ByLabel}

// Each calls f with a snapshot at each interval until f returns false or ctx ends. Snapshots without the rates of instances
// that have reported are dropped for the first time of that length.
func Each(ctx context.Context, operator *admin.Client, of Subject, interval, unrated time.Duration, f func(*Snapshot, error) bool) {
	w := live.NewWatcher(operator, ObservedAtMost)
	defer w.Close()
	begun := time.Now()
	for due := begun; ; {
		t, err := read(ctx, w, of)
		now := time.Now()
		is := !now.Before(due) && (err != nil || !t.unrated || now.Sub(begun) >= unrated)
		if ctx.Err() != nil || (err != nil || is) && !f(t, err) {
			return
		}
		if is {
			due = now.Add(interval)
		}
		next := time.Until(due)
		if next <= 0 {
			next = readEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(readEvery, next)):
		}
	}
}

func read(ctx context.Context, w *live.Watcher, of Subject) (t *Snapshot, err error) {
	if of.Provider != "" {
		t, err = readOne(ctx, w, of)
	} else {
		t, err = readAll(ctx, w)
	}
	if err == nil && w.Blind != "" {
		t.Notes = append(t.Notes, w.Blind)
	}
	return t, err
}

func readOne(ctx context.Context, w *live.Watcher, of Subject) (*Snapshot, error) {
	provider := of.Provider
	p, err := w.Look(ctx, provider)
	if err != nil {
		return nil, err
	}
	f := p.Fleet
	if f.Policy.Revision == 0 && len(f.Instances) == 0 {
		return nil, fmt.Errorf("%s: %w", provider, admin.ErrNotFound)
	}
	t := &Snapshot{at: p.At, title: provider + ": " + p.Status.Line(), what: "instances"}
	if p.Status.Problem != "" {
		t.Notes = append(t.Notes, "the policy cannot be applied: "+p.Status.Problem)
	}
	t.Notes = append(t.Notes, p.Status.Troubles...)
	t.foresee(p)
	t.unrated = p.Unrated() // by key and label too: what was reported before somebody looked may be 30 s old
	switch of.By {
	case ByClass:
		t.fillClasses(p)
		return t, nil
	case ByKey:
		if f.Policy.Revision != 0 && len(f.Policy.Policy.Keys.Limits) == 0 {
			t.Notes = append(t.Notes, "the policy has no limits by key: set some with --keys")
		}
		t.fill("key", live.BusiestKeys(f))
		return t, nil
	case ByLabel:
		t.fill("label", live.BusiestLabels(f))
		return t, nil
	}
	t.alarm(p.Classes())
	t.columns = slices.DeleteFunc(slices.Clone(live.Instances), func(c live.Header) bool { return c.Title == "" })
	for n := range f.Instances {
		var row []any
		for i, v := range p.Line(&f.Instances[n], p.At) {
			if live.Instances[i].Title != "" {
				row = append(row, v)
			}
		}
		t.rows = append(t.rows, row)
	}
	t.order()
	if len(f.Policy.Policy.Keys.Limits) > 0 {
		t.below = "REFUSED/S has no calls that a limit of their key refused: top " + provider + " --by key shows these"
	}
	return t, nil
}

var classColumns = []live.Header{
	{Title: "CLASS", Name: "class"}, {Title: "ISSUED/S", Name: "issued_per_second"}, {Title: "REFUSED/S", Name: "refused_per_second"}, {Title: "WAITING", Name: "waiting"},
}

// alarm says that critical calls are refused.
func (s *Snapshot) alarm(all []live.ClassRate) {
	for _, c := range all {
		if c.Class == live.Critical && c.Refused > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("critical calls are refused, %.4g/s: see --by class", c.Refused))
		}
	}
}

// fillClasses shows the classes of calls in place of the instances.
func (s *Snapshot) fillClasses(p *live.Provider) {
	s.what, s.columns = "classes", classColumns
	if n := p.Fleet.Policy.Policy.Critical; n > 0 {
		s.title += fmt.Sprintf(", %d%% kept for critical calls", n)
	}
	all := p.Classes()
	if all == nil && len(p.Fleet.Instances) > 0 { // without any, nobody knows
		s.Notes = append(s.Notes, "no call has had a class yet, so all are default: callers name another by Limiter.Class")
	}
	for _, c := range all {
		s.rows = append(s.rows, []any{c.Class, c.Issued, c.Refused, c.Waiting})
	}
}

// fill shows the busiest keys or labels in place of the instances. Their rates are in each
// report.
func (s *Snapshot) fill(what string, busiest []live.Rate) {
	s.what, s.columns = what+"s", []live.Header{
		{Title: strings.ToUpper(what), Name: what}, {Title: "ISSUED/S", Name: "issued_per_second"}, {Title: "REFUSED/S", Name: "refused_per_second"}, {Title: "INSTANCES", Name: "instances"},
		{Title: "REPORT-AGE", Name: "report_age_seconds", Unit: "s"},
	}
	for _, r := range busiest {
		var name any // nil if there is none
		if r.Name != "" {
			name = r.Name
		}
		s.rows = append(s.rows, []any{name, r.Issued, r.Refused, int64(r.Instances), max(0, s.at.Sub(r.Told)).Round(time.Millisecond).Seconds()})
	}
}

// foresee adds what the fleet issues, and what becomes of long limits at that rate.
func (s *Snapshot) foresee(p *live.Provider) {
	issued := p.Row.Issued
	if issued != nil {
		s.title += ", issued " + number(*issued) + "/s"
	}
	s.budgets = p.Budgets()
	for _, b := range s.budgets {
		if !b.Exhausted.IsZero() {
			s.Notes = append(s.Notes, b.Foretell(*issued, p.At))
		}
	}
}

// order sorts the rows by name, and puts the incarnation last: on a narrow terminal the last
// column is cut.
func (s *Snapshot) order() {
	i := slices.IndexFunc(s.columns, func(c live.Header) bool { return c.Name == "incarnation" })
	last := s.columns[i]
	s.columns = append(slices.Delete(s.columns, i, i+1), last)
	for n, row := range s.rows {
		last := row[i]
		s.rows[n] = append(slices.Delete(row, i, i+1), last)
	}
	slices.SortStableFunc(s.rows, func(x, y []any) int { return compare(x[0], y[0]) })
}

var providerColumns = []live.Header{
	{Title: "PROVIDER", Name: "provider"}, {Title: "LIMITS", Name: "limits"}, {Title: "MODE", Name: "mode"},
	{Title: "INSTANCES", Name: "instances"}, {Title: "APPLIED", Name: "applied"},
	{Title: "ISSUED/S", Name: "issued_per_second"}, {Title: "REFUSED/S", Name: "refused_per_second"}, {Title: "SHADOWED/S", Name: "shadowed_per_second"},
	{Title: "WAITING", Name: "waiting"}, {Title: "TROUBLES", Name: "troubles"},
}

func readAll(ctx context.Context, w *live.Watcher) (*Snapshot, error) {
	if err := w.Read(ctx, nil, math.MaxInt); err != nil {
		return nil, err
	}
	t := &Snapshot{at: time.Now(), what: "providers", columns: providerColumns}
	all := w.Rows(t.at)
	t.title = format.Count(len(all), "provider")
	for _, r := range all {
		if r.Problem != "" {
			t.Notes = append(t.Notes, r.Provider+": "+r.Problem)
			continue
		}
		row := []any{r.Provider, r.Limits, r.Mode, int64(r.Instances), int64(r.Applied), nil, nil, nil, r.Waiting, int64(r.Troubles)}
		if r.Issued != nil {
			row[5], row[6], row[7] = *r.Issued, *r.Refused, r.Shadowed
		}
		t.unrated = t.unrated || r.Issued == nil && r.Instances > 0
		t.rows = append(t.rows, row)
	}
	return t, nil
}
