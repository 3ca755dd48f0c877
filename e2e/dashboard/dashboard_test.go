//go:build e2e

package dashboard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const provider = "payments/charge"

// steady is a page on which the fleet issues all of its limit.
const steady = `(() => { const p = document.querySelector("#chart").points?.() ?? []; return p.filter((x) => x.total > 0 && x.total >= 0.95 * x.limit).length >= 4; })()`

// TestReadsLiveNumbers: numbers of a real fleet, in the table and in the chart,
// which lacks and doubles no point when the connection breaks.
func TestReadsLiveNumbers(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "600/s")
	w.set("mail/send", "500/2s,5000/1m")
	w.fleet(4, provider, 200)
	p := w.dashboard()
	line := newCable(t, p.address)
	b := open(t, desktop)
	b.visit("http://" + line.listener.Addr().String())
	b.shows("#providers .name", provider)
	b.shows("#providers .limits", "500/2s,5000/1m")
	b.press("j")
	b.press("j")
	b.press(kb.Enter)
	b.shows("#detail-title", provider)
	b.until("a steady chart", steady)
	b.until("all instances", `document.querySelectorAll("#instances .row:not(.head)").length === 4`)
	b.shows("#instances", "active")
	b.shows("#providers", "4/4")
	b.shows("#history", "for the test")
	if over := get[string](b, `JSON.stringify(document.querySelector("#chart").points().filter((x) => x.total > x.limit + 0.1))`); over != "[]" {
		t.Errorf("points over the limit: %s", over)
	}
	// A chart goes on where it was, by the number of its last point.
	b.expected("ERR_CONNECTION") // the browser says so itself
	b.expected("ERR_INCOMPLETE_CHUNKED_ENCODING")
	b.expected("ERR_EMPTY_RESPONSE")
	const count = `document.querySelector("#chart").points().length`
	for range 2 {
		before := get[int](b, count)
		line.cut()
		b.until("more points after the connection broke", fmt.Sprintf("%s >= %d", count, before+2))
	}
	gaps := get[string](b, `JSON.stringify(document.querySelector("#chart").points().map((p, i, all) => i ? p.t - all[i - 1].t : 1000).filter((d) => d !== 1000))`)
	if gaps != "[]" {
		t.Errorf("distances between points, in milliseconds: %s", gaps)
	}
	b.shot("desktop")
	b.press(kb.Escape)
	b.until("the list alone", `document.querySelector("#detail").hidden`)
	b.press("/")
	b.write("#filter", "mail")
	b.until("one provider", `document.querySelectorAll("#providers a.row").length === 1`)
}

// TestChangesALimitAndTheFleetFollows: preview, guard rail, write, and who did
// it; then pause and resume.
func TestChangesALimitAndTheFleetFollows(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "300/s")
	w.fleet(3, provider, 400)
	p := w.dashboard("--allow-writes")
	b := open(t, desktop)
	b.visit(p.link)
	b.until("that the token is gone from the address", `!location.href.includes("token")`)
	b.shows("#providers .name", provider)
	b.click("#providers a.row")
	b.until("a steady chart", steady)

	b.press("c")
	b.write("#limits", "30000/s")
	b.write("#reason", "a typing error")
	b.click("#change-preview")
	b.shows("#change-problem", "300/s -> 30000/s is 100 times as much; the greatest step is 10x")
	b.until("that it cannot be written", `document.querySelector("#change-write").disabled && !document.querySelector("#force").checked`)
	// Past the page, the server refuses too.
	b.expected("422")
	got := get[string](b, fmt.Sprintf(`fetch("/api/change", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({provider: %q, kind: "set", limits: "30000/s", reason: "x", force: false, if_revision: %d})}).then(async (r) => r.status + " " + await r.text())`,
		provider, w.revision(provider)))
	if !strings.HasPrefix(got, "422") || !strings.Contains(got, "100 times as much") {
		t.Errorf("the server said %s", got)
	}
	b.write("#limits", "600/s")
	b.until("that the old preview is gone", `document.querySelector("#preview").hidden`)
	b.write("#reason", "campaign")
	b.click("#change-preview")
	b.shows("#preview", "300/s → 600/s")
	b.until("what each share becomes", `[...document.querySelectorAll("#preview .row:not(.head)")].filter((r) => r.children[1].textContent === "100" && r.children[2].textContent === "200").length === 3`)
	b.shot("preview")
	before := w.revision(provider)
	b.click("#change-write")
	b.until("the dialog closed", `!document.querySelector("#change").open`)
	b.shows("#facts", "600/s")
	b.until("that every instance applied it", `[...document.querySelectorAll("#facts div")].some((d) => d.textContent === "Applied by3 of 3")`)
	b.until("the fleet at the new limit", `document.querySelector("#chart").points().filter((x) => x.limit === 600 && x.total >= 570).length >= 3`)
	b.shows("#history", "campaign")
	b.shows("#history", "ann@host")
	if after := w.revision(provider); after <= before {
		t.Errorf("revision %d after %d", after, before)
	}

	b.click("#pause")
	b.write("#reason", "the provider is down")
	b.click("#change-preview")
	b.shows("#preview", "(pause)")
	b.click("#change-write")
	b.shows("#mode", "paused")
	b.shows("#instances", "paused")
	b.until("that nothing is issued", `document.querySelector("#chart").points().at(-1).total === 0`)
	b.click("#pause")
	b.write("#reason", "it is back")
	b.click("#change-preview")
	b.until("a preview", `!document.querySelector("#preview").hidden`)
	b.click("#change-write")
	b.shows("#mode", "enforce")
	b.shows("#instances", "active")
}

