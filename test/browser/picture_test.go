//go:build e2e

package browser

import (
	"os"
	"testing"
	"time"
)

// TestTheTutorialsStory: docs/start.md on the page. A fourth instance joins, the limit
// changes twice, and the fourth one goes without a word. DASHBOARD_PICTURE says how long each chapter
// lasts: `make dashboard-picture` makes the picture of README.md with 45s.
func TestTheTutorialsStory(t *testing.T) {
	t.Parallel()
	chapter := time.Duration(0)
	if text := os.Getenv("DASHBOARD_PICTURE"); text != "" {
		var err error
		if chapter, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	last := func() { <-time.After(chapter) }
	const demo = "demo/api"
	w := newWorld(t)
	w.set(demo, "1000/s")
	for _, name := range []string{"demo-1", "demo-2", "demo-3"} {
		w.join(name, demo, 400)
	}
	b := openTab(t, screen{1280, 870, false})
	b.Visit(w.dashboard().link + "#/demo%2Fapi")
	b.Until("a steady chart", steady)
	last()
	fourth := w.join("charge", demo, 400)
	b.Shows("#events", "Joined charge")
	last()
	w.set(demo, "500/s")
	b.Shows("#events", "1000/s → 500/s by setup@test")
	last()
	w.set(demo, "1000/s")
	b.Shows("#events", "500/s → 1000/s by setup@test")
	last()
	fourth.kill()
	b.Shows("#events", "Lost charge")
	last()
	b.Until("three instances at the limit", `(() => { const p = document.querySelector("#chart").points().at(-1); return p.total >= 950 && !("charge" in p.named); })()`)
	b.Shot("story")
}
