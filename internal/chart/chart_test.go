package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/golden"
)

func sample() *Chart {
	stack := Stack([]Series{
		{Name: "one", Color: Ramp(0, 2), Step: true, Fill: true, Points: []Point{{X: 0, Y: 100}, {X: 4, Y: 50}, {X: 10, Y: 50}}},
		{Name: "two", Color: Ramp(1, 2), Step: true, Fill: true, Points: []Point{{X: 0, Y: 0}, {X: 4, Y: 50}, {X: 10, Y: 50}}},
	})
	return &Chart{
		Title: "Issued <& limit>", Says: `a "sample"`,
		X:      Axis{Label: "seconds", Min: -1, Max: 10},
		Y:      Axis{Label: "permits", Max: Above(130)},
		Series: append(stack, Series{Name: "limit", Color: Ink, Points: []Point{{X: 0, Y: 100}, {X: 10, Y: 120}}}),
		Events: []Event{{3.8, "one crashes"}, {4, "another joins"}, {9.9, "the end of it all"}},
		Hints:  []Hint{{0, 4, "<4 s"}},
	}
}

func TestGolden(t *testing.T) {
	for name, width := range map[string]int{"wide": 700, "narrow": 340} {
		golden.Check(t, name+".svg", sample().Alone(width, 280))
	}
}

var coordinate = regexp.MustCompile(`-?[0-9.]+(?:e[-+][0-9]+)?`)

// Whatever the numbers and the texts, a drawing is well-formed, has no tag of its
// texts' making, and keeps its lines within its bounds.
func TestEveryDrawingIsWellFormed(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-10, 2000), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0}))
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`<script>alert(1)</script>`, `"><img src=x>`, "]]>", "&amp;", "\x00\xff"}))
	rapid.Check(t, func(t *rapid.T) {
		point := rapid.Custom(func(t *rapid.T) Point {
			return Point{X: number.Draw(t, "x"), Y: number.Draw(t, "y"), Base: number.Draw(t, "base")}
		})
		c := &Chart{
			Title: text.Draw(t, "title"), Says: text.Draw(t, "says"),
			X:      Axis{Label: text.Draw(t, "label"), Max: rapid.Float64Range(1e-9, 1e12).Draw(t, "max")},
			Y:      Axis{Min: 1e-3, Max: rapid.Float64Range(1, 1e12).Draw(t, "high"), Log: rapid.Bool().Draw(t, "log")},
			Series: []Series{{Name: text.Draw(t, "name"), Step: rapid.Bool().Draw(t, "step"), Fill: rapid.Bool().Draw(t, "fill"), Points: rapid.SliceOf(point).Draw(t, "points")}},
			Events: []Event{{number.Draw(t, "event"), text.Draw(t, "event text")}},
			Hints:  []Hint{{0, 1, text.Draw(t, "hint")}},
		}
		const width, height = 600, 300
		drawn := c.Alone(width, height)
		if drawn != c.Alone(width, height) {
			t.Fatal("drawn twice, it differs")
		}
		d := xml.NewDecoder(strings.NewReader(drawn))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatalf("%v in %s", err, drawn)
			}
			tag, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			switch tag.Name.Local {
			case "svg", "style", "text", "path", "rect", "title":
			default:
				t.Fatalf("there is a <%s> in %s", tag.Name.Local, drawn)
			}
			for _, a := range tag.Attr {
				if tag.Name.Local == "path" && a.Name.Local == "d" {
					within(t, a.Value, width)
				}
			}
		}
	})
}

func within(t *rapid.T, path string, most float64) {
	for _, s := range coordinate.FindAllString(path, -1) {
		if v, err := strconv.ParseFloat(s, 64); err != nil || v < -20 || v > most {
			t.Fatalf("%q, %v in %s", s, err, path)
		}
	}
}

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		axis Axis
		want string
	}{
		{Axis{Max: 100}, "0 20 40 60 80 100"},
		{Axis{Min: -3, Max: 22}, "0 5 10 15 20"},
		{Axis{Max: 450_000}, "0 100k 200k 300k 400k"},
		{Axis{Max: 0.3}, "0 0.1 0.2 0.3"},
		{Axis{Min: 0.01, Max: 100, Log: true}, "0.01 0.1 1 10 100"},
	} {
		var got []string
		for _, tick := range c.axis.ticks(5) {
			got = append(got, tick.Text)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: %s, want %s", c.axis, s, c.want)
		}
	}
}

func TestAbove(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, -5: 1, math.Inf(1): 1, 100: 100, 101: 120, 306_000: 350_000} {
		if got := Above(v); got != want {
			t.Errorf("above %v: %v, want %v", v, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 950: "950", 1500: "1.5k", 300_000: "300k", 1.5e6: "1.5M", 2e12: "2T", 0.001: "0.001", -2000: "-2k"} {
		if got := Short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

// Text that lies over the line of another event would be struck through by it.
func TestEventsDoNotMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Chart{X: Axis{Max: 100}, Y: Axis{Max: 1}}
		at := 0.0
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			at += rapid.Float64Range(0, 20).Draw(t, "later")
			c.Events = append(c.Events, Event{min(at, 60), "something happened"})
		}
		d := &drawing{Chart: c, width: 800, height: 300}
		d.lay()
		for i := range c.Events {
			from, width := d.eventText(c.Events[i])
			for j := i + 1; j < len(c.Events); j++ {
				other, _ := d.eventText(c.Events[j])
				if d.rows[i] == d.rows[j] && other < from+width {
					t.Fatalf("texts %d and %d meet in row %d", i, j, d.rows[i])
				}
				if line := d.x(c.Events[j].X); line < from+width && d.rows[i] <= d.rows[j] {
					t.Fatalf("the line of %d goes through the text of %d", j, i)
				}
			}
		}
	})
}
