package quota

import (
	"encoding/json"
	"reflect"
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

// formatGuard is the inverse of ParseGuard.
func formatGuard(fixed time.Duration, auto bool) string {
	if auto {
		return autoGuard(fixed)
	}
	return fixed.String()
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

// A version that knows no guard but a duration must be able to read the policy,
// and see that it lacks something: what it cannot read would leave the policy
// before it in force.
func TestGuardAutoIsSafeForOtherVersions(t *testing.T) {
	t.Parallel()
	p := Policy{Limits: []Limit{{5, time.Second}}, Timing: Timing{Guard: 20 * time.Millisecond, GuardAuto: true}, Requires: []string{"x"}}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var older struct {
		Guard    duration `json:"guard"`
		Requires []string `json:"requires"`
	}
	if err := json.Unmarshal(b, &older); err != nil {
		t.Fatalf("an older version cannot read %s: %v", b, err)
	}
	if time.Duration(older.Guard) != p.Guard || !reflect.DeepEqual(older.Requires, []string{"x", featureGuardAuto}) {
		t.Errorf("an older version reads guard %v and requires %q", time.Duration(older.Guard), older.Requires)
	}
	var same Policy
	if err := json.Unmarshal(b, &same); err != nil || !same.GuardAuto || !reflect.DeepEqual(same.Requires, []string{"x"}) {
		t.Errorf("read back: auto %v, requires %q, %v", same.GuardAuto, same.Requires, err)
	}
	if missing := same.Unsupported(); !reflect.DeepEqual(missing, []string{"x"}) {
		t.Errorf("this version misses %q", missing)
	}
	if missing := (&Policy{Requires: []string{featureGuardAuto}}).Unsupported(); len(missing) > 0 {
		t.Errorf("this version misses %q", missing)
	}
	// People may write the word.
	written := strings.Replace(string(b), `"guard":"20ms","guard_auto":true`, `"guard":"auto+20ms"`, 1)
	var people Policy
	if err := json.Unmarshal([]byte(written), &people); err != nil || !reflect.DeepEqual(people, same) {
		t.Errorf("%s is read as %+v, %v", written, people, err)
	}
}
