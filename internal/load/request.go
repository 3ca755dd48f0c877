package load

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Request is the one use of one permit, as it reaches a provider. Both times are
// nanoseconds since the Unix epoch.
type Request struct {
	// Start is where the permit's window starts, of the shortest limit.
	Start int64
	// Asked is a reading of the caller's system clock before the permit was asked
	// for.
	Asked int64
}

// String and ParseRequest are how a request is written in a header.
func (r Request) String() string { return fmt.Sprint(r.Start, r.Asked) }

// ParseRequest reads what String wrote. Neither time may be before the epoch.
func ParseRequest(text string) (r Request, err error) {
	if _, err := fmt.Sscan(text, &r.Start, &r.Asked); err != nil || r.Start < 0 || r.Asked < 0 {
		return Request{}, fmt.Errorf("%.40q is no request: want two instants, in nanoseconds since 1970", text)
	}
	return r, nil
}

// late reports whether a request arrives after the window of its permit, of that
// length, though the permit was asked for before the window ended: it was held up on
// its way, which no guard can prevent. A request that was asked for later, or that
// arrives early, is not excused.
func (r Request) late(length time.Duration, at int64) bool {
	end := quota.WindowAt(length, r.Start).End()
	return r.Asked < end && end <= at
}

// Provider counts requests by the windows in which they arrive, for each length
// of window: as Issued all of them, and as Offered the late ones. It is safe for
// concurrent use.
type Provider []*Tally

// Counts returns the windows in which requests arrived, by their length.
func (p Provider) Counts() map[time.Duration][]Count {
	counts := map[time.Duration][]Count{}
	for _, t := range p {
		counts[t.length] = t.Counts()
	}
	return counts
}

// Arrive counts a request that arrives at an instant of the provider's clock.
func (p Provider) Arrive(at int64, r Request) {
	for _, t := range p {
		t.Issue(at, 1)
		if r.late(t.length, at) {
			t.Offer(at, 1)
		}
	}
}

// Arrivals is what a provider counted.
type Arrivals struct {
	// Counts are by the length of the windows, as Provider counts them.
	Counts map[time.Duration][]Count
	// Promised says that arrivals over a limit are a violation, because the policy's
	// guard covers the error of all clocks. Then arrivals that are not late are uses
	// of permits of that very window, however busy the machine is, and are held
	// against its limit. No limiter can promise anything of late ones.
	Promised bool
	// Unjudged is why they could not be judged all the same, or why nothing was
	// promised; empty: they are judged.
	Unjudged string
}

// ArrivalSummary is what came of the arrivals.
type ArrivalSummary struct {
	// Promised says that arrivals are held against the limit, Judged that they could
	// be, so that OverLimitWindows decide; Unjudged says why not.
	Promised bool   `json:"promised"`
	Judged   bool   `json:"judged"`
	Unjudged string `json:"unjudged,omitempty"`
	// OverLimitWindows are the provider's windows with more arrivals, without the
	// late ones, than the limit.
	OverLimitWindows int `json:"over_limit_windows"`
	// MaxOverRatio is the largest of such arrivals over the limit.
	MaxOverRatio float64 `json:"max_over_ratio"`
	// MaxLateRatio is the same with the late arrivals.
	MaxLateRatio float64 `json:"max_late_ratio"`
	// Total and Late are of windows of the shortest length.
	Total int64 `json:"total"`
	Late  int64 `json:"late"`
}

func (s *ArrivalSummary) add(w *Window, shortest bool) {
	if w.ArrivedOver() {
		s.OverLimitWindows++
	}
	s.MaxOverRatio = max(s.MaxOverRatio, ratio(*w.Arrived-w.Late, max(w.Limit, 1)))
	s.MaxLateRatio = max(s.MaxLateRatio, ratio(*w.Arrived, max(w.Limit, 1)))
	if shortest {
		s.Total += *w.Arrived
		s.Late += w.Late
	}
}
