package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/rivo/tview"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
)

func sampleSnapshot() *Snapshot {
	s := &Snapshot{at: time.Unix(1000, 0).UTC(), title: "p: total 10/s", Notes: []string{"evil\x1b[2J"}, columns: []live.Header{{Title: "NAME"}, {Title: "SHARE"}, {Title: "USED/S"}}}
	for i, used := range []float64{30, 4, 100} {
		s.rows = append(s.rows, []any{fmt.Sprintf("worker-%d", i), int64(3 - i), used})
	}
	return s
}

// press sends keys to what has the focus, as the application does.
func (s *screen) press(keys ...any) {
	focus := func(p tview.Primitive) { s.app.SetFocus(p) }
	for _, k := range keys {
		switch k := k.(type) {
		case tcell.Key:
			s.layout.InputHandler()(tcell.NewEventKey(k, 0, 0), focus)
		case string:
			for _, r := range k {
				s.layout.InputHandler()(tcell.NewEventKey(tcell.KeyRune, r, 0), focus)
			}
		}
	}
}

// draw returns the lines of a terminal that shows the screen.
func (s *screen) draw(t interface{ Fatal(...any) }, width, height int) (lines []string) {
	terminal := tcell.NewSimulationScreen("UTF-8")
	if err := terminal.Init(); err != nil {
		t.Fatal(err)
	}
	defer terminal.Fini()
	terminal.SetSize(width, height)
	s.layout.SetRect(0, 0, width, height)
	s.layout.Draw(terminal)
	terminal.Show()
	cells, _, _ := terminal.GetContents()
	for y := range height {
		line := ""
		for _, c := range cells[y*width : (y+1)*width] {
			line += string(c.Runes)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

func TestTopSortsAndFilters(t *testing.T) {
	s := newScreen()
	s.take(sampleSnapshot(), nil)
	for _, step := range []struct {
		keys []any
		want string
	}{
		{nil, "worker-0 worker-1 worker-2"},
		{[]any{"r"}, "worker-2 worker-1 worker-0"},
		{[]any{">"}, "worker-0 worker-1 worker-2"}, // by share, reversed
		{[]any{"r"}, "worker-2 worker-1 worker-0"},
		{[]any{tcell.KeyRight}, "worker-1 worker-0 worker-2"}, // by use: 4, 30, 100
		{[]any{tcell.KeyRight}, "worker-0 worker-1 worker-2"}, // around
		{[]any{tcell.KeyLeft}, "worker-1 worker-0 worker-2"},
		{[]any{"/R-1", tcell.KeyEnter}, "worker-1"},
		{[]any{tcell.KeyEscape}, "worker-1 worker-0 worker-2"},
		{[]any{"/xq", tcell.KeyBackspace2, tcell.KeyBackspace2, "r-2"}, "worker-2"}, // q is typed, not obeyed
		{[]any{tcell.KeyEscape}, "worker-1 worker-0 worker-2"},
	} {
		s.press(step.keys...)
		var names []string
		for i := 1; i < s.table.GetRowCount(); i++ {
			names = append(names, strings.TrimSpace(s.table.GetCell(i, 0).Text))
		}
		if got := strings.Join(names, " "); got != step.want {
			t.Fatalf("after %q: %s; want %s", step.keys, got, step.want)
		}
	}
}

func TestTopSortsAsPeopleCount(t *testing.T) {
	s, data := newScreen(), sampleSnapshot()
	data.rows[0][0] = "worker-10"
	s.take(data, nil)
	if got := s.draw(t, 80, 9); !strings.HasPrefix(got[6], "worker-10") {
		t.Errorf("%q", got)
	}
}

func TestTopDraws(t *testing.T) {
	s := newScreen()
	if got := s.draw(t, 80, 9); got[0] != "reading ..." {
		t.Errorf("before the first snapshot: %q", got)
	}
	s.take(sampleSnapshot(), nil)
	s.press(">", ">", "r")
	want := []string{
		`00:16:40 p: total 10/s`,
		`! evil\x1b[2J`,
		``,
		`NAME      SHARE  USED/Sv`,
		`worker-2      1      100`,
		`worker-0      3       30`,
		`worker-1      2        4`,
		``,
		`q quit  < > sort by  r reverse  arrows scroll  / filter`,
	}
	if diff := cmp.Diff(want, s.draw(t, 80, 9)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// Smaller: a page, which can be scrolled no further than there are rows.
	s.press("jjj", tcell.KeyDown, " ", tcell.KeyPgDn)
	if got := s.draw(t, 12, 6); got[3] != "NAME      S…" || got[4] != "worker-1  2" {
		t.Errorf("scrolled down: %q", got)
	}
	s.take(nil, errors.New("etcd is away\nreally"))
	if got := s.draw(t, 80, 9); got[8] != "cannot read: etcd is away; really" || !strings.Contains(got[4], "worker-2") {
		t.Errorf("with an error: %q", got)
	}
}

// TestTopDrawsWhateverComes: any size, keys and texts give a screen that prints.
func TestTopDrawsWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, data := newScreen(), sampleSnapshot()
		data.title = rapid.String().Draw(t, "title")
		data.rows = append(data.rows, []any{rapid.String().Draw(t, "name"), rapid.Int64().Draw(t, "share"), nil})
		if rapid.Bool().Draw(t, "read") {
			s.take(data, nil)
		}
		width, height := rapid.IntRange(1, 100).Draw(t, "width"), rapid.IntRange(1, 40).Draw(t, "height")
		for _, k := range rapid.SliceOfN(rapid.SampledFrom([]any{"r", "<", ">", "/", "x", " ", "[red]", "\x1b", "é", tcell.KeyEnter, tcell.KeyEscape,
			tcell.KeyBackspace2, tcell.KeyUp, tcell.KeyDown, tcell.KeyPgUp, tcell.KeyPgDn, tcell.KeyEnd}), 0, 20).Draw(t, "keys") {
			s.press(k)
			for _, l := range s.draw(t, width, height) {
				if !format.Printable(l) {
					t.Fatalf("line %q", l)
				}
			}
		}
	})
}

// TestTextIsNotMarkup: what a name says in brackets is no colour and no region.
func TestTextIsNotMarkup(t *testing.T) {
	s, data := newScreen(), sampleSnapshot()
	data.title, data.rows[0][0] = "[red]", `[red]["a"]x`
	s.take(data, nil)
	s.press("/[blue]", tcell.KeyEnter)
	if got := s.draw(t, 90, 9); !strings.Contains(got[0], "[red]") || !strings.HasSuffix(got[8], "[blue]") {
		t.Errorf("%q", got)
	}
	s.press(tcell.KeyEscape)
	s.take(nil, errors.New("[green]"))
	if got := s.draw(t, 90, 9); !strings.HasPrefix(got[4], `[red]["a"]x `) || !strings.Contains(got[8], "[green]") {
		t.Errorf("%q", got)
	}
}

// Refusals of critical calls are worth a line, those of others are not.
func TestCriticalRefusalsAreSaid(t *testing.T) {
	s := &Snapshot{}
	s.alarm([]live.ClassRate{{Class: live.Critical}, {Class: "default", Refused: 5}, {Class: "sheddable", Refused: 9}})
	if len(s.Notes) > 0 {
		t.Errorf("without any: %q", s.Notes)
	}
	s.alarm([]live.ClassRate{{Class: live.Critical, Refused: 12.5}, {Class: "default"}})
	if want := []string{"critical calls are refused, 12.5/s: see --by class"}; !slices.Equal(s.Notes, want) {
		t.Errorf("%q, want %q", s.Notes, want)
	}
}

// A key whose calls are all refused, seldom, does not look as one without refusals, and the row says how old it is.
func TestASmallRateIsNotZero(t *testing.T) {
	s := &Snapshot{at: time.Unix(1000, 0)}
	s.fill("key", []live.Rate{{Name: "seldom", Refused: 0.2, Instances: 2, Told: s.at.Add(-19 * time.Second)}, {Name: "busy", Issued: 14.4, Refused: 9.94, Instances: 1, Told: s.at.Add(time.Second)}})
	for i, want := range [][]string{{"seldom", "0", "0.2", "2", "19s"}, {"busy", "14", "9.9", "1", "0s"}} {
		if got := s.cells(s.rows[i]); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
