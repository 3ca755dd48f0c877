package change

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

var noon = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

func sec(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

func limits(t testing.TB, text string) []quota.Limit {
	t.Helper()
	l, err := quota.ParseLimits(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// policy reads "5/s" or "5/s; 60: 6/s; 120: 7/s": seconds after noon.
func policy(t testing.TB, text string) quota.Policy {
	t.Helper()
	var l line
	for i, part := range strings.Split(text, "; ") {
		at, what, dated := strings.Cut(part, ": ")
		e := quota.LimitChange{}
		if !dated {
			what = part
		} else {
			d, err := time.ParseDuration(at + "s")
			if err != nil {
				t.Fatal(err)
			}
			e.From = noon.Add(d)
		}
		if i > 0 && !dated {
			t.Fatalf("%q: an announced change has a time", text)
		}
		e.Limits = limits(t, what)
		l = append(l, e)
	}
	return l.into(quota.Policy{})
}

// spell is the reverse of policy.
func spell(p quota.Policy) string {
	var parts []string
	for _, e := range lineOf(p) {
		what := quota.FormatLimits(e.Limits)
		if !e.From.IsZero() {
			what = strconv.FormatFloat(e.From.Sub(noon).Seconds(), 'f', -1, 64) + ": " + what
		}
		parts = append(parts, what)
	}
	return strings.Join(parts, "; ")
}

func TestSetLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, old, limits string
		at                int // seconds after noon; 0: now
		d                 time.Duration
		want              string // what is written, or a part of the error
	}{
		{"a new policy", "", "5/s", 0, 0, "5/s"},
		{"a new policy from later on", "", "5/s", 60, 0, "60: 5/s"},
		{"at once", "5/s", "6/s", 0, 0, "6/s"},
		{"at once, before what is announced", "5/s; 60: 7/s", "6/s", 0, 0, "6/s; 60: 7/s"},
		{"at once, after what was announced long ago", "5/s; -60: 7/s", "6/s", 0, 0, "6/s"},
		{"at once, after what was announced for just now", "5/s; -1: 7/s", "6/s", 0, 0, "6/s"},
		{"the same, long after", "5/s; -60: 7/s", "7/s", 0, 0, "7/s"},
		// Windows that started before the change still run: 5/s is theirs.
		{"the same, just after", "5/s; -1: 7/s", "7/s", 0, 0, "5/s; -1: 7/s"},
		{"the same, where a minute's window runs", "5/s,9/1m; -50: 7/s", "7/s", 0, 0, "5/s,9/1m; -50: 7/s"},
		{"before the policy begins", "60: 5/s", "6/s", 0, 0, "6/s; 60: 5/s"},
		{"announced", "5/s", "6/s", 60, 0, "5/s; 60: 6/s"},
		{"announced, between others", "5/s; 30: 4/s; 90: 9/s", "6/s", 60, 0, "5/s; 30: 4/s; 60: 6/s; 90: 9/s"},
		{"announced, in place of another", "5/s; 60: 4/s", "6/s", 60, 0, "5/s; 60: 6/s"},
		{"announced, just after another", "5/s; -1: 4/s", "6/s", 60, 0, "5/s; -1: 4/s; 60: 6/s"},
		{"announced, long after another", "5/s; -60: 4/s", "6/s", 60, 0, "4/s; 60: 6/s"},
		{"announced at the last moment", "5/s", "6/s", 4, 0, "5/s; 4: 6/s"},
		{"announced too late", "5/s", "6/s", 3, 0, "at least 3.3s ahead"},
		{"announced for the past", "5/s", "6/s", -3, 0, "too near"},
		{"for a while", "5/s", "6/s", 0, time.Minute, "6/s; 60: 5/s"},
		{"for a while, later", "5/s", "6/s", 60, time.Minute, "5/s; 60: 6/s; 120: 5/s"},
		{"for a while, then what is announced", "5/s; 60: 7/s", "6/s", 0, time.Minute, "6/s; 60: 7/s"},
		{"for a while, in place of what is announced", "5/s; 60: 7/s", "6/s", 60, time.Minute, "5/s; 60: 6/s; 120: 7/s"},
		{"for a while, across what is announced", "5/s; 30: 7/s", "6/s", 0, time.Minute, "7/s is announced for 2027-01-01T12:00:30Z, in between"},
		{"for a while, in full seconds", "5/s", "6/s", 0, 59500 * time.Millisecond, "6/s; 60: 5/s"},
		{"for too short a while", "5/s", "6/s", 0, 3 * time.Second, "at least 3.3s"},
		{"for less than a window", "5/1m", "6/1m", 0, 30 * time.Second, "at least 1m0.1s"},
		{"for a time below 0", "5/s", "6/s", 0, -time.Second, "at least"},
		{"for a while, without a policy before", "", "6/s", 0, time.Minute, "nothing was set to return to"},
		{"for a while, before the policy begins", "600: 5/s", "6/s", 0, time.Minute, "nothing was set to return to"},
	} {
		var old quota.Policy
		if test.old != "" {
			old = policy(t, test.old)
		}
		timing := Timing{For: test.d}
		if test.at != 0 {
			timing.At = sec(test.at)
		}
		p, err := SetLimits(old, old, limits(t, test.limits), timing, noon)
		if got := spell(p); err == nil && got != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.want)
		}
		if err == nil && p.Validate() != nil {
			t.Errorf("%s: not valid: %v", test.name, p.Validate())
		}
	}
}

