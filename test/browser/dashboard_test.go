//go:build e2e

package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quotient-limiter/quotient/quota"
)

const provider = "payments/charge"

// steady is a page on which the fleet issues all of its limit.
const steady = `(() => { const p = document.querySelector("#chart").points?.() ?? []; return p.filter((x) => x.total > 0 && x.total >= 0.95 * x.limit).length >= 4; })()`

// TestReadsLiveNumbers: numbers of a real fleet, in the table and in the chart,
// which lacks and doubles no point when the connection breaks.
func TestReadsLiveNumbers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(provider, "600/s")
	w.set("mail/send", "500/2s,5000/1m")
	w.fleet(4, provider, 200)
	p := w.dashboard()
	line := newCable(t, p.address)
	b := openTab(t, desktop)
	b.Visit("http://" + line.listener.Addr().String())
	b.Shows("#providers .name", provider)
	b.Shows("#providers .limits", "500/2s,5000/1m")
	b.Shows("#detail-title", "mail/send") // the first, where there is room
	// The list draws what each issues; who opens one sees what went before.
	const drawn = `document.querySelectorAll("#providers .trend path")[2].getAttribute("d").split("M").length > `
	b.Until("a small chart", drawn+"1")
	first := get[float64](b, "Date.now()")
	b.Until("more of it", drawn+"8")
	b.Press("j")
	b.Press("j")
	b.Press(kb.Enter)
	b.Shows("#detail-title", provider)
	b.Until("a steady chart", steady)
	if begin := get[float64](b, `document.querySelector("#chart").points()[0].t`); begin > first {
		t.Errorf("the chart begins %v ms after the list's", begin-first)
	}
	b.Until("all instances", `document.querySelectorAll("#instances .row:not(.head)").length === 4`)
	b.Shows("#instances", "active")
	b.Shows("#providers", "4/4")
	b.Shows("#history", "for the test")
	if over := get[string](b, `JSON.stringify(document.querySelector("#chart").points().filter((x) => x.total > x.limit + 0.1))`); over != "[]" {
		t.Errorf("points over the limit: %s", over)
	}
	// A chart goes on where it was, by the number of its last point.
	b.Expect("ERR_CONNECTION") // the browser says so itself
	b.Expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
	b.Expect("ERR_EMPTY_RESPONSE")
	const count = `document.querySelector("#chart").points().length`
	for range 2 {
		before := get[int](b, count)
		line.cut()
		b.Until("more points after the connection broke", fmt.Sprintf("%s >= %d", count, before+2))
	}
	gaps := get[string](b, `JSON.stringify(document.querySelector("#chart").points().map((p, i, all) => i ? p.t - all[i - 1].t : 1000).filter((d) => d !== 1000))`)
	if gaps != "[]" {
		t.Errorf("distances between points, in milliseconds: %s", gaps)
	}
	b.Shots("calm")
	b.Press(kb.Escape)
	b.Until("the list alone", `document.querySelector("#detail").hidden`)
	b.Press("/")
	b.Write("#filter", "mail")
	b.Until("one provider", `document.querySelectorAll("#providers a.row").length === 1`)
}

// TestShowsAChangeAndAPause: who made them, that every instance applied them, and what the
// fleet did.
func TestShowsAChangeAndAPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(provider, "300/s")
	w.fleet(3, provider, 400)
	p := w.dashboard()
	b := openTab(t, desktop)
	b.Visit(p.link)
	b.Shows("#providers .name", provider)
	b.Shows("#detail-title", provider) // the only one
	b.Until("a steady chart", steady)
	w.set(provider, "600/s")
	b.Shows("#facts", "600/s")
	b.Until("that every instance applied it", `[...document.querySelectorAll("#facts div")].some((d) => d.textContent === "Applied by3 of 3")`)
	b.Until("the fleet at the new limit", `document.querySelector("#chart").points().filter((x) => x.limit === 600 && x.total >= 570).length >= 3`)
	b.Shows("#history", "300/s → 600/s")
	b.Shows("#history", "setup@test")

	w.mode(provider, quota.ModePause)
	b.Shows("#mode", "paused")
	b.Shows("#instances", "paused")
	b.Shows("#events", "Paused by setup@test")
	b.Until("the pause in the chart", `document.querySelector("#chart").bands.includes("Pause")`)
	b.Until("that nothing is issued", `document.querySelector("#chart").points().at(-1).total === 0`)
	b.Shots("paused")
	w.mode(provider, quota.ModeEnforce)
	b.Shows("#mode", "enforce")
	b.Shows("#instances", "active")
	b.Shows("#events", "Resumed by setup@test")
	b.Until("what was refused meanwhile", `document.querySelector("#chart").points().some((x) => x.total === 0 && x.refused > 0)`)
	b.Shots("after-pause")
}

