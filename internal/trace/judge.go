package trace

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Report is the verdict on a run.
type Report struct {
	Traces, Views int
	// Held windows had at most their bound, whenever the views were committed within what
	// is known. Over ones had more.
	Held, Over int
	// Undecided are windows of which that cannot be told, and Unpromised those of which
	// nothing is promised, by reasons.
	Undecided, Unpromised map[string]int
	// Excess is by how much an undecided window may be over its bound, at most, where that
	// is known.
	Excess int64
	// Overs tell of the first windows that were over, at most maxOvers.
	Overs []string
	// Rulings are of the windows of which the bound by [B-, B+] is promised, and decides.
	Rulings []Ruling
	// Problem is why nothing can be concluded; empty if there is none.
	Problem string
}

// Ruling is how a window was judged.
type Ruling struct {
	quota.Window
	Views Views
	// The times by which B- and B+ are computed, and these.
	Settle, Freshness, ClockError time.Duration
	From, To                      int64
	Last                          int64 // when the last permit was issued at the latest
	Least, Most                   int64 // of the permits issued
	Bound                         Bound
}

// Held reports whether the window had at most its bound, and Over whether it had more.
func (r *Ruling) Held() bool { return r.Most <= r.Bound.Least }

// Over reports whether the window had more than its bound.
func (r *Ruling) Over() bool { return r.Least > r.Bound.Most }

const maxOvers = 10

// mostUndecided is the part of the windows that may be undecided. One is undecided only if a
// process is killed, or a view committed, just when it matters; more windows than a tenth are
// so only if traces are missing, or cut.
const mostUndecided = 0.1

// OK reports whether nearly all windows were judged, and none was over.
func (r *Report) OK() bool {
	return r.Problem == "" && r.Over == 0 && r.Held > 0 && float64(r.undecided()) <= mostUndecided*float64(r.Held+r.undecided())
}

func (r *Report) undecided() (n int) {
	for _, some := range r.Undecided {
		n += some
	}
	return n
}

// String is the verdict in words: a line, and one for each of Overs.
func (r *Report) String() string {
	counts := func(what string, by map[string]int) (text string) {
		for _, why := range slices.Sorted(maps.Keys(by)) {
			text += fmt.Sprintf("; %s: %d (%s)", what, by[why], why)
		}
		return text
	}
	windows := fmt.Sprintf("%d windows held by %d views of %d limiters%s%s", r.Held, r.Views, r.Traces,
		counts("undecided", r.Undecided), counts("nothing promised", r.Unpromised))
	if r.Excess > 0 {
		windows += fmt.Sprintf("; an undecided one may be over its bound by %d permits", r.Excess)
	}
	switch {
	case r.Over > 0:
		return fmt.Sprintf("TRACE NOT HELD: %d windows over the proved bound; %s\n%s", r.Over, windows, strings.Join(r.Overs, "\n"))
	case r.Problem != "":
		return "TRACE UNKNOWN: " + r.Problem
	case r.Held == 0:
		return "TRACE UNKNOWN: no window could be judged; " + windows
	case !r.OK():
		return fmt.Sprintf("TRACE UNKNOWN: %d of %d windows could not be judged; %s", r.undecided(), r.Held+r.undecided(), windows)
	}
	return "TRACE HELD: " + windows
}

// Judge decides on all windows of a run.
func (r *Run) Judge() *Report {
	rep := &Report{Traces: len(r.streams), Undecided: map[string]int{}, Unpromised: map[string]int{}}
	providers := map[string][]*stream{}
	for _, s := range r.streams {
		providers[s.provider] = append(providers[s.provider], s)
	}
	for _, provider := range slices.Sorted(maps.Keys(providers)) {
		t, err := r.timelineOf(providers[provider])
		if err != nil {
			rep.Problem = err.Error()
			return rep
		}
		rep.Views += len(t.Views)
		windows := map[quota.Window]bool{}
		for _, s := range providers[provider] {
			for w, u := range s.uses {
				windows[w] = windows[w] || u.issued > 0
			}
		}
		maps.DeleteFunc(windows, func(_ quota.Window, some bool) bool { return !some })
		for _, w := range slices.SortedFunc(maps.Keys(windows), func(a, b quota.Window) int {
			return cmp.Or(cmp.Compare(a.Start(), b.Start()), cmp.Compare(a.Length, b.Length))
		}) {
			(&hearing{timeline: t, streams: providers[provider], w: w}).decide(rep)
		}
	}
	return rep
}

// JudgeDir is the report on the traces in a directory, also if they cannot be read.
func JudgeDir(dir string) *Report {
	r, err := ReadDir(dir)
	if err != nil {
		return &Report{Problem: err.Error()}
	}
	return r.Judge()
}

// hearing is of one window.
type hearing struct {
	*timeline
	streams []*stream
	w       quota.Window
	// low is what was issued at least, high what it may be: killed limiters may have
	// issued more than they could tell.
	low, high int64
	rules     rules
	ruling    *Ruling // if [B-, B+] decides
}

// rules are the times of the policies that may have been in force about a window.
type rules struct {
	settle, freshness, clockError time.Duration
	same, shaped, hold            bool
}

