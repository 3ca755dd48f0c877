package top

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
)

// screen shows the newest snapshot on a terminal, filtered and sorted as its keys say.
type screen struct {
	app    *tview.Application
	layout *tview.Flex
	head   *tview.TextView // title and notes
	table  *tview.Table
	foot   *tview.InputField // the keys, and the filter
	data   Snapshot
	column int // sorted by
	down   bool
}

func newScreen() *screen {
	tview.Styles = tview.Theme{} // the terminal's own colours
	s := &screen{app: tview.NewApplication(), layout: tview.NewFlex(), head: tview.NewTextView(), table: tview.NewTable(), foot: tview.NewInputField()}
	s.head.SetWrap(false)
	s.table.SetFixed(1, 0).SetEvaluateAllRows(true).SetInputCapture(s.key)
	s.foot.SetChangedFunc(func(string) { s.fill() }).SetDoneFunc(func(k tcell.Key) {
		if k == tcell.KeyEscape {
			s.foot.SetText("")
		}
		s.app.SetFocus(s.table)
	})
	s.layout.SetDirection(tview.FlexRow).AddItem(s.head, 0, 0, false).AddItem(s.table, 0, 1, true).AddItem(s.foot, 1, 0, false)
	s.app.SetRoot(s.layout, true)
	s.take(&Snapshot{title: "reading ..."}, nil)
	return s
}

// notesShown bounds the lines above the table.
const notesShown = 3

// take shows a new snapshot, or why there is none.
func (s *screen) take(data *Snapshot, err error) {
	if err != nil {
		s.foot.SetLabel(tview.Escape("cannot read: " + format.Clean(format.OneLine(err)) + "  "))
		return
	}
	s.foot.SetLabel("q quit  < > sort by  r reverse  arrows scroll  / filter ")
	s.data = *data
	lines := []string{format.Clean(data.title)}
	if !data.at.IsZero() {
		lines[0] = data.at.Format("15:04:05 ") + lines[0]
	}
	for _, n := range data.Notes[:min(len(data.Notes), notesShown)] {
		lines = append(lines, "! "+format.Clean(n))
	}
	if data.below != "" { // it stays above, where the table scrolls
		lines = append(lines, format.Clean(data.below))
	}
	s.head.SetText(strings.Join(lines, "\n"))
	s.layout.ResizeItem(s.head, len(lines)+1, 0)
	s.fill()
}

// fill makes the table anew.
func (s *screen) fill() {
	s.table.Clear()
	by := min(s.column, len(s.data.columns)-1)
	for i, title := range s.data.titles() {
		if i == by {
			title += map[bool]string{false: "^", true: "v"}[s.down]
		}
		s.table.SetCellSimple(0, i, title+" ")
	}
	rows := slices.SortedStableFunc(slices.Values(s.data.rows), func(x, y []any) int {
		if s.down {
			x, y = y, x
		}
		return compare(x[by], y[by])
	})
	wanted := strings.ToLower(s.foot.GetText())
	for _, row := range rows {
		cells, n := s.data.cells(row), s.table.GetRowCount()
		if !strings.Contains(strings.ToLower(strings.Join(cells, "\n")), wanted) {
			continue
		}
		for i, text := range cells {
			cell := tview.NewTableCell(tview.Escape(text) + " ")
			if _, isText := row[i].(string); !isText {
				cell.SetAlign(tview.AlignRight)
			}
			s.table.SetCell(n, i, cell)
		}
	}
}

// key does what a key on the table asks for, and leaves to the table those that scroll.
func (s *screen) key(e *tcell.EventKey) *tcell.EventKey {
	columns := max(1, len(s.data.columns))
	switch k, r := e.Key(), e.Rune(); {
	case r == 'q':
		s.app.Stop()
	case r == '/':
		s.foot.SetText("")
		s.app.SetFocus(s.foot)
	case k == tcell.KeyEscape:
		s.foot.SetText("")
	case r == '>', k == tcell.KeyRight:
		s.column = (s.column + 1) % columns
	case r == '<', k == tcell.KeyLeft:
		s.column = (s.column + columns - 1) % columns
	case r == 'r':
		s.down = !s.down
	case r == ' ':
		return tcell.NewEventKey(tcell.KeyPgDn, 0, 0)
	default:
		return e
	}
	s.fill()
	return nil
}

// Run shows the table on this process's terminal until the user quits or ctx ends. each
// calls its argument with what there is until ctx ends.
func Run(ctx context.Context, each func(context.Context, func(*Snapshot, error) bool)) error {
	s := newScreen()
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer func() { cancel(); reader.Wait() }()
	reader.Go(func() {
		each(ctx, func(data *Snapshot, err error) bool {
			go s.app.QueueUpdateDraw(func() { s.take(data, err) }) // it waits, also for a screen that is closed
			return true
		})
	})
	context.AfterFunc(ctx, s.app.Stop)
	if err := s.app.Run(); err != nil {
		return fmt.Errorf("the terminal cannot be used, TERM=%s: %w; top | cat writes tables", os.Getenv("TERM"), err)
	}
	return nil
}
