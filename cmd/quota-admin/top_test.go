package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

func sampleSnapshot() *snapshot {
	s := &snapshot{at: time.Unix(1000, 0).UTC(), title: "p: total 10/s", notes: []string{"evil\x1b[2J"}, header: []string{"NAME", "SHARE", "USED/S"}}
	for i, used := range []float64{30, 4, 100} {
		s.rows = append(s.rows, []cell{text(fmt.Sprintf("worker-%d", i)), count(int64(3 - i)), rate(used, true)})
	}
	return s
}

func names(m *topModel) string {
	var all []string
	for _, row := range m.rows() {
		all = append(all, row[0].text)
	}
	return strings.Join(all, " ")
}

func TestTopSortsFiltersAndQuits(t *testing.T) {
	var m topModel
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
	m = topModel{typing: true}
	if m.key(keyInterrupt, 10); !m.quit {
		t.Error("Ctrl-C does not quit while typing")
	}
}

func TestTopDraws(t *testing.T) {
	var m topModel
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
		var m topModel
		s := sampleSnapshot()
		s.title = rapid.String().Draw(t, "title")
		s.rows = append(s.rows, []cell{text(rapid.String().Draw(t, "name")), count(rapid.Int64().Draw(t, "share")), rate(1, false)})
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
				if utf8.RuneCountInString(l) > width || !printable(l) {
					t.Fatalf("line %q on a screen of %d", l, width)
				}
			}
		}
	})
}

func TestMeterGivesRates(t *testing.T) {
	m := meter{}
	at := func(s float64, used, refused int64) *quota.Report {
		return &quota.Report{Time: time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))), Used: used, Refused: refused}
	}
	for _, step := range []struct {
		r    *quota.Report
		want rates
	}{
		{at(0, 100, 0), rates{}},
		{at(2, 300, 10), rates{100, 5, 0, true}},
		{at(2, 300, 10), rates{100, 5, 0, true}}, // the same report again
		{at(1, 999, 10), rates{100, 5, 0, true}}, // one from before
		{at(4, 200, 10), rates{0, 0, 0, true}},   // counted from the start again
	} {
		if got := m.see("a", step.r); got != step.want {
			t.Errorf("%+v: %+v, want %+v", step.r, got, step.want)
		}
	}
}

func TestTopInPlainLines(t *testing.T) {
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s", "--settle", "1s")
	b.want(exitDone, "set", "quiet", "5/s")
	for _, l := range b.join(server, "p", 2) {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stdout, _ := b.want(exitDone, "top", "p", "--count", "2", "--interval", "100ms")
	if strings.Count(stdout, "INCARNATION") != 2 || strings.Count(stdout, "worker-1") != 4 || strings.Contains(stdout, "\x1b") {
		t.Errorf("two plain tables: %s", stdout)
	}
	stdout, _ = b.want(exitDone, "top", "--count", "1", "-o", "json")
	var data struct{ Rows []map[string]string }
	if err := json.Unmarshal([]byte(stdout), &data); err != nil || len(data.Rows) != 2 || data.Rows[0]["provider"] != "p" || data.Rows[0]["instances"] != "2" || data.Rows[0]["limits"] != "100/s" {
		t.Errorf("%v: %s", err, stdout)
	}
	b.want(exitNotFound, "top", "absent")
	b.want(exitUsage, "top", "p", "--interval", "1ms")
}
