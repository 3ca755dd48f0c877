//go:build e2e

package browser

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// The page of a provider shows its limits by key, and the busiest keys and labels, on a narrow
// screen too. A name that was written to deceive is made visible. A long limit that will be
// used up before its window ends is foretold.
func TestShowsKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limits, err := quota.ParseLimits("600/s,100000/mo")
	if err != nil {
		t.Fatal(err)
	}
	p := quota.Policy{
		Limits: limits, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 80, Window: time.Second}}, Most: 100},
		Timing: quota.Timing{Settle: time.Second, Freshness: 800 * time.Millisecond},
	}
	if _, err := w.admin.Put(t.Context(), provider, p); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	s, err := coordinator.Join(t.Context(), w.client, coordinator.Options{Name: "worker-1", Logger: quiet, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := consumer.Open(t.Context(), s, provider, consumer.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	calls := time.NewTicker(100 * time.Millisecond)
	t.Cleanup(func() {
		calls.Stop()
		close(done)
	})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-calls.C:
				l.Key("tenant-7").TryTake(20)
				l.Key("tenant-8").TryTake(2)
				l.Key("\u202etenant").TryTake(1)
				l.Class(consumer.Critical).TryTake(3)
				l.Label("\u202ereindex").TryTake(2)
				l.Label(strings.Repeat("nightly-", 8)).TryTake(1)
			}
		}
	}()
	site := w.dashboard()
	b := openTab(t, desktop)
	b.Visit(site.link)
	b.Shows("#detail-title", provider)
	b.Shows("#facts", "80/s")
	b.Shows("#busiest-keys .row", `\u{202e}tenant`)
	b.Until("the busiest key first", `document.querySelector("#busiest-keys .row:nth-child(2)").textContent.startsWith("tenant-7")`)
	b.Until("its rates", `[...document.querySelectorAll("#busiest-keys .row:nth-child(2) .number")].every((e) => /^[1-9]/.test(e.textContent))`)
	b.Shows("#busiest-labels .row", `\u{202e}reindex`)
	b.Until("calls without a label first", `/^\(no label\)[1-9]/.test(document.querySelector("#busiest-labels .row:nth-child(2)").textContent)`)
	b.Until("the critical calls", `/^Critical[1-9]/.test(document.querySelector("#classes .row:nth-child(2)").textContent)`)
	b.Shows("#budgets .warn", "at the present rate it is used up at ")
	// The chart can be divided by each of these, and is never more than the whole.
	b.Until("what the chart can be divided by", `[...document.querySelectorAll("#by option")].map((o) => o.value).join() === "instance,class,label,key"`)
	for kind, name := range map[string]string{"class": "critical", "label": `\\u{202e}reindex`, "key": "tenant-7", "instance": "worker-1"} {
		get[bool](b, fmt.Sprintf(`(() => { const by = document.querySelector("#by"); by.value = %q; by.dispatchEvent(new Event("change")); return true; })()`, kind))
		b.Until(name+" in the chart", fmt.Sprintf(`[...document.querySelectorAll("#chart .u-label")].some((e) => e.textContent === "%s")`, name))
		if kind == "key" {
			b.Shots("by-key")
		}
	}
	if over := get[string](b, `JSON.stringify(document.querySelector("#chart").points().filter((x) => Object.values(x.by || {}).some((part) => Object.values(part).reduce((a, b) => a + b, 0) > x.total + 1)))`); over != "[]" {
		t.Errorf("parts are more than the whole: %s", over)
	}
	b.Shots("keys")
	b.As(screen{Width: 390, Height: 860})
	b.Until("all of each name and number", `[...document.querySelectorAll(".busiest .row > *")].every((e) => e.scrollWidth <= e.clientWidth && e.getBoundingClientRect().right <= e.parentNode.parentNode.getBoundingClientRect().right)`)
}