// revision returns that of a provider's policy.
func (w *world) revision(provider string) int64 {
	w.t.Helper()
	s, err := w.admin.Get(w.t.Context(), provider)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Revision
}

// TestReadOnlyIsReadOnly: no button, and the server refuses.
func TestReadOnlyIsReadOnly(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "300/s")
	p := w.dashboard()
	b := open(t, desktop)
	b.visit(p.link + "#/" + "payments%2Fcharge")
	b.shows("#facts", "300/s")
	if !get[bool](b, `document.querySelector("#set").hidden && document.querySelector("#pause").hidden`) {
		t.Error("there are buttons that change something")
	}
	b.expected("403")
	got := get[string](b, fmt.Sprintf(`fetch("/api/change", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({provider: %q, kind: "pause", reason: "x", if_revision: %d})}).then(async (r) => r.status + " " + await r.text())`, provider, w.revision(provider)))
	if !strings.HasPrefix(got, "403") || !strings.Contains(got, "read-only") {
		t.Errorf("the server said %s", got)
	}
}

// TestShowsALostInstance: who is gone is named, and the others take its share.
func TestShowsALostInstance(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "600/s")
	all := w.fleet(3, provider, 700)
	p := w.dashboard()
	b := open(t, desktop)
	b.visit(p.link + "#/payments%2Fcharge")
	b.until("a steady chart", steady)
	b.until("shares of 200", `[...document.querySelectorAll("#instances .row:not(.head)")].filter((r) => r.children[1].textContent === "200").length === 3`)
	all[1].kill()
	b.shows("#troubles", "Lost: worker-2")
	b.until("shares of 300", `[...document.querySelectorAll("#instances .row:not(.head)")].filter((r) => r.children[1].textContent === "300").length === 2`)
	b.until("two instances at the limit", `(() => { const p = document.querySelector("#chart").points().at(-1); return p.total >= 570 && !("worker-2" in p.named); })()`)
	b.shot("lost")
}

// TestShowsTheOutage: etcd goes and comes back; the page says so, keeps what it
// had, and goes on.
func TestShowsTheOutage(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "600/s")
	w.fleet(3, provider, 300)
	p := w.dashboard()
	b := open(t, desktop)
	b.visit(p.link + "#/payments%2Fcharge")
	b.until("a steady chart", steady)
	w.cluster.Stop(0)
	b.shows("#alarm", "etcd does not answer since")
	b.shows("#link", "etcd is away")
	b.shows("#instances", "worker-1")
	b.shot("outage")
	if err := w.cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	b.shows("#link", "live")
	b.until("that the alarm is over", `document.querySelector("#alarm").hidden`)
	b.until("new points at the limit", `document.querySelector("#chart").points().slice(-3).every((x) => x.total >= 0.95 * x.limit)`)
	twice := get[bool](b, `(() => { const t = document.querySelector("#chart").points().map((p) => p.t); return new Set(t).size !== t.length; })()`)
	if twice {
		t.Error("a point is there twice")
	}
}