// TestShowsALostInstance: who is gone is named, and the others take its share.
func TestShowsALostInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(provider, "600/s")
	all := w.fleet(3, provider, 700)
	p := w.dashboard()
	b := openTab(t, desktop)
	b.Visit(p.link + "#/payments%2Fcharge")
	b.Until("a steady chart", steady)
	b.Until("shares of 200", `[...document.querySelectorAll("#instances .row:not(.head)")].filter((r) => r.children[1].textContent === "200").length === 3`)
	all[1].kill()
	b.Shows("#events", "Lost worker-2")
	b.Until("shares of 300", `[...document.querySelectorAll("#instances .row:not(.head)")].filter((r) => r.children[1].textContent === "300").length === 2`)
	b.Until("two instances at the limit", `(() => { const p = document.querySelector("#chart").points().at(-1); return p.total >= 570 && !("worker-2" in p.named); })()`)
	b.Shots("lost")
}

// TestShowsEvents: joins, losses, refusals and changes, in the list and on the
// chart, which spans five minutes from the start.
func TestShowsEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(provider, "600/s")
	w.fleet(2, provider, 50)
	p := w.dashboard()
	b := openTab(t, desktop)
	b.Visit(p.link)
	b.Until("a point", `document.querySelector("#chart").points?.().some((x) => x.total > 0)`)
	if span := get[[]float64](b, `document.querySelector("#chart").range()`); span[1]-span[0] != 300 {
		t.Errorf("the chart shows from %v to %v", span[0], span[1])
	}
	still(t, b)
	greedy := w.join("worker-3", provider, 700)
	b.Shows("#events", "Joined worker-3")
	b.Until("its refusals", `/Refused\/s[1-9]/.test(document.querySelector("#facts").textContent)`)
	greedy.kill()
	b.Shows("#events", "Lost worker-3")
	b.Shows("#events", "Refusals ended")
	w.join("worker-4", provider, 700)
	b.Shows("#events", "Refusals began")
	w.set(provider, "300/s")
	b.Shows("#events", "600/s → 300/s by setup@test")
	for _, want := range []string{"Joined worker-3", "Lost worker-3", "Refusals began", "600/s → 300/s"} {
		b.Until(want+" on the chart", fmt.Sprintf(`document.querySelector("#chart").marks.some((m) => m.includes(%q))`, want))
	}
	b.Until("the lower limit on the chart", `document.querySelector("#chart").points().slice(-3).every((x) => x.limit === 300)`)
	b.Shots("cut")
}

// TestShowsTheOutage: etcd goes and comes back; the page says so, keeps what it
// had, and goes on.
func TestShowsTheOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(provider, "600/s")
	w.fleet(3, provider, 300)
	p := w.dashboard()
	b := openTab(t, desktop)
	b.Visit(p.link + "#/payments%2Fcharge")
	b.Until("a steady chart", steady)
	w.cluster.Stop(0)
	b.Shows("#alarm", "etcd has not answered since")
	b.Shows("#link", "etcd is away")
	b.Shows("#alarm", "By rule hold, instances go on with the shares they had")
	b.Shows("#events", "etcd does not answer")
	b.Shows("#age", "as of")
	b.Until("the outage in the chart", `document.querySelector("#chart").bands.includes("Outage")`)
	b.Until("reports that are old, of instances that are not silent", `document.querySelectorAll("#instances .row:not(.head)").length === 3 && [...document.querySelectorAll("#instances .row:not(.head)")].every((r) => r.textContent.includes("active") && parseInt(r.lastElementChild.textContent) >= 10)`)
	b.Until("that it is grey", `getComputedStyle(document.querySelector("#instances")).filter === "grayscale(1)"`)
	b.Until("the provider in the list", `document.querySelector("#providers a .name").textContent === "payments/charge"`)
	b.Shots("outage")
	if err := w.cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	b.Shows("#link", "live")
	b.Until("that the alarm is over", `document.querySelector("#alarm").hidden`)
	b.Shows("#events", "Back after")
	b.Until("what was issued meanwhile, as a mean, and no gap", `(() => { const p = document.querySelector("#chart").points(), m = p.slice(p.findIndex((x) => !x.mean)).filter((x) => x.mean); return m.length >= 8 && m.every((x) => x.total > 0 && x.total <= x.limit + 0.1) && p.every((x, i) => !i || x.t - p[i - 1].t === 1000); })()`)
	b.Until("that nobody is silent", `document.querySelectorAll("#instances .silent").length === 0 && document.querySelector("#age").textContent === ""`)
	b.Shots("after-outage")
	b.Until("new points at the limit", `document.querySelector("#chart").points().slice(-3).every((x) => x.total >= 0.95 * x.limit)`)
	twice := get[bool](b, `(() => { const t = document.querySelector("#chart").points().map((p) => p.t); return new Set(t).size !== t.length; })()`)
	if twice {
		t.Error("a point is there twice")
	}
}

