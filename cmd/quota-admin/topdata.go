package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/change"
	"github.com/quotient-limiter/quotient/quota"
)

// cell is one value of top's table. Numbers sort as such, and their columns are
// set to the right.
type cell struct {
	text   string
	number float64
	isNum  bool
}

func text(s string) cell { return cell{text: show(s)} }

func count(n int64) cell {
	return cell{text: strconv.FormatInt(n, 10), number: float64(n), isNum: true}
}

func rate(perSecond float64, known bool) cell {
	if !known {
		return cell{text: "-", number: -1, isNum: true}
	}
	return cell{text: strconv.FormatFloat(perSecond, 'f', 0, 64), number: perSecond, isNum: true}
}

// snapshot is what top shows at one moment.
type snapshot struct {
	at     time.Time
	title  string
	notes  []string // what is wrong
	header []string
	rows   [][]cell
}

// counter is what an instance had done by a report.
type counter struct {
	at                      time.Time
	used, refused, shadowed int64
	rates                   rates
}

// rates are per second, between an instance's last two reports.
type rates struct {
	used, refused, shadowed float64
	known                   bool
}

// meter remembers the last report of every incarnation.
type meter map[string]counter

// see returns the rates at a report. The same report again leaves them.
func (m meter) see(incarnation string, r *quota.Report) rates {
	last, ok := m[incarnation]
	if ok && !r.Time.After(last.at) {
		return last.rates
	}
	now := counter{at: r.Time, used: r.Used, refused: r.Refused, shadowed: r.Shadowed}
	if elapsed := r.Time.Sub(last.at).Seconds(); ok && elapsed > 0 {
		per := func(now, before int64) float64 { return max(0, float64(now-before)/elapsed) }
		now.rates = rates{per(r.Used, last.used), per(r.Refused, last.refused), per(r.Shadowed, last.shadowed), true}
	}
	m[incarnation] = now
	return now.rates
}

// observedAtMost is how many providers top without one asks to report every
// second: each of their instances then writes that often.
const observedAtMost = 16

// topSource reads snapshots of one provider, or of all.
type topSource struct {
	admin    *coordinator.Admin
	provider string // empty: all
	meters   map[string]meter
	stops    []func()
	watched  map[string]bool
	blind    string // why instances do not report every second
}

func newTopSource(admin *coordinator.Admin, provider string) *topSource {
	return &topSource{admin: admin, provider: provider, meters: map[string]meter{}, watched: map[string]bool{}}
}

// close tells the instances that nobody looks any more.
func (s *topSource) close() {
	for _, stop := range s.stops {
		stop()
	}
}

// observe asks the provider's instances for a report every second.
func (s *topSource) observe(ctx context.Context, provider string) {
	if s.watched[provider] || s.blind != "" || len(s.watched) >= observedAtMost {
		return
	}
	s.watched[provider] = true
	stop, err := s.admin.Observe(ctx, provider)
	switch {
	case errors.Is(err, coordinator.ErrPermission):
		s.blind = "this user may not ask for a report every second: numbers are up to 30 s old"
	case err != nil:
		delete(s.watched, provider) // tried again
	default:
		s.stops = append(s.stops, stop)
	}
}

// read returns what there is now.
func (s *topSource) read(ctx context.Context) (*snapshot, error) {
	now := time.Now()
	var t *snapshot
	var err error
	if s.provider == "" {
		t, err = s.readAll(ctx, now)
	} else {
		t, err = s.readOne(ctx, now)
	}
	if err == nil && s.blind != "" {
		t.notes = append(t.notes, s.blind)
	}
	return t, err
}

