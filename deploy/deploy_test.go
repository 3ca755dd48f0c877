package deploy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-limiter/quotient/consumer/prommetrics"
)

// dashboard is what is checked of Grafana's format.
type dashboard struct {
	UID           string
	SchemaVersion int
	Panels        []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr string }
	}
}

var (
	described = regexp.MustCompile(`fqName: "([^"]+)"`)
	named     = regexp.MustCompile(`\bquotient_[a-z_]+`)
	recorded  = regexp.MustCompile(`\b[a-z_]+:quotient_[a-z_]+:[a-z0-9_]+`)
)

// exported returns the names of the metrics that limiters have.
func exported() []string {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		prommetrics.New().Describe(ch)
	}()
	var names []string
	for d := range ch {
		names = append(names, described.FindStringSubmatch(d.String())[1])
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Rules, their tests and the dashboard name no metric that does not exist, and
// leave out none.
func TestEveryMetricExistsAndIsUsed(t *testing.T) {
	t.Parallel()
	names, used := exported(), map[string]bool{}
	for _, file := range []string{"prometheus/quotient.rules.yml", "prometheus/quotient.test.yml", "grafana/quotient.json"} {
		text := recorded.ReplaceAllString(read(t, file), "")
		for _, name := range named.FindAllString(text, -1) {
			for _, suffix := range []string{"_bucket", "_count"} {
				if base, ok := strings.CutSuffix(name, suffix); ok && slices.Contains(names, base) {
					name = base
				}
			}
			used[name] = true
			if !slices.Contains(names, name) {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
	for _, name := range names {
		if !used[name] && name != "quotient_view_revision" {
			t.Errorf("%s is in no rule and on no panel", name)
		}
	}
}

func TestDashboardIsWhole(t *testing.T) {
	t.Parallel()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "grafana/quotient.json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.SchemaVersion == 0 || len(d.Panels) == 0 {
		t.Fatalf("got %+v", d)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Type == "" || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %+v", p)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := cells[cell]; ok {
					t.Fatalf("%q lies on %q", p.Title, other)
				}
				cells[cell] = p.Title
			}
		}
		refs := ""
		for _, target := range p.Targets {
			if target.Expr == "" || strings.Contains(refs, target.RefID) {
				t.Errorf("%q: target %+v", p.Title, target)
			}
			refs += target.RefID
		}
	}
}

// Every alert has a test, and says what to do.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	rules, tests := read(t, "prometheus/quotient.rules.yml"), read(t, "prometheus/quotient.test.yml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) == 0 || strings.Count(rules, "action:") != len(alerts) {
		t.Errorf("%d alerts, %d actions", len(alerts), strings.Count(rules, "action:"))
	}
	for _, a := range alerts {
		if !strings.Contains(tests, fmt.Sprintf("alertname=%q", a[1])) {
			t.Errorf("%s is in no test", a[1])
		}
	}
}

// The unit lets quotad read the kernel's bound on the clock's error: @system-service has no
// adjtimex, without which systemd kills the process, and ProtectClock refuses it.
func TestTheUnitLetsTheClockBeRead(t *testing.T) {
	t.Parallel()
	unit := read(t, "systemd/quotad.service")
	if !regexp.MustCompile(`(?m)^SystemCallFilter=@system-service .*\badjtimex\b`).MatchString(unit) || regexp.MustCompile(`(?m)^ProtectClock=`).MatchString(unit) {
		t.Error("quotad cannot call adjtimex")
	}
}

// Every image that is not ours is named with its version and digest, so a tag that moves
// changes nothing here. Jobs run the Go that the Dockerfile builds with: no updater looks at
// the workflows' images.
func TestImagesOfOthersArePinned(t *testing.T) {
	t.Parallel()
	image := regexp.MustCompile(`(?m)^\s*(?:FROM(?: --platform=\S+)?|(?:image|prepareImage|container):) +([^\s{]\S*)`)
	digest := regexp.MustCompile(`^[^@:]+:[^@:]+@sha256:[0-9a-f]{64}$`)
	golang, found := "", 0
	for _, file := range []string{"../Dockerfile", "compose/compose.yaml", "helm/quotient/values.yaml", "../.github/workflows/ci.yml", "../.github/workflows/next.yml", "../.github/workflows/release.yml"} {
		for _, m := range image.FindAllStringSubmatch(read(t, file), -1) {
			name := m[1]
			if name == "#" || name == "quotient" || name == "quotad" {
				continue
			}
			found++
			if !digest.MatchString(name) {
				t.Errorf("%s: %s has no digest", file, name)
			}
			if strings.HasPrefix(name, "golang:") {
				golang = cmp.Or(golang, name)
				if name != golang {
					t.Errorf("%s: %s, and the Dockerfile has %s", file, name, golang)
				}
			}
		}
	}
	if found < 9 {
		t.Errorf("found %d images", found)
	}
}
