package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

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

type reading struct {
	data *Snapshot
	err  error
}

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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, readings := make(chan string), make(chan reading)
	go readKeys(ctx, keyboard, keys)
	done := make(chan struct{})
	go func() {
		defer close(done)
		each(ctx, func(s *Snapshot, err error) bool {
			select {
			case readings <- reading{s, err}:
			case <-ctx.Done():
			}
			return true
		})
	}()
	defer func() { cancel(); <-done }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var m model
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
		case r := <-readings:
			m.take(r.data, r.err)
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
