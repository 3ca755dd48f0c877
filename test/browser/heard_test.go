//go:build e2e

package browser

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
)

// heard is what a browser told of its pages, on a goroutine of its own.
type heard struct {
	mu       sync.Mutex
	said     []string // all that the console shows
	wrong    []string // the errors and warnings among it
	expected []string // parts of those
	asked    []string // the addresses of all requests
}

// Said returns all that the console has shown, whatever its level.
func (b *tab) Said() []string {
	b.heard.mu.Lock()
	defer b.heard.mu.Unlock()
	return slices.Clone(b.heard.said)
}

// Asked returns the addresses of all requests, pages and what they load.
func (b *tab) Asked() []string {
	b.heard.mu.Lock()
	defer b.heard.mu.Unlock()
	return slices.Clone(b.heard.asked)
}

// Expect names a part of an error or a warning that the console may show.
func (b *tab) Expect(part string) {
	b.heard.mu.Lock()
	defer b.heard.mu.Unlock()
	b.heard.expected = append(b.heard.expected, part)
}

// unexpected returns the errors and warnings that no test expects.
func (h *heard) unexpected() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.wrong), func(said string) bool {
		return slices.ContainsFunc(h.expected, func(part string) bool { return strings.Contains(said, part) })
	})
}

func (h *heard) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		var parts []string
		for _, a := range e.Args {
			parts = append(parts, string(a.Value)+a.Description)
		}
		wrong := e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning
		h.say(wrong, "%s: %s", e.Type, strings.Join(parts, " "))
	case *runtime.EventExceptionThrown:
		what := e.ExceptionDetails.Text
		if o := e.ExceptionDetails.Exception; o != nil {
			what += " " + o.Description
		}
		h.say(true, "exception: %s", what)
	case *log.EventEntryAdded:
		wrong := e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning
		h.say(wrong, "%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asked = append(h.asked, e.Request.URL)
	}
}

func (h *heard) say(wrong bool, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Sprintf(format, args...))
	if wrong {
		h.wrong = append(h.wrong, h.said[len(h.said)-1])
	}
}
