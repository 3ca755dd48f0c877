//go:build e2e

package browser

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// seen is what a script finds on the page.
type seen struct {
	Verdict    string
	Top        float64 // of the verdict, in the window
	Charts     int     // that are shown
	Cut        []string
	Smallest   float64 // height of a text beside a chart
	Wider      float64 // than the window
	Contrast   float64 // of the verdict against what is behind it
	Background string
}

// look measures the page. A chart is cut if it reaches out of its section.
const look = `(() => {
	const verdict = document.querySelector('#verdict');
	const shown = [...document.querySelectorAll('.uplot')].filter(s => s.getClientRects().length > 0);
	const cut = []; let smallest = 1e9;
	for (const s of shown) {
		const out = s.closest('section').getBoundingClientRect();
		for (const t of s.querySelectorAll('canvas, .u-label, .u-value')) {
			const r = t.getBoundingClientRect();
			if (t.tagName !== 'CANVAS') smallest = Math.min(smallest, r.height);
			if (r.left < out.left - 1 || r.right > out.right + 1) cut.push(t.textContent || t.tagName);
		}
	}
	const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 }); return .2126 * r + .7152 * g + .0722 * b };
	const style = getComputedStyle(verdict), a = light(style.color), b = light(style.backgroundColor);
	return {
		Verdict: verdict.textContent, Top: verdict.getBoundingClientRect().top, Charts: shown.length, Cut: cut, Smallest: smallest,
		Wider: document.documentElement.scrollWidth - window.innerWidth,
		Contrast: (Math.max(a, b) + .05) / (Math.min(a, b) + .05),
		Background: getComputedStyle(document.body).backgroundColor,
	};
})()`

// The page of a run with churn: its verdict is the first thing to be seen, every
// chart is there and whole, at any width, on light and dark screens, and the
// browser has nothing to complain about, nor anything to load.
func TestTheReportOfAChurnRun(t *testing.T) {
	t.Parallel()
	page := churn(t)
	b := openTab(t, desktop)
	for _, c := range []struct {
		name, background string
		look             screen
	}{
		{"report", "rgb(255, 255, 255)", desktop},
		{"report-dark", "rgb(13, 17, 23)", screen{Width: 1280, Height: 900, Dark: true}},
		{"report-narrow", "rgb(255, 255, 255)", screen{Width: 400, Height: 800}},
		{"report-narrow-dark", "rgb(13, 17, 23)", screen{Width: 400, Height: 800, Dark: true}},
	} {
		b.As(c.look)
		b.Visit("file://" + page)
		b.Shows("#verdict", "")
		s := get[seen](b, look)
		b.WholeShot(c.name)
		b.Part(c.name+"-chart", "section:first-of-type")
		if !strings.HasPrefix(s.Verdict, "HELD: ") || s.Top < 0 || s.Top > 200 {
			t.Errorf("%s: verdict %q at %v", c.name, s.Verdict, s.Top)
		}
		if s.Charts != 6 || len(s.Cut) > 0 || s.Smallest < 11 {
			t.Errorf("%s: %d charts; texts that are cut: %q; the smallest is %v high", c.name, s.Charts, s.Cut, s.Smallest)
		}
		if s.Wider > 0 || s.Contrast < 7 || s.Background != c.background {
			t.Errorf("%s: %v wider than the window, contrast %v, background %s", c.name, s.Wider, s.Contrast, s.Background)
		}
	}
	// The table opens by keyboard.
	get[bool](b, `document.querySelector("summary").focus(), true`)
	b.Press(kb.Enter)
	b.Shows("details[open] tbody tr", "")
	if rows := get[int](b, `document.querySelectorAll('details[open] tbody tr').length`); rows < 8 {
		t.Errorf("%d rows in the table of windows", rows)
	}
	for _, said := range b.Said() {
		t.Error(said)
	}
	for _, address := range b.Asked() {
		if !strings.HasPrefix(address, "file://") && !strings.HasPrefix(address, "data:") {
			t.Errorf("it asks the network for %s", address)
		}
	}
	// Silence means something only where words are heard.
	b.Expect("heard")
	get[int](b, `console.error("heard"), 1`)
	if len(b.Said()) == 0 || len(b.Asked()) == 0 {
		t.Error("the test hears neither words nor requests")
	}
}

// churn runs loadgen with instances that leave and are killed, and returns its page. REPORT_RUN has
// other flags: `make headline-picture` makes the first picture of README.md so.
func churn(t *testing.T) string {
	t.Helper()
	page := filepath.Join(t.TempDir(), "report.html")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run := cmp.Or(os.Getenv("REPORT_RUN"), "--settle 1s --instances 20 --processes 2 --churn 2 --limit 1000/s --duration 8s")
	cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./cmd/loadgen", "--html", page}, strings.Fields(run)...)...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return page
}
