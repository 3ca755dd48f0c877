// Package live is what top and the dashboard show: providers and their instances,
// read again and again, with the rates that their reports come to. Rates are of whole
// windows: none shows more than the limit because a window was cut in two.
package live

import (
	"context"
	"errors"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
)

// Watcher reads providers, and asks their instances to report every second. It is
// for one goroutine.
type Watcher struct {
	admin *coordinator.Admin
	most  int // providers that are observed: each of their instances writes every second
	seen  map[string]*Provider
	Blind string // why instances do not report every second; "" if they do
}

// NewWatcher returns a watcher that observes at most so many providers.
func NewWatcher(admin *coordinator.Admin, most int) *Watcher {
	return &Watcher{admin: admin, most: most, seen: map[string]*Provider{}}
}

// Seen returns what is remembered of a provider, or nil.
func (w *Watcher) Seen(name string) *Provider { return w.seen[name] }

// Look reads a provider once more. Providers that are opened are observed before
// others. Rates need a look every second.
func (w *Watcher) Look(ctx context.Context, name string, opened func(name string) bool) (*Provider, error) {
	p := w.seen[name]
	if p == nil {
		p = newProvider(name)
		w.seen[name] = p
	}
	w.observe(ctx, p, opened)
	f, err := w.admin.Refresh(ctx, p.Fleet)
	if err != nil {
		return nil, err
	}
	p.see(time.Now(), &f)
	return p, nil
}

func (w *Watcher) observe(ctx context.Context, p *Provider, opened func(string) bool) {
	if p.stop != nil || w.Blind != "" {
		return
	}
	observed, other := 0, (*Provider)(nil)
	for name, o := range w.seen {
		if o.stop != nil {
			if observed++; !opened(name) {
				other = o
			}
		}
	}
	if observed >= w.most {
		if !opened(p.Row.Provider) {
			return
		}
		if other != nil {
			other.end()
		}
	}
	stop, err := w.admin.Observe(ctx, p.Row.Provider)
	switch {
	case errors.Is(err, coordinator.ErrPermission):
		w.Blind = "this user may not ask for a report every second: numbers are up to 30 s old"
	case err == nil:
		p.stop = stop
	}
}

// Keep forgets all providers but those.
func (w *Watcher) Keep(wanted func(name string) bool) {
	for name, p := range w.seen {
		if !wanted(name) {
			p.end()
			delete(w.seen, name)
		}
	}
}

// Close forgets everything, and lets the instances report as they like.
func (w *Watcher) Close() {
	w.Keep(func(string) bool { return false })
	w.Blind = ""
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
