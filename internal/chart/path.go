package chart

import (
	"slices"
	"strings"
)

func (s *Series) class() string {
	switch {
	case s.Fill:
		return "a " + s.Color.class()
	case s.Thin:
		return "l thin " + s.Color.class()
	}
	return "l " + s.Color.class()
}

func (d *drawing) series(s *Series) {
	if len(s.Points) == 0 {
		return
	}
	t := trace{step: s.Step}
	for _, p := range s.Points {
		t.to(num(d.x(p.X)), num(d.y(p.Y)))
	}
	if s.Fill {
		// Back along the base; a step's value there lasts until the next point too.
		back := trace{step: s.Step}
		for _, p := range s.Points {
			back.to(num(d.x(p.X)), num(d.y(p.Base)))
		}
		t.join(&back)
	}
	d.put(`<path class="%s" d="%s"/>`, s.class(), t.path())
}

// trace is a line through corners, those left out that lie on the way.
type trace struct {
	step    bool
	corners [][2]string
	closed  bool
}

func (t *trace) to(x, y string) {
	if n := len(t.corners); t.step && n > 0 && t.corners[n-1][1] != y {
		t.corner(x, t.corners[n-1][1])
	}
	t.corner(x, y)
}

func (t *trace) corner(x, y string) {
	n := len(t.corners)
	if n > 0 && t.corners[n-1] == [2]string{x, y} {
		return
	}
	if n > 1 && (t.corners[n-1][0] == x && t.corners[n-2][0] == x && t.step ||
		t.corners[n-1][1] == y && t.corners[n-2][1] == y) {
		t.corners[n-1] = [2]string{x, y}
		return
	}
	t.corners = append(t.corners, [2]string{x, y})
}

// join goes back along another trace, to where this one began.
func (t *trace) join(back *trace) {
	for _, c := range slices.Backward(back.corners) {
		t.corners = append(t.corners, c)
	}
	t.closed = true
}

func (t *trace) path() string {
	var b strings.Builder
	for i, c := range t.corners {
		switch {
		case i == 0:
			b.WriteString("M" + c[0] + "," + c[1])
		case c[1] == t.corners[i-1][1]:
			b.WriteString("H" + c[0])
		case c[0] == t.corners[i-1][0]:
			b.WriteString("V" + c[1])
		default:
			b.WriteString("L" + c[0] + "," + c[1])
		}
	}
	if t.closed {
		b.WriteString("Z")
	}
	return b.String()
}

// layEvents gives each event's text a row, counted from below, in which it meets
// neither another text nor the line of a later event.
func (d *drawing) layEvents() {
	var begins []float64 // by row: where its first text begins
	d.rows = make([]int, len(d.Events))
	for i := len(d.Events) - 1; i >= 0; i-- {
		from, width := d.eventText(d.Events[i])
		row := 0
		for j := i + 1; j < len(d.Events); j++ {
			if d.x(d.Events[j].X) < from+width+4 {
				row = max(row, d.rows[j]+1)
			}
		}
		for row < len(begins) && from+width+8 > begins[row] {
			row++
		}
		for len(begins) <= row {
			begins = append(begins, d.width)
		}
		begins[row] = from
		d.rows[i] = row
	}
}

// eventText returns where the text of an event begins, and how wide it is: right
// of its line, or as far right as there is room.
func (d *drawing) eventText(e Event) (from, width float64) {
	width = float64(len([]rune(e.Text))) * charWidth
	return max(edge/2, min(d.x(e.X)+4, d.width-width-2)), width
}

func (d *drawing) events() {
	for i, e := range d.Events {
		x := d.x(e.X)
		base := d.top - 8 - lineHeight*float64(d.rows[i])
		from, _ := d.eventText(e)
		d.put(`<path class="event" d="M%s,%sV%s"/>`, num(x), num(base-9), num(d.bottom))
		d.text(from, base, "name", "", e.Text)
	}
}

func (d *drawing) hints() {
	for _, h := range d.Hints {
		from, to := d.x(h.From), d.x(h.To)
		d.put(`<rect class="hint" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`,
			num(from), num(d.top), num(to-from), num(d.bottom-d.top), escape(h.Text))
	}
}
