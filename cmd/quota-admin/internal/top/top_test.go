package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"
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

func names(m *model) string {
	var all []string
	for _, row := range m.rows() {
		all = append(all, row[0].(string))
	}
	return strings.Join(all, " ")
}

func TestTopSortsFiltersAndQuits(t *testing.T) {
	var m model
	m.take(sampleSnapshot(), nil)
	for _, step := range []struct{ keys, want string }{
		{"", "worker-0 worker-1 worker-2"},
		{"r", "worker-2 worker-1 worker-0"},
		{">", "worker-0 worker-1 worker-2"}, // by share, reversed
		{"r", "worker-2 worker-1 worker-0"},
		{keyRight, "worker-1 worker-0 worker-2"}, // by use: 4, 30, 100
		{keyRight, "worker-0 worker-1 worker-2"}, // around
		{keyLeft, "worker-1 worker-0 worker-2"},
		{"/R-1\r", "worker-1"},
		{keyEscape, "worker-1 worker-0 worker-2"},
		{"/xq" + "\x7f\x7f" + "r-2", "worker-2"}, // q is typed, not obeyed
		{"\x1b", "worker-1 worker-0 worker-2"},
	} {
		for _, k := range splitKeys(step.keys) {
			m.key(k, 10)
		}
		if got := names(&m); got != step.want || m.quit {
			t.Fatalf("after %q: %s, quit %v; want %s", step.keys, got, m.quit, step.want)
		}
	}
	m.key("q", 10)
	if !m.quit {
		t.Error("q does not quit")
	}
	m = model{typing: true}
	if m.key(keyInterrupt, 10); !m.quit {
		t.Error("Ctrl-C does not quit while typing")
	}
}

func TestTopDraws(t *testing.T) {
	var m model
	m.take(sampleSnapshot(), nil)
	m.column, m.down = 2, true
	want := []string{
		`00:16:40 p: total 10/s`,
		`! evil\x1b[2J`,
		``,
		`NAME      SHARE  USED/Sv`,
		`worker-2      1      100`,
		`worker-0      3       30`,
		`worker-1      2        4`,
		``,
		`q quit  < > sort by  r reverse  / filter  arrows scroll`,
	}
	if diff := cmp.Diff(want, m.view(80, 9)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// Smaller: a page, which can be scrolled no further than there are rows.
	for range 9 {
		m.key(keyDown, m.page(7))
	}
	if got := m.view(12, 7); len(got) != 7 || got[5] != "worker-1    "[:12] && !strings.HasPrefix(got[5], "worker-1") {
		t.Errorf("scrolled down: %q", got)
	}
	m.take(nil, errors.New("etcd is away\nreally"))
	if got := m.view(80, 9); !strings.Contains(got[8], "cannot read: etcd is away; really") || !strings.Contains(got[4], "worker-2") {
		t.Errorf("with an error: %q", got)
	}
}

// TestTopDrawsWhateverComes: any size, keys and texts give lines that fit and
// print.
func TestTopDrawsWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m model
		s := sampleSnapshot()
		s.title = rapid.String().Draw(t, "title")
		s.rows = append(s.rows, []any{rapid.String().Draw(t, "name"), rapid.Int64().Draw(t, "share"), nil})
		if rapid.Bool().Draw(t, "read") {
			m.take(s, nil)
		}
		width, height := rapid.IntRange(1, 100).Draw(t, "width"), rapid.IntRange(1, 40).Draw(t, "height")
		for _, k := range rapid.SliceOfN(rapid.SampledFrom([]string{"r", "<", ">", "/", "x", "\r", "\x1b", "\x7f", keyUp, keyDown, keyPageUp, keyPageDown, "\x1b[", "\x1bOA", "\xff", "é"}), 0, 20).Draw(t, "keys") {
			for _, k := range splitKeys(k) {
				m.key(k, m.page(height))
			}
			lines := m.view(width, height)
			if len(lines) > height {
				t.Fatalf("%d lines on a screen of %d", len(lines), height)
			}
			for _, l := range lines {
				if runewidth.StringWidth(l) > width || !format.Printable(l) {
					t.Fatalf("line %q on a screen of %d", l, width)
				}
			}
		}
	})
}
