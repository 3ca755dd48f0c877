// Package top shows live which provider, or instance, uses how much: on a terminal,
// or as a table, JSON or YAML at each interval.
package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator"
)

// Snapshot is what is shown at one moment. A value is a text, an int64, a float64,
// or nil: not known.
type Snapshot struct {
	at      time.Time
	title   string
	what    string   // the rows are of: instances or providers
	Notes   []string // what is wrong
	columns []live.Header
	rows    [][]any
}

func (s *Snapshot) cell(row []any, column int) string {
	switch v := row[column].(type) {
	case string:
		return format.Name(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', 0, 64) + s.columns[column].Unit
	}
	return "-"
}

// compare orders two values of a column; what is not known comes first.
func compare(a, b any) int {
	number := func(v any) float64 {
		switch v := v.(type) {
		case int64:
			return float64(v)
		case float64:
			return v
		}
		return -1
	}
	x, _ := a.(string)
	y, _ := b.(string)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(number(a), number(b)))
}

// JSON is the snapshot for programs.
func (s *Snapshot) JSON() any {
	rows := []map[string]any{}
	for _, row := range s.rows {
		m := map[string]any{}
		for i, v := range row {
			m[s.columns[i].Name] = v
		}
		rows = append(rows, m)
	}
	return map[string]any{"time": s.at.UTC(), "title": s.title, "notes": append([]string{}, s.Notes...), s.what: rows}
}

// Table writes the snapshot for people.
func (s *Snapshot) Table(w io.Writer) {
	fmt.Fprintln(w, format.When(s.at)+" "+format.Clean(s.title))
	fmt.Fprintln(w, strings.Join(s.lines(s.rows, -1, false), "\n"))
}

// lines sets header and rows in columns, numbers on the right; a mark shows by which
// column rows are sorted.
func (s *Snapshot) lines(rows [][]any, sorted int, down bool) []string {
	lines := make([]string, len(rows)+1)
	for i, c := range s.columns {
		cells, fill := []string{c.Title}, runewidth.FillRight
		if i == sorted {
			cells[0] += map[bool]string{false: "^", true: "v"}[down]
		}
		width := runewidth.StringWidth(cells[0])
		for _, row := range rows {
			text := s.cell(row, i)
			cells = append(cells, text)
			width = max(width, runewidth.StringWidth(text))
			switch row[i].(type) {
			case int64, float64:
				fill = runewidth.FillLeft
			}
		}
		for n, text := range cells {
			lines[n] += fill(text, width) + "  "
		}
	}
	for n := range lines {
		lines[n] = strings.TrimRight(lines[n], " ")
	}
	return lines
}

// ObservedAtMost is how many providers are asked to report every second.
const ObservedAtMost = 16

// readEvery is how often Each reads: reports come once a second, and rates are of whole
// windows only if none is missed.
const readEvery = time.Second

// Each calls f with what there is at each interval, of one provider or of all if
// none is named, until it returns false or ctx ends.
func Each(ctx context.Context, admin *coordinator.Admin, provider string, interval time.Duration, f func(*Snapshot, error) bool) {
	w := live.NewWatcher(admin, ObservedAtMost)
	defer w.Close()
	for due := time.Now(); ; {
		t, err := read(ctx, w, provider)
		now := time.Now()
		if ctx.Err() != nil || (err != nil || !now.Before(due)) && !f(t, err) {
			return
		}
		if !now.Before(due) {
			due = now.Add(interval)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(readEvery, max(0, time.Until(due)))):
		}
	}
}

func read(ctx context.Context, w *live.Watcher, provider string) (t *Snapshot, err error) {
	if provider != "" {
		t, err = readOne(ctx, w, provider)
	} else {
		t, err = readAll(ctx, w)
	}
	if err == nil && w.Blind != "" {
		t.Notes = append(t.Notes, w.Blind)
	}
	return t, err
}

