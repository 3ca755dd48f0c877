package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
)

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

// keys takes what the terminal sent apart into keys.
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

// take shows a new snapshot, or why there is none; the last one stays then.
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

// page is how many rows fit on a screen.
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

// footer is the last line: an error, the filter, or the keys.
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
