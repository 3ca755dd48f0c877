package differential

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/trace"
)

// judged asks for the bound by which the judge of traces decides on a window, where the
// instants of commits are known.
func judged(r *rand.Rand) question {
	s := newStory(r, "", false)
	for !s.limited() {
		s = newStory(r, "", false)
	}
	var views trace.Views
	for i := range s.views {
		v := &s.views[i]
		if i > 0 { // no two commits have one instant
			v.at = max(v.at, s.views[i-1].at+1)
		}
		views = append(views, trace.View{View: v.View, After: v.at, By: v.at})
	}
	from := s.instant()
	to := max(from, s.instant())
	last := max(to, s.instant())
	return question{s.judge(views, from, to, last), answer(views.Bound(s.w, from, to, last, math.MaxInt64, false))}
}

// judge is the question for a window's bound; the views have the story's times.
func (s *story) judge(views trace.Views, from, to, last int64) string {
	var l line
	l.WriteString("judge")
	s.ranks(&l)
	l.ints(from, to, last, int64(len(views)))
	for i := range views {
		l.ints(views[i].By)
		s.write(&l, &held{View: views[i].View})
	}
	return l.String()
}

func answer(b trace.Bound) string { return bound(b.Least) + " " + bound(b.Most) }

// instant is one about the views' times, often one of them.
func (s *story) instant() int64 {
	if s.one(2) {
		return s.views[s.IntN(len(s.views))].at + s.Int64N(3) - 1
	}
	return s.views[0].at + s.Int64N(int64(most+time.Second))
}

// limited reports whether each view has a limit of the window in force.
func (s *story) limited() bool {
	for i := range s.views {
		if p := s.views[i].Policy; p == nil || p.From.After(time.Unix(0, s.w.Start())) || p.Limits[0].Window != s.w.Length {
			return false
		}
	}
	return true
}