func TestLeadIsOfTheSlowerTimes(t *testing.T) {
	t.Parallel()
	slow := policy(t, "5/s")
	slow.Settle, slow.ClockError = 10*time.Second, time.Second
	for _, pair := range [][2]quota.Policy{{slow, policy(t, "5/s")}, {policy(t, "5/s"), slow}} {
		if got, want := Lead(pair[0], pair[1]), 12*time.Second+protocol.AnnounceAhead; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestCarry(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, old, next, want string }{
		{"the same", "5/s", "5/s", "5/s"},
		{"other limits", "5/s", "6/s", "6/s"},
		{"other limits just after a change", "5/s; -1: 7/s", "6/s", "6/s"},
		{"the change folded by hand, just after it", "5/s; -1: 7/s", "7/s", "5/s; -1: 7/s"},
		{"the change folded by hand, long after it", "5/s; -60: 7/s", "7/s", "7/s"},
		{"a file that still has the change", "7/s", "5/s; -60: 7/s", "7/s"},
		{"another announced", "5/s; -1: 7/s; 60: 9/s", "7/s; 90: 8/s", "5/s; -1: 7/s; 90: 8/s"},
		{"what was announced is gone", "5/s; 60: 9/s", "5/s", "5/s"},
		{"none before", "", "5/s; 60: 9/s", "5/s; 60: 9/s"},
		{"begins later", "5/s", "60: 5/s", "60: 5/s"},
		{"began just now", "-1: 5/s", "5/s", "-1: 5/s"},
	} {
		var old quota.Policy
		if test.old != "" {
			old = policy(t, test.old)
		}
		if got := spell(Carry(old, policy(t, test.next), noon)); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, old string
		at        int // 0: all
		want      string
	}{
		{"all", "5/s; 60: 6/s; 90: 7/s", 0, "5/s"},
		{"one", "5/s; 60: 6/s; 90: 7/s", 60, "5/s; 90: 7/s"},
		{"nothing announced", "5/s; -60: 6/s", 0, "nothing is announced"},
		{"not at that time", "5/s; 60: 6/s", 61, "announced is 6/s for 2027-01-01T12:01:00Z"},
		{"the beginning, with more to come", "30: 5/s; 60: 6/s", 30, "60: 6/s"},
		{"the beginning", "60: 6/s", 0, "delete it"},
		{"just after another", "5/s; -1: 6/s; 60: 7/s", 0, "5/s; -1: 6/s"},
		{"what is in force", "5/s; -1: 6/s; 60: 7/s", -1, "nothing is announced for"},
	} {
		var at time.Time
		if test.at != 0 {
			at = sec(test.at)
		}
		p, err := Cancel(policy(t, test.old), at, noon)
		if got := spell(p); err == nil && got != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

func TestCheckStep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, old, next string
		most            float64
		want            string // a part of the error; "" if it passes
		last            string // before 0
	}{
		{"ten times as much", "30/s", "300/s", 0, "", ""},
		{"a bit more", "30/s", "301/s", 0, "10.04 times as much", ""},
		{"ten times less", "300/s", "30/s", 0, "", ""},
		{"a bit less", "301/s", "30/s", 0, "10.04 times less", ""},
		{"a wrong unit", "300/s", "300/m", 0, "60 times less", ""},
		{"one of several", "300/s,1000/10s", "300/s,100000/10s", 0, "100 times as much", ""},
		{"one removed", "300/s,1000/10s", "300/s", 0, "", ""},
		{"one added that binds more", "300/s", "300/s,10/10s", 0, "300 times less", ""},
		{"more calls in flight, each for less time", "200 inflight hold=1d", "300 inflight hold=2h", 0, "", ""},
		{"far more calls in flight", "20 inflight hold=2h", "300 inflight hold=1d", 0, "15 times as much", ""},
		{"calls in flight in place of a rate", "300/s", "5 inflight hold=10s", 0, "", ""},
		{"to nothing", "300/s", "0/s", 0, "nothing at all (pause", ""},
		{"from nothing", "0/s", "300/s", 0, "", ""},
		{"from nothing, and from ten times less before", "0/s", "300/s", 0, "", "30/s"},
		{"from nothing, and from far less before", "0/s", "301/s", 0, "30/s -> 301/s is 10.04 times as much", "30/s"},
		{"announced after nothing", "30/s", "30/s; 60: 0/s; 120: 301/s", 0, "is nothing at all", ""},
		{"announced before, and far more after it", "30/s; 60: 0/s", "30/s; 60: 0/s; 120: 301/s", 0, "30/s -> 301/s at 2027-01-01T12:02:00Z is 10.04", ""},
		{"no policy before", "", "300/s", 0, "", ""},
		{"a smaller step", "300/s", "700/s", 2, "2.34 times as much; the greatest step is 2x", ""},
		{"from what is in force", "3/s; -60: 30/s", "300/s", 0, "", ""},
		{"announced", "30/s", "30/s; 60: 301/s", 0, "at 2027-01-01T12:01:00Z is 10.04", ""},
		{"announced step by step", "30/s", "30/s; 60: 300/s; 120: 3000/s", 0, "", ""},
		{"announced before", "30/s; 60: 3000/s", "30/s; 60: 3000/s", 0, "", ""},
		{"announced before, and now more", "30/s; 60: 3000/s", "40/s; 60: 3000/s", 0, "", ""},
	} {
		var old quota.Policy
		if test.old != "" {
			old = policy(t, test.old)
		}
		var last []quota.Limit
		if test.last != "" {
			last = limits(t, test.last)
		}
		next := policy(t, test.next)
		next.MaxStep = test.most
		err := CheckStep(old, next, last, noon, 0)
		var step *StepError
		switch {
		case test.want == "" && err != nil, test.want != "" && (!errors.As(err, &step) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
		if err := CheckStep(old, next, last, noon, math.Inf(1)); err != nil {
			t.Errorf("%s: a flag above the policy's step: %v", test.name, err)
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	old := policy(t, "5/s; 60: 6/s").WithDefaults()
	old.Author, old.Reason, old.Time = "ann", "why", noon
	next := policy(t, "7/s; 60: 8/s; 90: 9/s").WithDefaults()
	next.Mode, next.MaxStep, next.Requires, next.Shape = quota.ModeShadow, 2.5, []string{"a", "b"}, quota.ShapeSliding
	want := []Difference{
		{"limits", "5/s", "7/s"}, {"max_step", "10", "2.5"}, {"mode", "enforce", "shadow"},
		{"next 2027-01-01T12:01:00Z", "6/s", "8/s"}, {"next 2027-01-01T12:01:30Z", "", "9/s"},
		{"requires", "", "a, b (an instance of a version without that issues nothing)"}, {"shape", "fixed", "sliding"},
	}
	if diff := cmp.Diff(want, Diff(&old, &next)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if d := Diff(&next, &old); !slices.Contains(d, Difference{"shape", "sliding", "fixed"}) {
		t.Errorf("back: %v", d)
	}
	if d := Diff(&old, &old); len(d) != 0 {
		t.Errorf("the same: %v", d)
	}
	if d := Diff(nil, &old); !slices.Contains(d, Difference{"limits", "", "5/s"}) {
		t.Errorf("from nothing: %v", d)
	}
	if d := Diff(&old, nil); !slices.Contains(d, Difference{"limits", "5/s", ""}) {
		t.Errorf("to nothing: %v", d)
	}
}

// What instances need not have any more is said in words: the field's name says nothing to who sets a limit.
func TestARequirementThatGoesIsSaidInWords(t *testing.T) {
	t.Parallel()
	with := func(text string, features ...string) *quota.Policy {
		p := quota.Policy{Limits: limits(t, text), Requires: features}.WithDefaults()
		return &p
	}
	for want, d := range map[string][]Difference{
		"no longer requires instances to know sliding budgets":                           Beside(with("9/h sliding"), with("9/h")),
		"no longer requires instances to know x":                                         Beside(with("5/s", "x"), with("5/s")),
		"requires x, levels -> x (an instance of a version without that issues nothing)": Beside(with("5/s", "x", "levels"), with("5/s", "x")),
	} {
		if len(d) != 1 || d[0].String() != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
}

// TestSame: what a fold leaves out is no difference.
func TestSame(t *testing.T) {
	t.Parallel()
	if a, b := policy(t, "5/s; -60: 7/s; 60: 8/s"), policy(t, "7/s; 60: 8/s"); !Same(a, b, noon) {
		t.Error("a change that is long in force is part of the limits")
	}
	if a, b := policy(t, "5/s; 60: 7/s"), policy(t, "5/s"); Same(a, b, noon) {
		t.Error("an announced change makes a difference")
	}
}
