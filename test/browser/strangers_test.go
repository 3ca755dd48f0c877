//go:build e2e

package browser

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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

// TestHostileNamesAreText: names that are HTML, that move a cursor, or that turn
// the text around are shown for what they are.
func TestHostileNamesAreText(t *testing.T) {
	t.Parallel()
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
