package trace

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// place is where a view stands in the order of commits: its revision on its line. A
// restored store begins another line.
type place struct {
	line     int
	revision int64
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.revision, q.revision))
}

// timeline is the views of one provider, as its limiters have seen them.
type timeline struct {
	Views
	places   []place
	restored []int64             // when each line but the first begins
	missed   map[*stream][]int64 // revisions that a limiter has left out
	selves   map[string]bool     // incarnations that have written
}

// found is a view as limiters came to it.
type found struct {
	view *protocol.View
	sum  uint64 // of the change
	from int64  // the newest revision to which it was a change
}

// timelineOf puts together what the streams of a provider have seen.
func (r *Run) timelineOf(streams []*stream) (*timeline, error) {
	t := &timeline{missed: map[*stream][]int64{}, selves: map[string]bool{}, restored: restores(streams)}
	applied, listed := map[place]*found{}, map[place]*protocol.View{}
	whole := map[uint64]*protocol.View{} // listings, by sum
	for _, s := range streams {
		var now *protocol.View
		for i, p := range t.walk(s) {
			x := &s.sights[i]
			t.selves[x.self] = true
			content := r.contents[x.sum]
			if x.before == 0 {
				if now = whole[x.sum]; now == nil {
					now = content.after(&protocol.View{})
					whole[x.sum] = now
				}
				listed[p] = now
				continue
			}
			f := applied[p]
			if f == nil {
				f = &found{content.after(now), x.sum, x.before}
				applied[p] = f
			}
			if f.sum != x.sum {
				return nil, fmt.Errorf("%s and another instance applied different changes of revision %d", x.self, x.revision)
			}
			f.from, now = max(f.from, x.before), f.view
		}
	}
	if err := t.merge(applied, listed); err != nil {
		return nil, err
	}
	t.date(streams)
	return t, nil
}

// restores returns when each line but the first begins: limiters went back to it, or have a
// new incarnation, whose key is later than all others on a line, at no later view. It begins
// after the last sign of the line before that one of these limiters had, which is a view, or
// the sending of a read that proved one.
func restores(streams []*stream) (at []int64) {
	var back []int64 // when the first limiter went back
	for _, s := range streams {
		n, highest, proofs := 0, int64(0), s.proofs
		for i, x := range s.sights {
			sign := int64(math.MinInt64)
			if i > 0 {
				sign = s.sights[i-1].at
			}
			for len(proofs) > 0 && proofs[0].sight < i {
				sign, proofs = max(sign, proofs[0].sent), proofs[1:]
			}
			anew := i > 0 && x.self != s.sights[i-1].self
			if highest > x.revision || anew && highest == x.revision {
				if n == len(at) {
					at, back = append(at, sign), append(back, x.at)
				}
				at[n], back[n] = max(at[n], sign), min(back[n], x.at)
				highest, n = 0, n+1
			}
			highest = max(highest, x.revision)
		}
	}
	for n := range at {
		at[n] = min(at[n], back[n])
	}
	return at
}

// walk returns the places of what a stream has seen. An instance that lists again after a
// restore is on the new line, whatever its revision. So is one that opens after that.
func (t *timeline) walk(s *stream) (places []place) {
	line := 0
	for i, x := range s.sights {
		for x.before == 0 && line < len(t.restored) && x.at > t.restored[line] {
			if line++; i > 0 {
				break
			}
		}
		places = append(places, place{line, x.revision})
	}
	return places
}

// merge orders the views. A listing at a revision that is no view's own, because an
// instance wrote something else there, is that of the view before it.
func (t *timeline) merge(applied map[place]*found, listed map[place]*protocol.View) error {
	for p := range applied {
		t.places = append(t.places, p)
	}
	for p := range listed {
		if applied[p] == nil {
			t.places = append(t.places, p)
		}
	}
	slices.SortFunc(t.places, place.compare)
	all := t.places
	t.places = nil
	for _, p := range all {
		n, f, view := len(t.places), applied[p], listed[p]
		first := n == 0 || t.places[n-1].line != p.line
		switch {
		case f != nil && view != nil && !same(view, f.view):
			return fmt.Errorf("the traces: a listing of revision %d differs from what the changes come to", p.revision)
		case f != nil:
			view = f.view
		case !first && same(view, &t.Views[n-1].View):
			continue
		}
		gap := n > 0 && (first || f == nil || f.from < t.places[n-1].revision)
		t.places, t.Views = append(t.places, p), append(t.Views, View{View: *view, Gap: gap})
	}
	return nil
}

// same reports whether two views say the same, at whatever revisions.
func same(a, b *protocol.View) bool {
	x, y := *a, *b
	x.Revision, y.Revision = 0, 0
	if len(x.Instances) == 0 && len(y.Instances) == 0 {
		x.Instances, y.Instances = nil, nil
	}
	return reflect.DeepEqual(x, y)
}

// index returns that of the newest view at a place; -1 before the first.
func (t *timeline) index(p place) int {
	i, exact := slices.BinarySearchFunc(t.places, p, place.compare)
	if exact {
		return i
	}
	return i - 1
}

// date finds out when the views were committed.
func (t *timeline) date(streams []*stream) {
	for i := range t.Views {
		t.Views[i].After, t.Views[i].By = math.MinInt64, math.MaxInt64
	}
	for _, s := range streams {
		places := t.walk(s)
		for i, x := range s.sights {
			n := t.index(places[i])
			if n < 0 {
				continue
			}
			t.Views[n].By = min(t.Views[n].By, x.at)
			if x.before > 0 {
				if b := t.index(place{places[i].line, x.before}); b >= 0 && n-b > 1 {
					t.missed[s] = append(t.missed[s], t.places[b+1].revision)
				}
			}
		}
		for _, p := range s.proofs {
			if n := t.index(places[p.sight]) + 1; n < len(t.Views) {
				t.Views[n].After = max(t.Views[n].After, p.sent)
			}
		}
	}
	for i := len(t.Views) - 2; i >= 0; i-- {
		t.Views[i].By = min(t.Views[i].By, t.Views[i+1].By)
	}
	for i := 1; i < len(t.Views); i++ {
		t.Views[i].After = max(t.Views[i].After, t.Views[i-1].After)
	}
}