func (h *hearing) decide(rep *Report) {
	h.count()
	h.times()
	b, why := h.bound()
	if h.ruling != nil {
		rep.Rulings = append(rep.Rulings, *h.ruling)
	}
	switch {
	case b.Least == Unlimited:
		rep.Unpromised["no limit in force"]++
	case h.high <= b.Least && h.untraced(b.By):
		rep.Undecided["an instance left no trace"]++
	case h.high <= b.Least && h.cut():
		rep.Undecided["a trace ends before its limiter was closed"]++
	case h.high <= b.Least:
		rep.Held++
	case why != "":
		rep.Unpromised[why]++
	case h.low > b.Most:
		if rep.Over++; len(rep.Overs) < maxOvers {
			rep.Overs = append(rep.Overs, h.explain(b))
		}
	case h.low <= b.Least:
		rep.Undecided["an instance was killed"]++
		rep.Excess = max(rep.Excess, h.high-b.Least)
	default:
		rep.Excess = max(rep.Excess, h.low-b.Least)
		rep.Undecided["when a view was committed is not known well enough"]++
	}
}

// count adds up what was issued.
func (h *hearing) count() {
	for _, s := range h.streams {
		u := s.uses[h.w]
		if u == nil {
			continue
		}
		h.low += u.issued
		h.high += u.issued
		if !s.closed && slices.Contains(s.running, h.w) {
			h.high += min(max(0, u.bound-u.issued), Unlimited-h.high)
		}
	}
}

// times finds the rules: of all views that may have been the newest from so long before the
// window that any may count.
func (h *hearing) times() {
	longest := time.Duration(0)
	for i := range h.Views {
		if p := h.Views[i].Policy; p != nil {
			longest = max(longest, p.Settle)
		}
	}
	from := h.w.Start() - int64(longest) - int64(time.Second)
	r := rules{same: true, freshness: math.MaxInt64}
	first := true
	for i := range h.Views {
		p := h.Views[i].Policy
		if p == nil || h.Views[i].After > h.w.End() || i < len(h.Views)-1 && h.Views[i+1].By < from {
			continue
		}
		r.same = r.same && (first || p.Settle == r.settle && p.Freshness == r.freshness && p.ClockError == r.clockError)
		r.settle, r.freshness, r.clockError = max(r.settle, p.Settle), min(r.freshness, p.Freshness), max(r.clockError, p.ClockError)
		r.shaped, r.hold, first = r.shaped || protocol.Shaped(p), r.hold || p.Outage != quota.OutageStop, false
	}
	h.rules = r
}

// bound returns the window's bound, and why nothing is promised of it; empty: the bound is.
func (h *hearing) bound() (b Bound, why string) {
	r, e, start := h.rules, int64(h.rules.clockError), h.w.Start()
	const drift = protocol.DriftBound
	last := h.w.End() + e
	from := start + e - (int64(r.settle)-int64(h.w.Length)/drift)*drift/(drift+1)
	to := start - e - int64(r.freshness)*drift/(drift-1)
	if !r.same {
		from, to = start-e-int64(r.settle)-int64(20*time.Millisecond), start+e-int64(r.freshness)
	}
	if r.hold {
		if oldest, stale := h.oldestProof(last); stale {
			// Lookbacks begin there, and all until the end counts: only if that is one
			// view do all go by the same.
			from = min(from, oldest-int64(r.settle))
			if h.possible(from, last) > 1 {
				why = "an instance held its share without etcd"
			}
			return h.Bound(h.w, from, last, last, h.high, false), why
		}
	}
	if r.shaped {
		why = "a shape counts in other spans"
	}
	for _, s := range h.streams {
		if u := s.uses[h.w]; u != nil && u.issued > 0 && u.off > e {
			why = "a clock was further off than the clock error"
		}
	}
	b = h.Bound(h.w, from, to, last, h.high, !r.same)
	if why == "" && r.same && b.Least != Unlimited {
		h.ruling = &Ruling{h.w, h.Views, r.settle, r.freshness, r.clockError, from, to, last, h.low, h.high, b}
	}
	return b, why
}

// untraced reports whether an instance takes part, by view i, that has written nothing.
func (h *hearing) untraced(i int) bool {
	return i >= 0 && slices.ContainsFunc(h.Views[i].Instances, func(in protocol.Instance) bool {
		return takesPart(&in, h.w) && !h.selves[in.ID]
	})
}

// cut reports whether a trace ends before the window: its limiter may have issued permits of
// it that nothing tells of.
func (h *hearing) cut() bool {
	return slices.ContainsFunc(h.streams, func(s *stream) bool { return s.cut > 0 && s.cut < h.w.End()+int64(h.rules.clockError) })
}

// oldestProof returns the oldest proof, older than the freshness, by which an instance
// may have issued permits of the window; stale says whether there is one.
func (h *hearing) oldestProof(last int64) (sent int64, stale bool) {
	sent = math.MaxInt64
	begin := h.w.Start() - int64(h.rules.clockError)
	for _, s := range h.streams {
		if u := s.uses[h.w]; u == nil || u.issued == 0 {
			continue
		}
		for i, p := range s.proofs {
			until := int64(math.MaxInt64) // another proof came
			if i < len(s.proofs)-1 {
				until = s.proofs[i+1].at
			}
			if over := p.sent + int64(h.rules.freshness); over < until && over < last && until > begin {
				sent, stale = min(sent, p.sent), true
			}
		}
	}
	return sent, stale
}