func readOne(ctx context.Context, w *live.Watcher, provider string) (*Snapshot, error) {
	p, err := w.Look(ctx, provider)
	if err != nil {
		return nil, err
	}
	f := p.Fleet
	if f.Policy.Revision == 0 && len(f.Instances) == 0 {
		return nil, fmt.Errorf("%s: %w", provider, coordinator.ErrNotFound)
	}
	t := &Snapshot{at: p.At, title: provider + ": " + p.Status.Line(), what: "instances"}
	if p.Status.Problem != "" {
		t.Notes = append(t.Notes, "the policy cannot be applied: "+p.Status.Problem)
	}
	t.Notes = append(t.Notes, p.Status.Troubles...)
	t.columns = slices.DeleteFunc(slices.Clone(live.Instances), func(c live.Header) bool { return c.Title == "" })
	for n := range f.Instances {
		var row []any
		for i, v := range p.Line(&f.Instances[n], p.At) {
			if live.Instances[i].Title != "" {
				row = append(row, v)
			}
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

var providerColumns = []live.Header{
	{Title: "PROVIDER", Name: "provider"}, {Title: "LIMITS", Name: "limits"}, {Title: "MODE", Name: "mode"},
	{Title: "INSTANCES", Name: "instances"}, {Title: "APPLIED", Name: "applied"},
	{Title: "ISSUED/S", Name: "issued_per_second"}, {Title: "REFUSED/S", Name: "refused_per_second"}, {Title: "SHADOWED/S", Name: "shadowed_per_second"},
	{Title: "WAITING", Name: "waiting"}, {Title: "TROUBLES", Name: "troubles"},
}

func readAll(ctx context.Context, w *live.Watcher) (*Snapshot, error) {
	if err := w.Read(ctx, nil, math.MaxInt); err != nil {
		return nil, err
	}
	t := &Snapshot{at: time.Now(), what: "providers", columns: providerColumns}
	all := w.Rows(t.at)
	t.title = format.Count(len(all), "provider")
	for _, r := range all {
		if r.Problem != "" {
			t.Notes = append(t.Notes, r.Provider+": "+r.Problem)
			continue
		}
		row := []any{r.Provider, r.Limits, r.Mode, int64(r.Instances), int64(r.Applied), nil, nil, nil, r.Waiting, int64(r.Troubles)}
		if r.Issued != nil {
			row[5], row[6], row[7] = *r.Issued, *r.Refused, r.Shadowed
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

// model is what top shows and how the keys change it. It is pure: keys and
// snapshots go in, lines come out.
type model struct {
	data   Snapshot // zero before the first
	err    error    // of the last attempt to read
	column int      // sorted by
	down   bool
	filter string
	typing bool // the filter is being typed
	offset int  // rows scrolled away
	quit   bool
}

// Keys that are more than one byte.
const (
	keyUp        = "\x1b[A"
	keyDown      = "\x1b[B"
	keyRight     = "\x1b[C"
	keyLeft      = "\x1b[D"
	keyPageUp    = "\x1b[5~"
	keyPageDown  = "\x1b[6~"
	keyEscape    = "\x1b"
	keyInterrupt = "\x03"
)

// splitKeys parts what the terminal sent into keys.
func splitKeys(sent string) (all []string) {
	for sent != "" {
		_, n := utf8.DecodeRuneInString(sent)
		if strings.HasPrefix(sent, "\x1b[") || strings.HasPrefix(sent, "\x1bO") {
			// Until the final byte of the sequence.
			for n = 2; n < len(sent) && (sent[n] < '@' || sent[n] > '~'); n++ {
			}
			n = min(n+1, len(sent))
		}
		key := sent[:n]
		if strings.HasPrefix(key, "\x1bO") {
			key = "\x1b[" + key[2:] // the keypad's way
		}
		all = append(all, key)
		sent = sent[n:]
	}
	return all
}

const maxFilter = 64

// key does what a key asks for. page is how many rows fit.
func (m *model) key(k string, page int) {
	if k == keyInterrupt {
		m.quit = true
		return
	}
	if m.typing {
		m.typed(k)
		return
	}
	columns := max(1, len(m.data.columns))
	switch k {
	case "q":
		m.quit = true
	case "/":
		m.typing, m.filter, m.offset = true, "", 0
	case keyEscape:
		m.filter, m.offset = "", 0
	case keyRight, ">":
		m.column = (m.column + 1) % columns
	case keyLeft, "<":
		m.column = (m.column + columns - 1) % columns
	case "r":
		m.down = !m.down
	case keyUp, "k":
		m.offset--
	case keyDown, "j":
		m.offset++
	case keyPageUp:
		m.offset -= page
	case keyPageDown, " ":
		m.offset += page
	}
}

func (m *model) typed(k string) {
	switch {
	case k == "\r" || k == "\n":
		m.typing = false
	case k == keyEscape:
		m.typing, m.filter = false, ""
	case k == "\x7f" || k == "\b":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	case format.Printable(k) && len(m.filter)+len(k) <= maxFilter:
		m.filter += k
	}
}

func (m *model) take(s *Snapshot, err error) {
	if m.err = err; err == nil {
		m.data = *s
	}
}

// rows are the rows to show: those that the filter lets through, sorted.
func (m *model) rows() [][]any {
	wanted := strings.ToLower(m.filter)
	var rows [][]any
	for _, row := range m.data.rows {
		for i := range row {
			if strings.Contains(strings.ToLower(m.data.cell(row, i)), wanted) {
				rows = append(rows, row)
				break
			}
		}
	}
	by := min(m.column, len(m.data.columns)-1)
	slices.SortStableFunc(rows, func(x, y []any) int {
		if m.down {
			x, y = y, x
		}
		return compare(x[by], y[by])
	})
	return rows
}

// fixedLines are those around the rows: title, empty line, header, and the keys.
const fixedLines = 4

const notesShown = 3

func (m *model) notes() []string {
	return m.data.Notes[:min(len(m.data.Notes), notesShown)]
}

func (m *model) page(height int) int {
	return max(1, height-fixedLines-len(m.notes()))
}

// view draws the screen: at most height lines of at most width characters.
func (m *model) view(width, height int) (lines []string) {
	rows, page := m.rows(), m.page(height)
	m.offset = max(0, min(m.offset, len(rows)-page))
	lines = []string{"reading ..."}
	if !m.data.at.IsZero() {
		lines[0] = m.data.at.Format("15:04:05 ") + format.Clean(m.data.title)
	}
	for _, n := range m.notes() {
		lines = append(lines, "! "+format.Clean(n))
	}
	lines = append(lines, "")
	lines = append(lines, m.data.lines(rows[m.offset:min(len(rows), m.offset+page)], min(m.column, len(m.data.columns)-1), m.down)...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), height-1))], m.footer())
	for i, l := range lines {
		lines[i] = format.Cut(l, width)
	}
	return lines
}

func (m *model) footer() string {
	switch {
	case m.typing:
		return "filter: " + format.Clean(m.filter) + "_"
	case m.err != nil:
		return "cannot read: " + format.Clean(format.OneLine(m.err))
	}
	keys := "q quit  < > sort by  r reverse  / filter  arrows scroll"
	if m.filter != "" {
		keys = fmt.Sprintf("filter %q (esc ends)  ", m.filter) + keys
	}
	return keys
}

// What a terminal is told: another screen without a cursor, and back.
const (
	screenOn   = "\x1b[?1049h\x1b[?25l\x1b[2J"
	screenOff  = "\x1b[?25h\x1b[?1049l"
	screenHome = "\x1b[H"
	lineEnd    = "\x1b[K"
	screenRest = "\x1b[J"
)

// lookEvery is how often the size of the terminal is looked at.
const lookEvery = 200 * time.Millisecond

// Run shows the table until the user quits or ctx ends, and leaves the
// terminal as it was. each calls its argument with what there is until ctx ends.
func Run(ctx context.Context, keyboard, screen *os.File, each func(context.Context, func(*Snapshot, error) bool)) error {
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return err
	}
	defer term.Restore(int(keyboard.Fd()), before) //nolint:errcheck // nothing can be done
	fmt.Fprint(screen, screenOn)
	defer fmt.Fprint(screen, screenOff)
	var m model
	keys, readings := make(chan string), make(chan func())
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer func() { cancel(); reader.Wait() }()
	go readKeys(ctx, keyboard, keys)
	reader.Go(func() {
		each(ctx, func(s *Snapshot, err error) bool {
			select {
			case readings <- func() { m.take(s, err) }:
			case <-ctx.Done():
			}
			return true
		})
	})
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for width, height := 0, 0; !m.quit; {
		dirty := true
		select {
		case <-ctx.Done():
			return nil
		case sent, ok := <-keys:
			if !ok {
				return nil // the terminal is gone
			}
			for _, k := range splitKeys(sent) {
				m.key(k, m.page(height))
			}
		case take := <-readings:
			take()
		case <-tick.C:
			w, h, err := term.GetSize(int(screen.Fd()))
			dirty = err == nil && (w != width || h != height)
			if dirty {
				width, height = w, h
			}
		}
		if dirty && height > 0 {
			draw(screen, m.view(width, height))
		}
	}
	return nil
}

// draw writes the lines over those that are there, without a flicker.
func draw(w io.Writer, lines []string) {
	fmt.Fprint(w, screenHome+strings.Join(lines, lineEnd+"\r\n")+lineEnd+screenRest)
}

// readKeys passes on what the keyboard sends. The read itself cannot be ended: it
// goes with the process.
func readKeys(ctx context.Context, keyboard io.Reader, keys chan<- string) {
	defer close(keys)
	buffer := make([]byte, 256)
	for {
		n, err := keyboard.Read(buffer)
		if err != nil {
			return
		}
		select {
		case keys <- string(buffer[:n]):
		case <-ctx.Done():
			return
		}
	}
}
