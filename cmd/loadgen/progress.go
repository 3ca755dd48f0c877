package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// lineEvery is how often progress is told where there is no terminal.
const lineEvery = 3 * time.Second

// progress tells how far a run is. Its methods are called from one goroutine.
type progress interface {
	// settling says how many instances of all are active.
	settling(active, all int)
	// measuring says how much of the measured time is over.
	measuring(elapsed, all time.Duration, issued int64)
	// done ends what was shown.
	done()
}

// newProgress shows a bar on a terminal, and lines elsewhere.
func newProgress(w io.Writer, quiet bool) progress {
	if quiet {
		return silence{}
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &bar{w: w}
	}
	return &lines{w: w, now: time.Now}
}

type silence struct{}

func (silence) settling(int, int)                             {}
func (silence) measuring(time.Duration, time.Duration, int64) {}
func (silence) done()                                         {}

// bar draws a progress bar, one for settling and one for the measured time.
type bar struct {
	w     io.Writer
	phase string
	shown *progressbar.ProgressBar
}

func (b *bar) settling(active, all int) {
	b.start("settling", all)
	b.set(active, settlingText(active, all))
}

func (b *bar) measuring(elapsed, all time.Duration, issued int64) {
	b.start("measuring", int(all/time.Millisecond))
	b.set(int(min(elapsed, all)/time.Millisecond), measuringText(elapsed, all, issued))
}

// set moves the bar. Errors of the terminal are no reason to stop.
func (b *bar) set(n int, text string) {
	b.shown.Describe(text)
	_ = b.shown.Set(n)
}

func (b *bar) start(phase string, all int) {
	if b.phase == phase {
		return
	}
	b.done()
	b.phase = phase
	b.shown = progressbar.NewOptions(all,
		progressbar.OptionSetWriter(b.w),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(50*time.Millisecond),
	)
}

func (b *bar) done() {
	if b.shown != nil {
		_ = b.shown.Clear()
		b.shown, b.phase = nil, ""
	}
}

// lines writes a line when a phase begins, every few seconds, and when the
// fleet has settled.
type lines struct {
	w     io.Writer
	now   func() time.Time // for tests
	phase string
	last  time.Time
	all   bool // the line that all are active was written
}

func (l *lines) settling(active, all int) {
	if l.due("settling") || active == all && !l.all {
		l.all = active == all
		fmt.Fprintln(l.w, settlingText(active, all))
	}
}

func (l *lines) measuring(elapsed, all time.Duration, issued int64) {
	if l.due("measuring") {
		fmt.Fprintln(l.w, measuringText(elapsed, all, issued))
	}
}

func (l *lines) due(phase string) bool {
	now := l.now()
	if phase == l.phase && now.Sub(l.last) < lineEvery {
		return false
	}
	l.phase, l.last = phase, now
	return true
}

func (*lines) done() {}

func settlingText(active, all int) string {
	return fmt.Sprintf("settling: %d of %d instances active", active, all)
}

func measuringText(elapsed, all time.Duration, issued int64) string {
	elapsed = max(0, min(elapsed, all)).Round(100 * time.Millisecond)
	return fmt.Sprintf("measuring: %.1f of %v, %s permits issued", elapsed.Seconds(), all, thousands(issued))
}
