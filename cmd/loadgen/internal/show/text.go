// Package show tells of a run: its progress, its windows and verdict as text,
// and all of it as a page with charts.
package show

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/quotient-limiter/quotient/internal/load"
)

// tableRows is how many windows the table shows at most. Of more it shows the
// first and last ones, and each that is over its limit or in which something befell the fleet.
const tableRows = 60

// Table writes a row for each window of a run of so many instances.
func Table(out io.Writer, r *load.Report, fleet int) {
	windows := r.Windows
	if len(windows) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	row := func(start, length, limit, offered, issued, arrived, instances, note string) {
		cells := []string{start, length, limit, offered, issued, arrived, instances, note}
		if windows[0].Arrived == nil {
			cells = append(cells[:5], cells[6:]...)
		}
		if windows[0].Length == "" {
			cells = append(cells[:1], cells[2:]...)
		}
		last := len(cells) - 1
		fmt.Fprintln(w, strings.Join(cells[:last], "\t")+"\t"+strings.TrimRight("  "+cells[last], " "))
	}
	row("start", "window", "limit", "offered", "issued", "arrived", "instances", "")
	left := 0
	leftOut := func() {
		if left > 0 {
			row("...", "", "", "", "", "", "", fmt.Sprintf("%d more, none over its limit", left))
		}
		left = 0
	}
	for i := range windows {
		v := &windows[i]
		events := eventsIn(r, v)
		if n := len(windows); n > tableRows && i >= tableRows/2 && i < n-tableRows/2 && !v.Over() && !v.ArrivedOver() && len(events) == 0 {
			left++
			continue
		}
		leftOut()
		arrived := ""
		if v.Arrived != nil {
			arrived = humanize.Comma(*v.Arrived)
		}
		row(v.Start.UTC().Format("15:04:05.999"), v.Length, humanize.Comma(v.Limit), humanize.Comma(v.Offered), humanize.Comma(v.Issued), arrived,
			strconv.Itoa(v.Instances), strings.Join(append(events, note(v, fleet)...), "; "))
	}
	leftOut()
}

