package rates

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// maxApart is how far two reports of an instance may be apart so that what
// happened in between is told by second: it is longer where nobody looked, or
// etcd was away.
const maxApart = 5 * time.Second

// sample is what an instance had issued in all, in windows that began before at.
type sample struct {
	at     int64 // nanoseconds since the Unix epoch
	issued int64
}

// track is what is remembered of an instance.
type track struct {
	name    string
	samples []sample // in order of time
	live    bool     // at the last look
	last    quota.Report
	heard   time.Time // when last was first seen
	rates   Rates     // between the last two reports
}

// see adds a report. One that was seen before adds nothing.
func (t *track) see(now time.Time, r *quota.Report) {
	if !r.Time.After(t.last.Time) {
		return
	}
	if elapsed := r.Time.Sub(t.last.Time).Seconds(); !t.last.Time.IsZero() && elapsed > 0 {
		per := func(now, before int64, elapsed float64) float64 { return max(0, float64(now-before)/elapsed) }
		t.rates = Rates{Refused: per(r.Refused, t.last.Refused, elapsed), Shadowed: per(r.Shadowed, t.last.Shadowed, elapsed), Known: true}
		if whole := r.WindowStart.Sub(t.last.WindowStart).Seconds(); whole > 0 && !t.last.WindowStart.IsZero() {
			t.rates.Issued = per(r.UsedBefore, t.last.UsedBefore, whole)
		} else if r.WindowStart.IsZero() {
			t.rates.Issued = per(r.Used, t.last.Used, elapsed)
		}
	}
	t.last, t.heard = *r, now
	s := sample{r.Time.UnixNano(), r.Used}
	if !r.WindowStart.IsZero() {
		s = sample{r.WindowStart.UnixNano(), r.UsedBefore}
	}
	if s.issued < 0 {
		return // no instance of ours writes that
	}
	if n := len(t.samples); n > 0 {
		last := t.samples[n-1]
		if s.at <= last.at {
			return
		}
		if s.issued < last.issued { // it counts anew
			t.samples = nil
		}
	}
	t.samples = append(t.samples, s)
}

// covers reports whether an instant is past.
func (t *track) covers(at int64) bool {
	return len(t.samples) > 0 && t.samples[len(t.samples)-1].at >= at
}

// between returns what was issued from one instant to another; known is false
// where no reports tell.
func (t *track) between(from, to int64) (n float64, known bool) {
	a, aKnown := t.at(from)
	b, bKnown := t.at(to)
	return b - a, aKnown && bKnown
}

// at returns what had been issued by an instant: in a straight line between two
// samples.
func (t *track) at(when int64) (float64, bool) {
	for i, s := range t.samples {
		switch {
		case s.at == when:
			return float64(s.issued), true
		case s.at < when:
			continue
		case i == 0 || s.at-t.samples[i-1].at > int64(maxApart):
			return 0, false
		}
		p := t.samples[i-1]
		return float64(p.issued) + float64(s.issued-p.issued)*float64(when-p.at)/float64(s.at-p.at), true
	}
	return 0, false
}

// forget drops what no later question needs.
func (t *track) forget(before int64) {
	for len(t.samples) > 1 && t.samples[1].at <= before {
		t.samples = t.samples[1:]
	}
}
