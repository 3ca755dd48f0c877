package show

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

// lineEvery is how often progress is told where there is no terminal.
const lineEvery = 3 * time.Second

// Progress tells how far a run is: in one line of a terminal, or in a line now and
// then elsewhere. The zero Progress is silent. Its methods are called from one
// goroutine.
type Progress struct {
	w        io.Writer // nil: silence
	now      func() time.Time
	terminal bool
	phase    string
	last     time.Time
	all      bool // it was told that all are active
}

// NewProgress returns one that writes to w.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, now: time.Now, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Settling says how many instances of all are active.
func (p *Progress) Settling(active, all int) {
	p.tell("settling", active == all && !p.all, fmt.Sprintf("settling: %d of %d instances active", active, all))
	p.all = active == all
}

// Measuring says how much of the measured time is over.
func (p *Progress) Measuring(elapsed, all time.Duration, issued int64) {
	elapsed = max(0, min(elapsed, all)).Round(100 * time.Millisecond)
	p.tell("measuring", false, fmt.Sprintf("measuring: %.1f of %v, %s permits issued", elapsed.Seconds(), all, humanize.Comma(issued)))
}

// Done ends what was shown.
func (p *Progress) Done() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *Progress) tell(phase string, news bool, text string) {
	switch {
	case p.w == nil:
	case p.terminal:
		fmt.Fprint(p.w, "\r\x1b[K"+text)
	case news || phase != p.phase || p.now().Sub(p.last) >= lineEvery:
		if !news || phase != p.phase {
			p.last = p.now()
		}
		p.phase = phase
		fmt.Fprintln(p.w, text)
	}
}
