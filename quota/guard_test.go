package quota

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestParseGuard(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		fixed time.Duration
		auto  bool
		back  string // "" means refused
	}{
		{"0s", 0, false, "0s"},
		{"0", 0, false, "0s"},
		{"20ms", 20 * time.Millisecond, false, "20ms"},
		{"-1s", -time.Second, false, "-1s"}, // Validate says why not
		{"auto", 0, true, "auto"},
		{"auto+0s", 0, true, "auto"},
		{"auto+20ms", 20 * time.Millisecond, true, "auto+20ms"},
		{"", 0, false, ""},
		{"auto20ms", 0, false, ""},
		{"auto+", 0, false, ""},
		{"auto++1s", 0, false, ""},
		{"Auto", 0, false, ""},
		{"20", 0, false, ""},
	} {
		fixed, auto, err := ParseGuard(test.text)
		if fixed != test.fixed || auto != test.auto || (err == nil) != (test.back != "") {
			t.Errorf("%q: %v, %v, %v", test.text, fixed, auto, err)
		}
		if back := formatGuard(fixed, auto); err == nil && back != test.back {
			t.Errorf("%q is written as %q, want %q", test.text, back, test.back)
		}
	}
}

func FuzzParseGuard(f *testing.F) {
	for _, s := range []string{"0s", "20ms", "auto", "auto+1h2m3s", "auto+", "-5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fixed, auto, err := ParseGuard(s)
		if err != nil {
			return
		}
		again, autoAgain, err := ParseGuard(formatGuard(fixed, auto))
		if err != nil || again != fixed || autoAgain != auto {
			t.Fatalf("%q is %v, %v, and written %q", s, fixed, auto, formatGuard(fixed, auto))
		}
	})
}

func TestGuardInJSON(t *testing.T) {
	t.Parallel()
	p := Policy{Limits: []Limit{{5, time.Second}}, Timing: Timing{Guard: 20 * time.Millisecond, GuardAuto: true}}
	b, err := json.Marshal(p)
	if err != nil || !strings.Contains(string(b), `"guard":"auto+20ms"`) {
		t.Errorf("%s, %v", b, err)
	}
	var same Policy
	if err := json.Unmarshal(b, &same); err != nil || same.Guard != p.Guard || !same.GuardAuto {
		t.Errorf("%s is read as %v, auto %v, %v", b, same.Guard, same.GuardAuto, err)
	}
}
