//go:build e2e

package browser

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

// TestReadOnlyIsReadOnly: no button, a page that says so, and the server refuses.
// Also that the only provider opens on a narrow screen, and that times have a zone.
func TestReadOnlyIsReadOnly(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "300/s")
	p := w.dashboard()
	b := openTab(t, screen{Width: 390, Height: 844})
	b.InZone("Asia/Kolkata")
	b.Visit(p.link)
	b.Shows("#facts", "300/s")
	b.Shows("#read-only", "read-only")
	b.Shows("#rights", "cannot change limits")
	for _, place := range []string{"#chart-unit", "#policy", "#events time", "#history"} {
		b.Shows(place, "GMT+5:30")
	}
	b.Press(kb.Escape)
	b.Shows("#providers .name", provider)
	b.Until("the row in focus", `document.activeElement.matches("#providers a.row")`)
	b.Press(kb.Enter)
	b.Shows("#facts", "300/s")
	if !get[bool](b, `document.querySelector("#set").hidden && document.querySelector("#pause").hidden`) {
		t.Error("there are buttons that change something")
	}
	b.Expect("403")
	got := get[string](b, fmt.Sprintf(`fetch("/api/change", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({provider: %q, kind: "pause", reason: "x", if_revision: %d})}).then(async (r) => r.status + " " + await r.text())`, provider, w.revision(provider)))
	if !strings.HasPrefix(got, "403") || !strings.Contains(got, "read-only") {
		t.Errorf("the server said %s", got)
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

// TestKeepsStrangersOut: nothing is shown before the login; there is no cookie, and
// another port of the host does not get the token.
func TestKeepsStrangersOut(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "600/s")
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("carol carol-0123456789-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.dashboard("--token-file", file, "--allow-writes")
	b := openTab(t, desktop)
	b.Visit(p.link)
	b.Until("the login", `document.querySelector("#login").open`)
	b.Write("#token", "wrong")
	b.Press(kb.Enter)
	b.Shows("#login-problem", "nobody has this token")
	if link := get[string](b, `document.querySelector("#link").textContent`); link != "connecting" {
		t.Errorf("before the login the connection is %s", link)
	}
	if list := get[string](b, `document.querySelector("#providers").textContent`); list != "" {
		t.Errorf("a stranger sees %s", list)
	}
	b.Write("#token", "carol-0123456789-0123456789")
	b.Press(kb.Enter)
	b.Shows("#who", "carol")
	b.Shows("#providers", provider)
	if cookie := get[string](b, "document.cookie"); cookie != "" {
		t.Errorf("there is a cookie: %s", cookie)
	}
	if kept := get[string](b, `sessionStorage.getItem("token")`); kept != "carol-0123456789-0123456789" {
		t.Errorf("the tab keeps %q", kept)
	}
	b.Click("#set")
	b.Write("#limits", "500/s")
	b.Write("#reason", "as carol")
	b.Click("#change-preview")
	b.Until("a preview", `!document.querySelector("#change-write").disabled`)
	b.Click("#change-write")
	b.Shows("#history", "carol")
	records, err := w.admin.History(t.Context(), provider)
	if err != nil || records[0].Author != "carol" || records[0].Reason != "as carol" {
		t.Errorf("the history has %+v, %v", records[0], err)
	}
	b.Click("#logout")
	b.Until("the login again", `document.querySelector("#login").open`)
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
	p := w.dashboard() // it ends after the browser
	b := openTab(t, desktop)
	b.Visit(p.link + "#/payments%2Fcharge")
	for _, want := range []string{"<img src=x", `evil\u{202e}txt.exe`, `\u{1b}[2Jgone`, "__proto__", "constructor"} {
		b.Shows("#instances", want)
	}
	if n := get[int](b, `document.querySelectorAll("main img").length`); n != 0 {
		t.Error("a name became an image")
	}
}
