// Package tab shows pages to tests in Debian's Chromium: what is to be seen on a
// page, and what its console and its network said. It needs chromium in the path.
// The tests in browsers are a module of their own, so that nobody else gets the
// library that drives it.
//
// Where the environment's SCREENSHOTS names a folder, it keeps pictures there.
package tab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take to show what it must.
const patience = 45 * time.Second

// Tab is the one tab of a browser of its own. What goes wrong in it ends the
// test. What its console shows as an error or a warning fails the test at its
// end, unless it is expected. It is for the test's goroutine only.
type Tab struct {
	t     *testing.T
	ctx   context.Context
	heard heard
}

// Look says how pages are shown.
type Look struct {
	Width, Height int64 // of the window, in pixels
	Dark          bool  // the theme that the system asks for
}

// Desktop is what most tests use.
var Desktop = Look{1280, 900, false}

// Open starts a browser, which ends with the test.
func Open(t *testing.T, l Look) *Tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // tests may run as root; the pages are the project's own
		chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true))
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	b := &Tab{t: t}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(b.heard.listen))
	b.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			b.Shot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		for _, said := range b.heard.unexpected() {
			t.Errorf("the browser's console: %s", said)
		}
		cancel()
		end()
	})
	b.As(l)
	b.Run(call(log.Enable, cdp.Empty{}), call(network.Enable, network.EnableParams{}))
	return b
}

// call makes an action of a command of the protocol.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// As changes how pages are shown.
func (b *Tab) As(l Look) {
	b.t.Helper()
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	b.Run(chromedp.EmulateViewport(l.Width, l.Height), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// InZone sets the time zone of the pages to come.
func (b *Tab) InZone(name string) {
	b.t.Helper()
	b.Run(call(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name}))
}

// Run does what the helpers here have no words for.
func (b *Tab) Run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	if chromedp.FromContext(b.ctx).Target == nil {
		cancel() // the first run starts the browser, which would end with its context
		ctx, cancel = b.ctx, func() {}
	}
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// Visit goes to an address, and returns when the page is loaded.
func (b *Tab) Visit(link string) {
	b.t.Helper()
	b.Run(chromedp.Navigate(link))
}

// Get evaluates JavaScript, which may be a promise.
func Get[T any](b *Tab, js string) (value T) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return value
}

// Until waits for JavaScript to be true.
func (b *Tab) Until(what, js string) {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		if yes, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+js+")")); err == nil && yes {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			b.t.Fatalf("the page does not show %s (%s); it shows:\n%s", what, js, Get[string](b, "document.body.innerText"))
		}
	}
}

// Shows waits for text in what a selector finds.
func (b *Tab) Shows(selector, want string) {
	b.t.Helper()
	b.Until(fmt.Sprintf("%q in %s", want, selector),
		fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.offsetParent !== null && e.textContent.includes(%q))", selector, want))
}

// Click clicks on what a selector finds, once it can be seen.
func (b *Tab) Click(selector string) {
	b.t.Helper()
	b.Run(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Write types words into a field, in place of what stands there.
func (b *Tab) Write(selector, words string) {
	b.t.Helper()
	b.Until(selector, fmt.Sprintf("document.querySelector(%q).offsetParent !== null", selector))
	Get[bool](b, fmt.Sprintf("(() => { const e = document.querySelector(%q); e.focus(); e.select(); return true; })()", selector))
	b.Press(words)
}

// Press sends keys to whatever has the focus.
func (b *Tab) Press(keys string) {
	b.t.Helper()
	b.Run(chromedp.KeyEvent(keys))
}

// Shot keeps a picture of what is in sight.
func (b *Tab) Shot(name string) { b.keep(name, chromedp.CaptureScreenshot()) }

// WholeShot keeps a picture of the whole page.
func (b *Tab) WholeShot(name string) { b.keep(name, chromedp.FullScreenshot(100)) }

func (b *Tab) keep(name string, picture chromedp.Action[[]byte]) {
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, picture)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Errorf("screenshot %s: %v", name, err)
	}
}
