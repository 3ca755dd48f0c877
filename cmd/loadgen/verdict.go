package main

import (
	"fmt"
	"io"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

// writeSummary writes what the run came to, in a few lines. No utilisation means
// that there was no window to measure it by.
func writeSummary(w io.Writer, s *load.Summary) {
	a := s.AcquireNs
	fmt.Fprintf(w, "settled in %.1f s; utilisation %s (%s of all windows); peak to mean %.1f in 10 ms\n",
		s.SettleSeconds, settledText(s), percent(s.UtilisationAll), s.PeakToMean10ms)
	if a.Max > 0 { // some were granted at once
		fmt.Fprintf(w, "a permit took %v (p50), %v (p99), %v (p99.9), %v at most; ",
			time.Duration(a.P50), time.Duration(a.P99), time.Duration(a.P999), time.Duration(a.Max))
	}
	fmt.Fprintf(w, "CPU %.1f s; memory %d MiB\n", s.CPUSeconds, s.MaxRSSBytes>>20)
	if a := s.Arrivals; a != nil {
		fmt.Fprintf(w, "%s requests arrived, %s of them late; ", thousands(a.Total), thousands(a.Late))
		if a.Judged {
			fmt.Fprintf(w, "the others by the provider's clock: %.4f of the limit at most\n", a.MaxOverRatio)
		} else {
			fmt.Fprintf(w, "not judged: %s\n", a.Unjudged)
		}
	}
	if d := s.Departures; d != nil {
		fmt.Fprintf(w, "left and replaced: %d announced, %d killed", d.Announced, d.Killed)
		if d.Unannounced > 0 {
			fmt.Fprintf(w, ", %d that could not announce it", d.Unannounced)
		}
		fmt.Fprintln(w)
	}
}

// settledText is the utilisation of the windows in which all was settled, if there
// was one.
func settledText(s *load.Summary) string {
	if s.Utilisation == 0 {
		return "unknown"
	}
	return percent(s.Utilisation)
}

// writeVerdict writes one line.
func writeVerdict(w io.Writer, v load.Verdict, windows []load.Window, s *load.Summary) {
	switch v {
	case load.Held:
		fmt.Fprintf(w, "HELD: %s permits issued in %d windows, %d of them whole; none over %s\n",
			thousands(s.IssuedTotal), len(windows), s.Windows, heldText(s.Spans))
	case load.NotHeld:
		if p := s.Spans; p != nil && p.Over > 0 {
			fmt.Fprintf(w, "NOT HELD: %s of %s spans over what they may hold, the worst: %s\n",
				thousands(p.Over), thousands(p.Judged), spanText(p))
			return
		}
		if s.OverLimitWindows == 0 {
			fmt.Fprintf(w, "NOT HELD: more requests arrived than the limit in %d of the provider's windows, the worst by a factor of %.4f\n",
				s.Arrivals.OverLimitWindows, s.Arrivals.MaxOverRatio)
			return
		}
		fmt.Fprintf(w, "NOT HELD: %d of %d windows over the limit, the worst by a factor of %.4f\n",
			s.OverLimitWindows, len(windows), s.MaxOverRatio)
	default:
		fmt.Fprintf(w, "UNKNOWN: no whole window was seen (%s permits issued)\n", thousands(s.IssuedTotal))
	}
}

// heldText says what was not exceeded.
func heldText(p *load.SpanSummary) string {
	if p == nil || p.Worst == nil {
		return "its limit"
	}
	return fmt.Sprintf("what it may hold, nor any of %s spans; the fullest: %s", thousands(p.Judged), spanText(p))
}

// spanText is the span that came nearest to what it may hold, or is the most over.
func spanText(p *load.SpanSummary) string {
	s, of := p.Worst, ""
	if s.Window != "" {
		of = ", of the limit per " + s.Window
	}
	return fmt.Sprintf("%s permits in %v from %s on, %s allowed%s",
		thousands(s.Issued), time.Duration(s.LengthNs), s.Start.UTC().Format("15:04:05.000"), thousands(s.Allowed), of)
}

func percent(ratio float64) string { return fmt.Sprintf("%.2f%%", 100*ratio) }
