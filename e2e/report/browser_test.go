//go:build e2e

package report

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab, and what its console and its network said.
type browser struct {
	context.Context
	mu       sync.Mutex
	problems []string
}

func (b *browser) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// said returns what there was to complain about.
func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

// open starts a browser, which ends with the test.
func open(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox) // the test may run as root; it opens one file, its own
	all, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	tab, done := chromedp.NewContext(all)
	t.Cleanup(done)
	b := &browser{Context: tab}
	err := chromedp.Listen(tab, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			b.problem("console: %s", e.Type)
		case *runtime.EventExceptionThrown:
			b.problem("exception: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			b.problem("%s: %s", e.Entry.Source, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, "file://") && !strings.HasPrefix(u, "data:") {
				b.problem("it asks the network for %s", u)
			}
		}
	})
	if err != nil {
		t.Fatalf("%v; this needs chromium in the path", err)
	}
	late, cancel := context.WithTimeout(tab, 2*time.Minute)
	t.Cleanup(cancel)
	b.Context = late
	b.do(t, call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}))
	return b
}

// call makes an action of a command of the protocol.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b, steps...); err != nil {
		t.Fatal(err)
	}
}

// get runs a script and returns what it comes to.
func get[T any](t *testing.T, b *browser, script string) T {
	t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// as shows the page at a size, on a light or a dark screen.
func (b *browser) as(t *testing.T, page, scheme string, width, height int64) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(width, height),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		chromedp.Navigate("file://"+page), chromedp.WaitVisible(chromedp.ID("verdict")))
}

// keep writes a screenshot where SCREENSHOTS says, or where the test's artifacts
// are.
func (b *browser) keep(t *testing.T, name string) {
	t.Helper()
	picture, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		folder = t.ArtifactDir()
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600); err != nil {
		t.Fatal(err)
	}
}
