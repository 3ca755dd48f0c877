//go:build e2e

package browser

import (
	"encoding/json"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
