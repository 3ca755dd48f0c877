//go:build e2e

package browser

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A dry run tells what the last minutes would have refused. The same callers are refused as much
// once the limit is set, by their own count.
func TestADryRunForeseesWhatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.set(provider, "300/s")
	fleet := w.fleet(2, provider, 300)
	p := w.dashboard()
	stream, err := http.Get("http://" + p.address + "/api/events?provider=" + provider) // as a page that is open
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	admin := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append(args, "--endpoints", strings.Join(w.cluster.Endpoints(), ","))...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "QUOTIENT_DASHBOARD=http://"+p.address), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return string(out)
	}
	before := w.revision(provider)
	type foreseen struct {
		Known   float64 `json:"known_seconds"`
		Asked   float64 `json:"asked"`
		Refused float64 `json:"refused"`
		Would   float64 `json:"would_refuse"`
		Problem string  `json:"problem"`
	}
	var f foreseen
	until(t, "the dashboard knows twenty seconds", func() bool {
		var said struct {
			Foreseen foreseen `json:"foreseen"`
		}
		if err := json.Unmarshal([]byte(admin("set", provider, "150/s", "--dry-run", "-o", "json")), &said); err != nil {
			t.Fatal(err)
		}
		f = said.Foreseen
		return f.Known >= 20
	})
	t.Logf("%+v", f)
	if f.Problem != "" || f.Asked < 400*f.Known || f.Asked > 700*f.Known || f.Would < f.Refused || math.Abs(f.Asked-150*f.Known-f.Would) > 0.01*f.Asked {
		t.Errorf("%+v: of some 600 permits a second 150/s leaves 150", f)
	}
	if text := admin("set", provider, "150/s", "--dry-run"); !strings.Contains(text, "; 150/s would have refused about ") {
		t.Errorf("a dry run says nothing of the past:\n%s", text)
	}
	if after := w.revision(provider); after != before {
		t.Errorf("a dry run wrote revision %d", after)
	}

	w.set(provider, "150/s")
	counts := func() (asked, refused int64) {
		for _, i := range fleet {
			asked, refused = asked+i.asked.Load(), refused+i.refused.Load()
		}
		return asked, refused
	}
	asked, refused := counts()
	until(t, "it asked for a third as much", func() bool { now, _ := counts(); return float64(now-asked) >= f.Asked/3 })
	askedThen, refusedThen := counts()
	would, was := f.Would/f.Asked, float64(refusedThen-refused)/float64(askedThen-asked)
	t.Logf("%.1f%% would have been refused, %.1f%% were", 100*would, 100*was)
	if math.Abs(would-was) > 0.05 {
		t.Errorf("%.1f%% would have been refused, %.1f%% were", 100*would, 100*was)
	}
}

// until waits for what comes within seconds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !holds(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