func (s *topSource) readOne(ctx context.Context, now time.Time) (*snapshot, error) {
	s.observe(ctx, s.provider)
	f, err := readFleet(ctx, s.admin, s.provider, now)
	if err != nil {
		return nil, err
	}
	t := &snapshot{at: now, title: s.provider + ": " + f.summary(), notes: f.troubles(),
		header: []string{"NAME", "INCARNATION", "SHARE", "STATE", "USED/S", "REFUSED/S", "SHADOWED/S", "WAITING", "POLICY", "CLOCK-ERROR", "PROOF-AGE", "REPORT-AGE"}}
	if f.Problem != "" {
		t.notes = slices.Insert(t.notes, 0, "the policy cannot be applied: "+f.Problem)
	}
	m := s.meters[s.provider]
	if m == nil {
		m = meter{}
		s.meters[s.provider] = m
	}
	for _, i := range f.Instances {
		row := []cell{text(i.Name), text(i.Incarnation), {text: "-", number: -1, isNum: true}}
		if i.Share != nil {
			row[2] = count(*i.Share)
		}
		if r := i.Report; r == nil {
			dash := cell{text: "-"}
			none := cell{text: "-", number: -1, isNum: true}
			row = append(row, dash, none, none, none, none, none, dash, dash, none)
		} else {
			x := m.see(i.Incarnation, r)
			age := max(0, now.Sub(r.Time))
			row = append(row, text(string(r.State)), rate(x.used, x.known), rate(x.refused, x.known), rate(x.shadowed, x.known),
				count(r.Waiting), count(r.PolicyRevision), text(r.ClockError), text(r.ProofAge),
				cell{text: age.Round(time.Second).String(), number: age.Seconds(), isNum: true})
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

func (s *topSource) readAll(ctx context.Context, now time.Time) (*snapshot, error) {
	all, err := s.admin.List(ctx)
	if err != nil {
		return nil, err
	}
	t := &snapshot{at: now, title: fmt.Sprintf("%d providers", len(all)),
		header: []string{"PROVIDER", "LIMITS", "MODE", "INSTANCES", "APPLIED", "USED/S", "REFUSED/S", "SHADOWED/S", "WAITING", "TROUBLES"}}
	for _, p := range all {
		if p.Problem != nil {
			t.notes = append(t.notes, p.Provider+": "+problem(p))
			continue
		}
		s.observe(ctx, p.Provider)
		f, err := readFleet(ctx, s.admin, p.Provider, now)
		if errors.Is(err, coordinator.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		t.rows = append(t.rows, s.providerRow(p, f, now))
	}
	return t, nil
}

func (s *topSource) providerRow(p coordinator.Stored, f *fleet, now time.Time) []cell {
	m := s.meters[p.Provider]
	if m == nil {
		m = meter{}
		s.meters[p.Provider] = m
	}
	var sum rates
	var waiting int64
	for _, i := range f.Instances {
		if i.Report == nil {
			continue
		}
		x := m.see(i.Incarnation, i.Report)
		sum.used, sum.refused, sum.shadowed, sum.known = sum.used+x.used, sum.refused+x.refused, sum.shadowed+x.shadowed, sum.known || x.known
		waiting += i.Report.Waiting
	}
	current := change.Current(p.Policy, now)
	return []cell{
		text(p.Provider), text(quota.FormatLimits(current.Limits)), text(string(current.WithDefaults().Mode)),
		count(int64(f.Count)), {text: fmt.Sprintf("%d/%d", f.Applied, f.Count), number: float64(f.Applied - f.Count), isNum: true},
		rate(sum.used, sum.known), rate(sum.refused, sum.known), rate(sum.shadowed, sum.known), count(waiting), count(int64(len(f.troubles()))),
	}
}

// sortRows sorts by one column; equal rows stay as they are.
func sortRows(rows [][]cell, column int, down bool) {
	slices.SortStableFunc(rows, func(x, y []cell) int {
		a, b := x[column], y[column]
		order := strings.Compare(a.text, b.text)
		if a.isNum && b.isNum {
			switch {
			case a.number < b.number:
				order = -1
			case a.number > b.number:
				order = 1
			default:
				order = 0
			}
		}
		if down {
			order = -order
		}
		return order
	})
}