// eventsIn says what befell the fleet in a window.
func eventsIn(r *load.Report, w *load.Window) (texts []string) {
	end := w.Start.Add(lengthOf(r, w.Length))
	for _, e := range r.Events {
		if !e.At.Before(w.Start) && e.At.Before(end) {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// lengthOf is how long a window is whose Length is this.
func lengthOf(r *load.Report, length string) time.Duration {
	if d, err := time.ParseDuration(length); err == nil {
		return d
	}
	return time.Duration(r.WindowNs)
}

// note says what there is to say of the permits of a window; nothing if it is as it should be.
func note(w *load.Window, fleet int) []string {
	switch {
	case w.Over():
		return []string{"OVER by " + humanize.Comma(w.Issued-w.Doubtful-w.Most())}
	case w.ArrivedOver():
		return []string{humanize.Comma(*w.Arrived-w.Late-w.Limit) + " too many arrived"}
	case w.Doubtful > 0:
		return []string{humanize.Comma(w.Doubtful) + " of them doubtful"}
	case w.Settling:
		return []string{"limit changes"}
	case w.Instances < fleet && w.Whole:
		return []string{"not all active"}
	case w.Instances < fleet:
		return []string{"settling"}
	case !w.Whole:
		return []string{"not measured"}
	}
	return nil
}

// Summary writes what the run came to, in a few lines.
func Summary(w io.Writer, s *load.Summary) {
	a := s.AcquireNs
	fmt.Fprintf(w, "settled in %.1f s; peak to mean %.1f in 10 ms\n", s.SettleSeconds, s.PeakToMean10ms)
	if a.Max > 0 { // some were granted at once
		fmt.Fprintf(w, "a permit took %v (p50), %v (p99), %v (p99.9), %v at most; ",
			time.Duration(a.P50), time.Duration(a.P99), time.Duration(a.P999), time.Duration(a.Max))
	}
	fmt.Fprintf(w, "CPU %.1f s; memory %d MiB\n", s.CPUSeconds, s.MaxRSSBytes>>20)
	if one := &s.OneLimiter; one.Due > 0 {
		fmt.Fprintf(w, "%s of what one limiter would have issued; in the worst window %s\n", percent(one.Ratio), percent(one.Worst.Ratio()))
	}
	if a := s.Arrivals; a != nil {
		fmt.Fprintf(w, "%s requests arrived, %s of them late; ", humanize.Comma(a.Total), humanize.Comma(a.Late))
		if a.Judged {
			fmt.Fprintf(w, "the others by the provider's clock: %.4f of the limit at most, with the late ones %.4f\n", a.MaxOverRatio, a.MaxLateRatio)
		} else {
			fmt.Fprintf(w, "not judged: %s\n", a.Unjudged)
		}
	}
	if e := s.Etcd; e != nil {
		fmt.Fprintf(w, "etcd had %.0f writes a second, and in them %.0f asks, %.0f loans, %.0f reports\n", e.PerSecond, e.Keys["asks"], e.Keys["loans"], e.Keys["reports"])
	}
	if f := s.FirstLoan; f != nil {
		fmt.Fprintf(w, "a window's first loan came after %v (p50), %v (p99), in %s windows of instances\n",
			time.Duration(f.P50).Round(time.Microsecond), time.Duration(f.P99).Round(time.Microsecond), humanize.Comma(f.Windows))
	}
	if b := s.Budgets; b != nil {
		fmt.Fprintf(w, "long limits: %s transactions, %.2f a second and instance; %s permits were taken and not issued\n",
			humanize.Comma(b.Transactions), b.EachPerSecond, humanize.Comma(b.NotIssued))
	}
	if d := s.Departures; d != nil {
		fmt.Fprintf(w, "left and replaced: %d announced, %d killed", d.Announced, d.Killed)
		if d.Unannounced > 0 {
			fmt.Fprintf(w, ", %d that could not announce it", d.Unannounced)
		}
		fmt.Fprintln(w)
	}
}

// Verdict writes a line, and another one of how much of what was due came.
func Verdict(w io.Writer, r *load.Report) {
	s := &r.Summary
	held := fmt.Sprintf("%s permits issued in %d windows, %d of them whole; none over %s%s",
		humanize.Comma(s.IssuedTotal), len(r.Windows), s.Windows, heldText(s.Spans), unplacedText(&s.OwnClock))
	switch r.Verdict {
	case load.Held, load.Underused:
		fmt.Fprintf(w, "%s: %s\n", strings.ToUpper(string(r.Verdict)), held)
	case load.NotHeld:
		fmt.Fprintf(w, "NOT HELD: %s\n", overText(r.Windows, s))
	case load.Unused:
		fmt.Fprintf(w, "UNUSED: no permit was issued in %d whole windows, though %s were due: that no limit was exceeded says nothing\n",
			s.Windows, humanize.Comma(s.Used.Due))
	default:
		fmt.Fprintf(w, "UNKNOWN: %s (%s permits issued)\n", strings.Join(s.Unjudged, "; "), humanize.Comma(s.IssuedTotal))
	}
	if k := s.Keys; k != nil {
		fmt.Fprintf(w, "KEYS: %d of %s windows of %d keys over the key's limit; the fullest has %.4f of it\n",
			k.OverLimitWindows, humanize.Comma(int64(k.Windows)), k.Keys, k.MaxOverRatio)
	}
	if s.Used.Came > 0 {
		fmt.Fprintln(w, usedText(&s.Used, r.LeastUse))
	}
}

// usedText says how much of what was due came.
func usedText(u *load.Use, least float64) string {
	text := fmt.Sprintf("USED: %s of the %s permits that were due", percent(u.Ratio), humanize.Comma(u.Due))
	if u.Ratio < least {
		text += fmt.Sprintf(", less than the %v%% of --least-use", 100*least)
	}
	text += fmt.Sprintf("; in the worst window %s", percent(u.Worst.Ratio()))
	if u.Excused > 0 {
		text += fmt.Sprintf("; %s were not due, because not all instances served", humanize.Comma(u.Excused))
	}
	return text
}

func overText(windows []load.Window, s *load.Summary) string {
	own := &s.OwnClock
	switch {
	case s.Spans != nil && s.Spans.Over > 0:
		return fmt.Sprintf("%s of %s spans over their bound, the worst: %s",
			humanize.Comma(s.Spans.Over), humanize.Comma(s.Spans.Judged), spanText(s.Spans))
	case s.Keys != nil && s.Keys.OverLimitWindows > 0:
		return fmt.Sprintf("%d of %s windows of keys over the key's limit, the worst by a factor of %.4f", s.Keys.OverLimitWindows, humanize.Comma(int64(s.Keys.Windows)), s.Keys.MaxOverRatio)
	case s.OverLimitWindows > 0:
		return fmt.Sprintf("%d of %d windows over the limit, the worst by a factor of %.4f", s.OverLimitWindows, len(windows), s.MaxOverRatio)
	case own.Outside > 0:
		return fmt.Sprintf("%s of %s permits came outside their windows by loadgen's own clock, by up to %v more than the %v that clocks may err",
			humanize.Comma(own.Outside), humanize.Comma(s.IssuedTotal), time.Duration(own.WorstNs), time.Duration(own.ToleranceNs))
	}
	return fmt.Sprintf("more requests arrived than the limit in %d of the provider's windows, the worst by a factor of %.4f",
		s.Arrivals.OverLimitWindows, s.Arrivals.MaxOverRatio)
}

// unplacedText says of how many permits the generator's clock could not tell
// whether they came in their windows, and what they might hide; empty: of all it could.
func unplacedText(o *load.OwnSummary) string {
	if o.Unplaced == 0 {
		return ""
	}
	text := fmt.Sprintf("; %s permits were held up, so that only their windows tell when they were issued", humanize.Comma(o.Unplaced))
	if o.Excess > 0 {
		text += fmt.Sprintf("; issued as they came, a window has up to %s more than it may", humanize.Comma(o.Excess))
	}
	return text
}

func heldText(p *load.SpanSummary) string {
	if p == nil || p.Worst == nil {
		return "its limit"
	}
	return fmt.Sprintf("its bound, nor any of %s spans; the fullest: %s", humanize.Comma(p.Judged), spanText(p))
}

// spanText is the span that came nearest to its bound, or is the most over.
func spanText(p *load.SpanSummary) string {
	s, of := p.Worst, ""
	if s.Window != "" {
		of = ", of the limit per " + s.Window
	}
	return fmt.Sprintf("%s permits in %v from %s on, %s allowed%s",
		humanize.Comma(s.Issued), time.Duration(s.LengthNs), s.Start.UTC().Format("15:04:05.000"), humanize.Comma(s.Allowed), of)
}

// percent rounds down: 100% is all of it.
func percent(ratio float64) string { return fmt.Sprintf("%.2f%%", math.Floor(1e4*ratio+1e-6)/100) }

const lineEvery = 3 * time.Second

// Progress tells how far a run is, in a line as each phase begins, and then every few
// seconds. Its method is called from one goroutine.
type Progress struct {
	W     io.Writer // nil: silence
	phase string
	last  time.Time
}

// Tell writes a line if it is time for one.
func (p *Progress) Tell(phase, format string, args ...any) {
	if p.W != nil && (phase != p.phase || time.Since(p.last) >= lineEvery) {
		p.phase, p.last = phase, time.Now()
		fmt.Fprintf(p.W, format+"\n", args...)
	}
}