// TestSaysThatItMayNotRead: etcd that refuses is not etcd that is away.
func TestSaysThatItMayNotRead(t *testing.T) {
	w := newWorld(t)
	t.Setenv("QUOTIENT_PASSWORD", "secret")
	for _, user := range []string{"root", "eve"} {
		if _, err := w.client.UserAdd(t.Context(), user, "secret"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.client.UserGrantRole(t.Context(), "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.AuthEnable(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := w.dashboard("--user", "eve") // it ends after the browser
	b := openTab(t, desktop)
	b.Visit(p.link)
	b.Shows("#link", "no permission")
	b.Shows("#alarm", "may not read from etcd")
}

// still fails the test if parts of the page have jumped, by the browser's measure.
func still(t *testing.T, b *tab) {
	t.Helper()
	const jumps = `new Promise((done) => { new PerformanceObserver((l) => done(l.getEntries().reduce((n, e) => n + e.value, 0))).observe({type: "layout-shift", buffered: true}); setTimeout(() => done(0), 500); })`
	if jumped := get[float64](b, jumps); jumped > 0.02 {
		t.Errorf("parts of the page jumped by %v", jumped)
	}
}

// TestNarrowAndDark: 390 pixels, by the system's dark theme and by the switch.
func TestNarrowAndDark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(provider, "600/s")
	w.set("a/provider/with/a/name/that/is/longer/than/a/narrow/screen/is/wide", "500/2s,2000/10s,10000/1m")
	w.fleet(3, provider, 300)
	p := w.dashboard()
	for name, l := range map[string]screen{
		"narrow": {Width: 390, Height: 860}, "narrow-dark": {Width: 390, Height: 860, Dark: true}, "dark": {Width: 1280, Height: 900, Dark: true},
	} {
		b := openTab(t, l)
		b.Visit(p.link + "#/payments%2Fcharge")
		b.Until("a steady chart", steady)
		b.Until("instances", `document.querySelectorAll("#instances .row:not(.head)").length === 3`)
		if wide := get[int64](b, "document.documentElement.scrollWidth"); wide > l.Width {
			t.Errorf("%d pixels wide on %d", wide, l.Width)
		}
		small := get[string](b, `JSON.stringify([...document.querySelectorAll("main *, header *")].filter((e) => e.offsetParent && e.children.length === 0 && e.textContent.trim() && !e.closest(".uplot") && parseFloat(getComputedStyle(e).fontSize) < 11).map((e) => e.outerHTML))`)
		if small != "[]" {
			t.Errorf("text too small to read: %s", small)
		}
		brightness := `(() => { const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number); return (r + g + b) / 3; })()`
		if bright := get[float64](b, brightness); (bright < 80) != l.Dark {
			t.Errorf("dark is %v, and the background has brightness %v", l.Dark, bright)
		}
		still(t, b)
		if list := get[bool](b, `document.querySelector("#list").offsetParent !== null`); list != (l.Width > 1000) {
			t.Errorf("%s: the list is beside the detail: %v", name, list)
		}
		b.Shot(name)
		if l.Dark {
			b.Press("t") // light
			b.Until("the light theme", brightness+" > 200")
			b.Run(chromedp.Reload())
			b.Until("the light theme, kept", brightness+" > 200")
		}
	}
}

// TestOnANarrowScreen: the only provider opens, times have a zone, and the keyboard works.
func TestOnANarrowScreen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(provider, "300/s")
	p := w.dashboard()
	b := openTab(t, screen{Width: 390, Height: 844})
	b.InZone("Asia/Kolkata")
	b.Visit(p.link)
	b.Shows("#facts", "300/s")
	for _, place := range []string{"#chart-unit", "#policy", "#events time", "#history"} {
		b.Shows(place, "GMT+5:30")
	}
	b.Press(kb.Escape)
	b.Shows("#providers .name", provider)
	b.Until("the row in focus", `document.activeElement.matches("#providers a.row")`)
	b.Press(kb.Enter)
	b.Shows("#facts", "300/s")
}
