package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// explain names the instance that issued the most beyond its share, and one that went by
// another view.
func (h *hearing) explain(b Bound) string {
	text := fmt.Sprintf("window of %v from %s: %d permits, at most %d", h.w.Length, time.Unix(0, h.w.Start()).UTC().Format("15:04:05.000"), h.low, b.Most)
	if b.By < 0 {
		return text + " by any view"
	}
	text += fmt.Sprintf(" by view %d", h.places[b.End].revision)
	shares, _ := sharesOf(&h.Views[b.End].View, h.w)
	var all []*stream
	for _, s := range h.streams {
		if u := s.uses[h.w]; u != nil && u.issued > 0 {
			all = append(all, s)
		}
	}
	beyond := func(s *stream) int64 { return s.uses[h.w].issued - shares[s.uses[h.w].self] }
	slices.SortFunc(all, func(a, b *stream) int { return cmp.Compare(beyond(b), beyond(a)) })
	one, view := h.wentBy(all[0], shares)
	text += "; " + one
	for _, s := range all[1:] {
		if other, by := h.wentBy(s, shares); by != view {
			return text + "; " + other
		}
	}
	return text
}

// wentBy says what one limiter issued beside its share, and by which view: the newest that
// gives it so much; 0: none does.
func (h *hearing) wentBy(s *stream, shares map[string]int64) (text string, view int64) {
	u := s.uses[h.w]
	for i := len(h.Views) - 1; i >= 0 && view == 0; i-- {
		if h.Views[i].Revision > u.revision {
			continue
		}
		if by, _ := sharesOf(&h.Views[i].View, h.w); by[u.self] >= u.issued {
			view = h.Views[i].Revision
		}
	}
	text = fmt.Sprintf("%s issued %d of %d", u.self, u.issued, shares[u.self])
	switch {
	case u.issued > u.bound:
		text += fmt.Sprintf(", and its own plan allowed %d", u.bound)
	case view == 0:
		text += ", which no view gives it"
	default:
		text += fmt.Sprintf(" and went by view %d", view)
	}
	if missed := h.missed[s]; len(missed) > 0 {
		text += fmt.Sprintf(" (it never applied view %d)", missed[0])
	}
	return text, view
}