// TestNarrowAndDark: 400 pixels, by the system's dark theme and by the switch.
func TestNarrowAndDark(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "600/s")
	w.set("a/provider/with/a/name/that/is/longer/than/a/narrow/screen/is/wide", "500/2s,2000/10s,10000/1m")
	w.fleet(3, provider, 300)
	p := w.dashboard()
	for _, l := range []look{{400, 860, false}, {400, 860, true}, {1280, 900, true}} {
		b := open(t, l)
		b.visit(p.link + "#/payments%2Fcharge")
		b.until("a steady chart", steady)
		b.until("instances", `document.querySelectorAll("#instances .row:not(.head)").length === 3`)
		if wide := get[int64](b, "document.documentElement.scrollWidth"); wide > l.width {
			t.Errorf("%d pixels wide on %d", wide, l.width)
		}
		small := get[string](b, `JSON.stringify([...document.querySelectorAll("main *, header *")].filter((e) => e.offsetParent && e.children.length === 0 && e.textContent.trim() && !e.closest(".uplot") && parseFloat(getComputedStyle(e).fontSize) < 11).map((e) => e.outerHTML))`)
		if small != "[]" {
			t.Errorf("text too small to read: %s", small)
		}
		brightness := `(() => { const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number); return (r + g + b) / 3; })()`
		if bright := get[float64](b, brightness); (bright < 80) != l.dark {
			t.Errorf("dark is %v, and the background has brightness %v", l.dark, bright)
		}
		b.shot(map[look]string{{400, 860, false}: "narrow", {400, 860, true}: "narrow-dark", {1280, 900, true}: "dark"}[l])
		if l.dark {
			b.press("t") // light
			b.until("the light theme", brightness+" > 200")
			b.run(reload())
			b.until("the light theme, kept", brightness+" > 200")
		}
	}
}

// TestKeepsStrangersOut: nothing is shown before the login; the cookie is out of
// the page's reach.
func TestKeepsStrangersOut(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "600/s")
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("carol carol-0123456789-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.dashboard("--token-file", file, "--allow-writes")
	b := open(t, desktop)
	b.expected("401")
	b.visit(p.link)
	b.until("the login", `document.querySelector("#login").open`)
	b.write("#token", "wrong")
	b.press(kb.Enter)
	b.shows("#login-problem", "nobody has this token")
	if list := get[string](b, `document.querySelector("#providers").textContent`); list != "" {
		t.Errorf("a stranger sees %s", list)
	}
	b.write("#token", "carol-0123456789-0123456789")
	b.press(kb.Enter)
	b.shows("#who", "carol")
	b.shows("#providers", provider)
	if cookie := get[string](b, "document.cookie"); cookie != "" {
		t.Errorf("the page can read the cookie %s", cookie)
	}
	b.click("#providers a.row")
	b.click("#set")
	b.write("#limits", "500/s")
	b.write("#reason", "as carol")
	b.click("#change-preview")
	b.until("a preview", `!document.querySelector("#change-write").disabled`)
	b.click("#change-write")
	b.shows("#history", "carol")
	records, err := w.admin.History(t.Context(), provider)
	if err != nil || records[0].Author != "carol" || records[0].Reason != "as carol" {
		t.Errorf("the history has %+v, %v", records[0], err)
	}
	b.click("#logout")
	b.until("the login again", `document.querySelector("#login").open`)
}

// TestHostileNamesAreText: names that are HTML, that move a cursor, or that turn
// the text around are shown for what they are.
func TestHostileNamesAreText(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "600/s")
	lease, err := w.client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"<img src=x onerror=alert(1)>", "evil\u202etxt.exe", "\x1b[2Jgone", "__proto__", "constructor"} {
		text, err := json.Marshal(map[string]any{"schema": 1, "name": name, "host": name, "version": name})
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("/quotient/v1/providers/payments%%2Fcharge/instances/bad-%d", i)
		if _, err := w.client.Put(t.Context(), key, string(text), clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, desktop)
	b.visit(w.dashboard().link + "#/payments%2Fcharge")
	for _, want := range []string{"<img src=x", `evil\u{202e}txt.exe`, `\u{1b}[2Jgone`, "__proto__", "constructor"} {
		b.shows("#instances", want)
	}
	if n := get[int](b, `document.querySelectorAll("main img").length`); n != 0 {
		t.Error("a name became an image")
	}
}
