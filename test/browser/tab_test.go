//go:build e2e

package browser

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

// tab is the one tab of a browser of its own. What goes wrong in it ends the
// test. What its console shows as an error or a warning fails the test at its
// end, unless it is expected. It is for the test's goroutine only.
type tab struct {
	t     *testing.T
	ctx   context.Context
	heard heard
}

// screen says how pages are shown.
type screen struct {
	Width, Height int64 // of the window, in pixels
	Dark          bool  // the theme that the system asks for
}

// desktop is what most tests use.
var desktop = screen{1280, 900, false}

// openTab starts a browser, which ends with the test.
func openTab(t *testing.T, l screen) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // tests may run as root; the pages are the project's own
		chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true))
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	b := &tab{t: t}
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
func (b *tab) As(l screen) {
	b.t.Helper()
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	b.Run(chromedp.EmulateViewport(l.Width, l.Height), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// InZone sets the time zone of the pages to come.
func (b *tab) InZone(name string) {
	b.t.Helper()
	b.Run(call(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name}))
}

// Run does what the helpers here have no words for.
func (b *tab) Run(actions ...chromedp.Action[chromedp.Void]) {
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
func (b *tab) Visit(link string) {
	b.t.Helper()
	b.Run(chromedp.Navigate(link))
}

// get evaluates JavaScript, which may be a promise.
func get[T any](b *tab, js string) (value T) {
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
func (b *tab) Until(what, js string) {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		if yes, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+js+")")); err == nil && yes {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			b.t.Fatalf("the page does not show %s (%s); it shows:\n%s", what, js, get[string](b, "document.body.innerText"))
		}
	}
}

// Shows waits for text in what a selector finds.
func (b *tab) Shows(selector, want string) {
	b.t.Helper()
	b.Until(fmt.Sprintf("%q in %s", want, selector),
		fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.offsetParent !== null && e.textContent.includes(%q))", selector, want))
}

// Click clicks on what a selector finds, once it can be seen.
func (b *tab) Click(selector string) {
	b.t.Helper()
	b.Run(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Write types words into a field, in place of what stands there.
func (b *tab) Write(selector, words string) {
	b.t.Helper()
	b.Until(selector, fmt.Sprintf("document.querySelector(%q).offsetParent !== null", selector))
	get[bool](b, fmt.Sprintf("(() => { const e = document.querySelector(%q); e.focus(); e.select(); return true; })()", selector))
	b.Press(words)
}

// Press sends keys to whatever has the focus.
func (b *tab) Press(keys string) {
	b.t.Helper()
	b.Run(chromedp.KeyEvent(keys))
}

// Shot keeps a picture of what is in sight.
func (b *tab) Shot(name string) { b.keep(name, chromedp.CaptureScreenshot()) }

// Shots keeps a picture of the whole page on a desk and on a phone, light and dark, and sees
// that it is no wider. The page is then shown on a desk.
func (b *tab) Shots(name string) {
	b.t.Helper()
	phone := screen{Width: 390, Height: 860}
	for kind, l := range map[string]screen{
		"": desktop, "-dark": {desktop.Width, desktop.Height, true}, "-phone": phone, "-phone-dark": {phone.Width, phone.Height, true},
	} {
		b.As(l)
		b.Until(fmt.Sprintf("%s%s no wider than the screen", name, kind), fmt.Sprintf("document.documentElement.scrollWidth <= %d", l.Width))
		b.WholeShot(name + kind)
	}
	b.As(desktop)
}

// WholeShot keeps a picture of the whole page.
func (b *tab) WholeShot(name string) { b.keep(name, chromedp.FullScreenshot(100)) }

// Part keeps a picture of the first part of the page that the selector finds.
func (b *tab) Part(name, selector string) {
	b.keep(name, chromedp.Screenshot(chromedp.CSS(selector)))
}

// keep keeps a picture in the folder that SCREENSHOTS names, if it does.
func (b *tab) keep(name string, picture chromedp.Action[[]byte]) {
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
