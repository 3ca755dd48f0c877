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
		text string
		want time.Duration
		err  string // in the error; empty: none
	}{
		{"0s", 0, ""},
		{"0", 0, ""},
		{"20ms", 20 * time.Millisecond, ""},
		{"-1s", -time.Second, ""}, // Validate says why not
		{"auto", 0, `"auto" went with an earlier version: write the policy's clock_error and the time of a call, as in 50ms for a clock_error of 50ms and 0s;`},
		{"auto+20ms", 0, `"auto+20ms" went with an earlier version: write the policy's clock_error and the time of a call, as in 70ms for a clock_error of 50ms and 20ms;`},
		{"", 0, `"" is no guard: write a duration like "20ms"`},
		{"auto20ms", 0, "is no guard"},
		{"auto+", 0, "is no guard"},
		{"auto++1s", 0, "is no guard"},
		{"auto+-1s", 0, "is no guard"},
		{"Auto", 0, "is no guard"},
		{"20", 0, "is no guard"},
	} {
		got, err := ParseGuard(test.text)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: %v, %v", test.text, got, err)
		}
	}
}

// A guard is less than half of the shortest window that somebody has set. Of what slides over more than a minute, and of
// calls in flight, it is the time of a call, and must be less than a part of time.
func TestGuardOfLongLimits(t *testing.T) {
	t.Parallel()
	const slides, inFlight, half = "must be less than a 100th of a sliding window, 36s", "must be less than an eighth of the hold, 1m15s", "leaves nothing of the shortest window, "
	for _, test := range []struct {
		limits, keys string
		guard        time.Duration
		err          string // in the error; empty: none
	}{
		{"5000/h sliding", "", 10 * time.Second, ""},
		{"5000/h sliding", "", 36*time.Second - 100*time.Millisecond, slides},
		{"20 inflight hold=10m", "", 10 * time.Second, ""},
		{"20 inflight hold=10m", "", 75*time.Second - 100*time.Millisecond, inFlight},
		{"14/s,5000/h sliding", "", 10 * time.Second, half + "1s"},
		{"15000/s", "5000/h sliding", 10 * time.Second, half + "1s"},
		{"5000/h sliding", "2/s,500/h sliding", time.Second, half + "1s"},
		{"5000/h sliding", "500/h sliding", 10 * time.Second, ""},
		{"5000/h", "", 10 * time.Second, ""},
		{"5000/h", "", 30 * time.Minute, half + "1h0m0s"},
		{"50000/d", "5000/h", 30 * time.Minute, half + "1h0m0s"},
	} {
		p := Policy{Timing: Timing{Guard: test.guard}}
		var err, keys error
		p.Limits, err = ParseLimits(test.limits)
		if test.keys != "" {
			p.Keys.Limits, keys = ParseLimits(test.keys)
		}
		if err != nil || keys != nil {
			t.Fatal(err, keys)
		}
		if err = p.Validate(); (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s, keys %q, guard %v: %v", test.limits, test.keys, test.guard, err)
		}
	}
	shaped := Policy{Limits: []Limit{{Permits: 5000, Window: time.Hour, Sliding: true}}, Timing: Timing{Guard: 10 * time.Second}}
	shaped.Shape = ShapeSliding
	if err := shaped.Validate(); err == nil || !strings.Contains(err.Error(), "guard 10s: leaves nothing of the 1s by which shape sliding counts; without a limit of up to a minute set shape fixed") {
		t.Errorf("a shape of long limits alone: %v", err)
	}
	p := Policy{Limits: []Limit{{Permits: 5000, Window: time.Hour, Sliding: true}}, Timing: Timing{Guard: time.Second},
		Next: []LimitChange{{From: time.Unix(1, 0), Limits: []Limit{{Permits: 1, Window: time.Second}}}}}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), half+"1s") {
		t.Errorf("a limit of a second is announced: %v", err)
	}
}

func FuzzParseGuard(f *testing.F) {
	for _, s := range []string{"0s", "20ms", "auto", "auto+1h2m3s", "auto+", "-5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fixed, err := ParseGuard(s)
		if err != nil {
			return
		}
		if again, err := ParseGuard(fixed.String()); err != nil || again != fixed {
			t.Fatalf("%q is %v, and written %v, %v", s, fixed, again, err)
		}
	})
}

// A guard of earlier versions, which followed the clock, is the most that it was: the clock error and
// what was added. So what was valid is still valid.
func TestAGuardThatFollowedTheClock(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fields  string
		want    time.Duration
		ignored string
		invalid bool
	}{
		{`"guard":"auto"`, 50 * time.Millisecond, "guard auto (now 50ms)", false},
		{`"guard":"auto+20ms","clock_error":"50ms"`, 70 * time.Millisecond, "guard auto+20ms (now 70ms)", false},
		{`"guard":"auto+0s","clock_error":"10ms"`, 10 * time.Millisecond, "guard auto (now 10ms)", false},
		{`"guard":"auto+489999us","clock_error":"10ms"`, 499_999 * time.Microsecond, "guard auto+489.999ms (now 499.999ms)", false},
		{`"guard":"auto+490ms","clock_error":"10ms"`, 500 * time.Millisecond, "guard auto+490ms (now 500ms)", true}, // as before
		{`"guard":"70ms"`, 70 * time.Millisecond, "", false},
	} {
		var p Policy
		err := json.Unmarshal([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}],`+test.fields+`}`), &p)
		if err != nil || p.Guard != test.want || strings.Join(p.Ignored, ",") != test.ignored || len(p.Unsupported()) > 0 {
			t.Errorf("%s is read as %+v, %v", test.fields, p, err)
		}
		if err := p.Validate(); (err != nil) != test.invalid {
			t.Errorf("%s: %v", test.fields, err)
		}
		if b, err := json.Marshal(p); err != nil || !strings.Contains(string(b), `"guard":"`+test.want.String()+`"`) {
			t.Errorf("%s is written as %s, %v", test.fields, b, err)
		}
	}
	huge := Policy{Limits: []Limit{{Permits: 5, Window: time.Second}}}
	if err := json.Unmarshal([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}],"guard":"auto+2562047h47m16.854775807s"}`), &huge); err == nil && huge.Validate() == nil {
		t.Errorf("a guard of %v is valid", huge.Guard)
	}
}
