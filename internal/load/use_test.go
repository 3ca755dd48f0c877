package load

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

// What is due, and what comes of it, decides on the second half of the verdict; that a limit
// was exceeded comes first.
func TestWhatWasDue(t *testing.T) {
	issue := func(each int64) func(*Run) {
		return func(r *Run) {
			for i := range r.Counts {
				r.Counts[i].Issued = each
			}
		}
	}
	both := []quota.Limit{{Permits: 100, Window: time.Second}, {Permits: 150, Window: 4 * time.Second}}
	for _, c := range []struct {
		name              string
		do                func(*Run)
		least             float64
		due, came, excuse int64
		worst             int64 // second; 0: none
		want              Verdict
	}{
		{"all of it", issue(100), 1, 400, 400, 0, 11, Held},
		{"nothing", issue(0), 0, 400, 0, 0, 11, Unused},
		{"nothing, and the clock was set", func(r *Run) { issue(0)(r); r.Own = Own{Cell: time.Second, Unjudged: "set"} }, 0, 400, 0, 0, 11, Unused},
		{"shares of a tenth, and nobody asks for more", issue(10), 0, 400, 40, 0, 11, Held},
		{"shares of a tenth", issue(10), 0.5, 400, 40, 0, 11, Underused},
		{"just enough", issue(90), 0.9, 400, 360, 0, 11, Held},
		{"not quite", func(r *Run) { issue(90)(r); r.Counts[3].Issued = 89 }, 0.9, 400, 359, 0, 13, Underused},
		{"too much in one window pays for nothing", func(r *Run) { issue(50)(r); r.Counts[2].Issued = 101 }, 0.5, 400, 250, 0, 11, NotHeld},
		{"few calls", func(r *Run) { r.Counts[2] = Count{Index: 12, Offered: 40, Issued: 40} }, 1, 340, 340, 0, 11, Held},
		{"a call that waited into a window is no permit out of nothing", func(r *Run) { r.Counts[2].Offered, r.Counts[3].Issued = 60, 90 }, 0.9, 400, 390, 0, 13, Held},
		{"an instance is killed", func(r *Run) {
			issue(75)(r)
			r.Counts[1].Issued = 100
			r.Serving.Record(12*second+1, 3, time.Second)
		}, 1, 325, 325, 75, 11, Held},
		{"an instance falls silent by itself", func(r *Run) {
			issue(75)(r)
			r.Counts[1].Issued = 100
			r.Presence.Record(12*second+1, 3, time.Second)
		}, 0.9, 400, 325, 0, 12, Underused},
		{"nobody serves", func(r *Run) { issue(0)(r); r.Serving = Presence{} }, 0, 0, 0, 400, 0, Unknown},
		{"nobody calls", func(r *Run) { r.Counts = nil }, 0, 0, 0, 0, 0, Unknown},
		{"a raise does not count before it has settled", func(r *Run) {
			r.Timeline.Changes = append(r.Timeline.Changes, Change{Sent: 11 * second, Acked: 11*second + 1, Limits: perSecond(140)})
		}, 1, 400, 400, 0, 11, Held},
		{"a cut counts as soon as it is sent", func(r *Run) {
			issue(50)(r)
			r.Timeline.Changes = append(r.Timeline.Changes, Change{Sent: 11 * second, Acked: 11*second + 1, Limits: perSecond(50)})
		}, 1, 200, 200, 0, 11, Held},
		{"one instance makes most calls", func(r *Run) {
			issue(50)(r)
			r.Parts = []Part{{0.8, 0.25}, {0.1, 0.25}, {0.1, 0.25}, {0, 0.25}}
		}, 0.9, 4 * (25 + 15 + 15), 200, 0, 11, Held},
		{"and others have what it does not take", issue(50), 0.9, 400, 200, 0, 11, Underused},
		{"a longer limit is used up", func(r *Run) {
			r.Timeline.Changes[0].Limits = both
			r.Counts[0].Issued, r.Counts[3].Issued, r.Counts[4].Issued = 50, 50, 0
		}, 1, 250, 250, 0, 11, Held},
		{"a longer limit is not used", func(r *Run) {
			r.Timeline.Changes[0].Limits = both
			issue(0)(r)
			r.Counts[1].Issued = 20
		}, 0, 250, 20, 0, 12, Held},
	} {
		r := steadyRun()
		r.Counts = append([]Count{}, r.Counts...)
		c.do(&r)
		r.LeastUse = c.least
		_, s, verdict := judge(r)
		want := Use{Due: c.due, Came: c.came, Excused: c.excuse, Ratio: ratio(c.came, c.due), Worst: s.Used.Worst}
		if d := cmp.Diff(want, s.Used); d != "" || verdict != c.want {
			t.Errorf("%s: %q\n%s", c.name, verdict, d)
		}
		if w := s.Used.Worst; (w == nil) != (c.worst == 0) || w != nil && w.Start.Unix() != c.worst {
			t.Errorf("%s: the worst is %+v", c.name, w)
		}
	}
}

// One limiter for all calls has no shares, and no instance that is away.
func TestWhatOneLimiterWouldHaveIssued(t *testing.T) {
	r := steadyRun()
	r.Counts = append([]Count{}, r.Counts...)
	for i := range r.Counts {
		r.Counts[i].Issued = 50
	}
	r.Counts[2] = Count{Index: 12, Offered: 40, Issued: 30}
	r.Parts = []Part{{0.8, 0.25}, {0.1, 0.25}, {0.1, 0.25}, {0, 0.25}}
	r.Serving.Record(13*second+1, 3, time.Second)
	_, s, _ := judge(r)
	if one := s.OneLimiter; one.Due != 340 || one.Came != 180 || one.Excused != 0 || one.Ratio != 180./340 || one.Worst.Start.Unix() != 11 {
		t.Errorf("%+v (worst %+v), want 180 of the 340 that were called for and allowed", one, one.Worst)
	}
	if s.Used.Due >= s.OneLimiter.Due {
		t.Errorf("%d were due to instances with shares", s.Used.Due)
	}
}
