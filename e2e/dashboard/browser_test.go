//go:build e2e

package dashboard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take to show what it must.
const patience = 45 * time.Second

// browser is one tab. What its console shows as an error or a warning fails the
// test at its end, unless it is expected.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu      sync.Mutex
	console []string
	expect  []string
}

// look says how a tab looks.
type look struct {
	width, height int64
	dark          bool
}

var desktop = look{1280, 900, false}

func open(t *testing.T, l look) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true))
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	b := &browser{t: t}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(b.listen))
	b.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			b.shot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		b.check()
		cancel()
		end()
	})
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	b.run(chromedp.EmulateViewport(l.width, l.height), chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		if _, err := cdp.Call(ctx, tab, log.Enable, cdp.Empty{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media)
		return err
	}))
	return b
}

func (b *browser) listen(event any) {
	var said string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError && e.Type != runtime.ConsoleAPICalledTypeWarning {
			return
		}
		var parts []string
		for _, a := range e.Args {
			parts = append(parts, string(a.Value)+a.Description)
		}
		said = strings.Join(parts, " ")
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
		if o := e.ExceptionDetails.Exception; o != nil {
			said += " " + o.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelError && e.Entry.Level != log.EntryLevelWarning {
			return
		}
		said = e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.console = append(b.console, said)
}

// expected names a part of what the console may show.
func (b *browser) expected(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expect = append(b.expect, part)
}

func (b *browser) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, said := range b.console {
		fine := false
		for _, part := range b.expect {
			fine = fine || strings.Contains(said, part)
		}
		if !fine {
			b.t.Errorf("the browser's console: %s", said)
		}
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
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

func (b *browser) visit(link string) {
	b.t.Helper()
	b.run(chromedp.Navigate(link))
}

// get evaluates JavaScript, which may be a promise.
func get[T any](b *browser, js string) (value T) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return value
}

// until waits for JavaScript to be true.
func (b *browser) until(what, js string) {
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

// shows waits for text in what a selector finds.
func (b *browser) shows(selector, want string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q in %s", want, selector),
		fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.offsetParent !== null && e.textContent.includes(%q))", selector, want))
}

func (b *browser) click(selector string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

func (b *browser) write(selector, words string) {
	b.t.Helper()
	b.until(selector, fmt.Sprintf("document.querySelector(%q).offsetParent !== null", selector))
	get[bool](b, fmt.Sprintf("(() => { const e = document.querySelector(%q); e.focus(); e.select(); return true; })()", selector))
	b.run(chromedp.KeyEvent(words))
}

// press sends a key to whatever has the focus.
func (b *browser) press(key string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(key))
}

// shot keeps a screenshot where DASHBOARD_SHOTS says.
func (b *browser) shot(name string) {
	dir := os.Getenv("DASHBOARD_SHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Errorf("screenshot %s: %v", name, err)
	}
}

func reload() chromedp.Action[chromedp.Void] { return chromedp.Reload() }
