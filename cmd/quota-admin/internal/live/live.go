// Package live is what top and the dashboard show: providers and their instances,
// read again and again, with the rates that their reports come to. Rates are of whole
// windows: none shows more than the limit because a window was cut in two.
package live

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// Watcher reads providers, and asks their instances to report every second. It is
// for one goroutine.
type Watcher struct {
	admin  *coordinator.Admin
	most   int // providers that are observed: each of their instances writes every second
	seen   map[string]*Provider
	listed []coordinator.Stored
	turn   int
	Blind  string // why instances do not report every second; "" if they do
}

// NewWatcher returns a watcher that observes at most so many providers.
func NewWatcher(admin *coordinator.Admin, most int) *Watcher {
	return &Watcher{admin: admin, most: most, seen: map[string]*Provider{}}
}

// Seen returns what is remembered of a provider, or nil.
func (w *Watcher) Seen(name string) *Provider { return w.seen[name] }

// Read lists the policies, and looks at the providers that are opened and at so many
// of the others, which take turns. All that is neither opened nor listed is forgotten.
func (w *Watcher) Read(ctx context.Context, opened []string, others int) (err error) {
	if w.listed, err = w.admin.List(ctx); err != nil {
		return err
	}
	var rest []string
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
	names := slices.Clone(opened)
	for range min(others, len(rest)) {
		names = append(names, rest[w.turn%len(rest)])
		w.turn++
	}
	for _, name := range names {
		if _, err := w.Look(ctx, name, opened...); err != nil {
			return err
		}
	}
	return nil
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
	if p.stop == nil && w.Blind == "" && w.mayObserve(name, opened) {
		stop, err := w.admin.Observe(ctx, name)
		switch {
		case errors.Is(err, coordinator.ErrPermission):
			w.Blind = "this user may not ask for a report every second: numbers are up to 30 s old"
		case err == nil:
			p.stop = stop
		}
	}
	f, err := w.admin.Refresh(ctx, p.Fleet)
	if err != nil {
		return nil, err
	}
	p.see(time.Now(), &f)
	return p, nil
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
	w.listed, w.Blind = nil, ""
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
	{"WAITING", "waiting", ""}, {"POLICY", "policy_revision", ""}, {"CLOCK-ERROR", "clock_error", ""}, {"", "clock_source", ""}, {"PROOF-AGE", "proof_age", ""},
	{"REPORT-AGE", "report_age_seconds", "s"}, {"", "heard_seconds", ""}, {"", "from", ""}, {"", "until", ""}, {"", "problem", ""},
}

// Line returns an instance's values: texts, int64s, float64s, and nil for what is
// not known. Rates are permits per second, instants milliseconds since the Unix epoch.
func (p *Provider) Line(s *coordinator.InstanceStatus, now time.Time) []any {
	i, r := &s.Instance, s.Report
	line := []any{i.Name, i.ID, i.Host, i.Version, nil}
	if s.ShareKnown {
		line[4] = s.Share
	}
	problem := ""
	if r == nil {
		line = append(line, make([]any, 11)...)
	} else {
		problem = r.Problem
		x := p.meter.of(i.ID, now)
		rate := func(perSecond float64) any {
			if !x.Known {
				return nil
			}
			return round(perSecond)
		}
		line = append(line, string(r.State), rate(x.Issued), rate(x.Refused), rate(x.Shadowed), r.Waiting, r.PolicyRevision,
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
