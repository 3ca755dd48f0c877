package quota

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	if err := fullPolicy().Validate(); err != nil {
		t.Fatalf("the policy that every case changes is not valid: %v", err)
	}
	limits := func(l ...Limit) func(*Policy) { return func(p *Policy) { p.Limits = l } }
	many := make([]Limit, maxLimits+1)
	for i := range many {
		many[i] = Limit{Permits: 1, Window: time.Duration(i+1) * time.Second}
	}
	const huge = time.Duration(math.MaxInt64)
	for _, test := range []struct {
		name   string
		change func(p *Policy)
		fields string // with a problem, in order; "" if valid
	}{
		{"zero fields are defaults", func(p *Policy) { *p = Policy{Limits: p.Limits} }, ""},
		{"no limit", limits(), "limits"},
		{"an unknown back-off", func(p *Policy) { p.Backoff = "all" }, "backoff"},
		{"the longest pause", func(p *Policy) { p.BackoffMax = time.Hour }, ""},
		{"a pause too short", func(p *Policy) { p.BackoffMax = 99 * time.Millisecond }, "backoff_max"},
		{"a pause too long", func(p *Policy) { p.BackoffMax = time.Hour + 1 }, "backoff_max"},
		{"too many limits", limits(many...), "limits"},
		{"as many limits as possible, unsorted", limits(many[8], many[7], many[6], many[5], many[4], many[3], many[2], many[1]), ""},
		{"two limits with one window", limits(Limit{Permits: 1, Window: time.Second}, Limit{Permits: 2, Window: time.Minute}, Limit{Permits: 3, Window: time.Second}), "limits"},
		{"permits below 0", limits(Limit{Permits: -1, Window: time.Second}), "limits[0].permits"},
		{"no permits", limits(Limit{Permits: 0, Window: time.Second}), ""},
		{"most permits", limits(Limit{Permits: MaxPermits, Window: time.Second}), ""},
		{"too many permits", limits(Limit{Permits: MaxPermits + 1, Window: time.Second}), "limits[0].permits"},
		{"shortest window", func(p *Policy) { p.Limits[0].Window, p.Guard = MinWindow, 0 }, ""},
		{"window too short", func(p *Policy) { p.Limits[0].Window, p.Guard = MinWindow-time.Millisecond, 0 }, "limits[0].window"},
		{"longest window", limits(Limit{Permits: 1, Window: MaxWindow}), ""},
		{"budget of no whole seconds", limits(Limit{Permits: 1, Window: MaxWindow + time.Millisecond}), "limits[0].window"},
		{"budget of a month", limits(Limit{Permits: 1, Window: month}), ""},
		{"budget of 7 days", limits(Limit{Permits: 1, Window: 7 * day}), "limits[0].window"},
		{"budget of 30 h", limits(Limit{Permits: 1, Window: 30 * time.Hour}), "limits[0].window"},
		{"budget of more than a month", limits(Limit{Permits: 1, Window: month + day}), "limits[0].window"},
		{"budget of nothing", limits(Limit{Permits: 0, Window: day}), "limits[0].permits"},
		{"two budgets of a day", limits(Limit{Permits: 1, Window: day}, Limit{Permits: 2, Window: day}), "limits"},
		{"announced budget", func(p *Policy) { p.Next[0].Limits = []Limit{{Permits: 1, Window: day}} }, "next[0].limits[0].window"},
		{"a phase", limits(Limit{Permits: 1, Window: day, Phase: day - time.Second}), ""},
		{"a phase of a window", limits(Limit{Permits: 1, Window: time.Hour, Phase: time.Hour}), "limits[0].phase"},
		{"a phase below 0", limits(Limit{Permits: 1, Window: time.Hour, Phase: -time.Second}), "limits[0].phase"},
		{"a phase of half a second", limits(Limit{Permits: 1, Window: time.Hour, Phase: time.Second / 2}), "limits[0].phase"},
		{"a phase of a second's window", limits(Limit{Permits: 1, Window: time.Second, Phase: time.Millisecond}), "limits[0].phase"},
		{"a month's phase", limits(Limit{Permits: 1, Window: month, Phase: time.Hour}), "limits[0].phase"},
		{"a sliding hour", limits(Limit{Permits: 80, Window: time.Second}, Limit{Permits: 1, Window: time.Hour, Sliding: true}), ""},
		{"a sliding second", limits(Limit{Permits: 1, Window: time.Second, Sliding: true}), "limits[0].sliding"},
		{"a sliding month", limits(Limit{Permits: 1, Window: month, Sliding: true}), "limits[0].sliding"},
		{"a sliding hour at a phase", limits(Limit{Permits: 1, Window: time.Hour, Sliding: true, Phase: time.Second}), "limits[0].sliding"},
		{"calls in flight", inFlight(func(*Policy) {}), ""},
		{"no calls in flight", inFlight(func(p *Policy) { p.Limits[0].Permits = 0 }), "limits[0].permits"},
		{"too many calls in flight", inFlight(func(p *Policy) { p.Limits[0].Permits = MaxPermits + 1 }), "limits[0].permits"},
		{"a hold too short", inFlight(func(p *Policy) { p.Limits[0].Window = 3 * time.Second }), "limits[0].window"},
		{"a hold too long", inFlight(func(p *Policy) { p.Limits[0].Window = day + time.Second }), "limits[0].window"},
		{"a hold of half a second", inFlight(func(p *Policy) { p.Limits[0].Window = 4500 * time.Millisecond }), "limits[0].window"},
		{"a hold that slides", inFlight(func(p *Policy) { p.Limits[0].Sliding = true }), "limits[0].window"},
		{"calls in flight beside a rate", inFlight(func(p *Policy) { p.Limits = append(p.Limits, Limit{Permits: 1, Window: time.Second}) }), "limits"},
		{"calls in flight of keys", func(p *Policy) {
			p.Keys = Keys{Limits: []Limit{{Permits: 1, Window: 10 * time.Second, InFlight: true}}}
		}, "keys.limits"},
		{"calls in flight and keys", inFlight(func(p *Policy) { p.Keys = Keys{Limits: []Limit{{Permits: 1, Window: time.Second}}} }), "keys"},
		{"announced calls in flight", func(p *Policy) { p.Next[0].Limits = []Limit{{Permits: 1, Window: 10 * time.Second, InFlight: true}} }, "next[0].limits"},
		{"calls in flight, and an announced rate", inFlight(func(p *Policy) {
			p.Next = []LimitChange{{From: time.Unix(1, 0), Limits: []Limit{{Permits: 1, Window: time.Second}}}}
		}), "next"},
		{"calls in flight in a shape", inFlight(func(p *Policy) { p.Shape = ShapeSliding }), "shape"},
		{"paced calls in flight", inFlight(func(p *Policy) { p.Pacing = PacingEven }), "pacing"},
		{"calls in flight that are kept", inFlight(func(p *Policy) { p.Critical = 10 }), "classes.critical"},
		{"calls in flight that warm up", inFlight(func(p *Policy) { p.WarmUp = time.Second }), "warm_up"},
		{"clocks too bad for calls in flight", inFlight(func(p *Policy) {
			p.Limits[0].Window, p.ClockError, p.Settle = 4*time.Second, 250*time.Millisecond, 5*time.Second
		}), "limits"},
		{"clocks good enough for calls in flight", inFlight(func(p *Policy) {
			p.Limits[0].Window, p.ClockError, p.Guard, p.Settle = 4*time.Second, 200*time.Millisecond, 99*time.Millisecond, 5*time.Second
		}), ""},
		{"clocks too bad for what slides", func(p *Policy) {
			*p = Policy{Limits: []Limit{{Permits: 1, Window: 61 * time.Second, Sliding: true}}, Timing: Timing{ClockError: 305 * time.Millisecond, Settle: 5 * time.Second}}
		}, "limits"},
		{"clocks just good enough for what slides", func(p *Policy) {
			*p = Policy{Limits: []Limit{{Permits: 1, Window: 61 * time.Second, Sliding: true}}, Timing: Timing{ClockError: 304 * time.Millisecond, Settle: 5 * time.Second}}
		}, ""},
		{"calls too long for what slides, of keys", func(p *Policy) {
			*p = Policy{Limits: []Limit{{Permits: 1, Window: 2 * time.Second}}, Keys: Keys{Limits: []Limit{{Permits: 1, Window: 61 * time.Second, Sliding: true}}}, Timing: Timing{Guard: 510 * time.Millisecond}}
		}, "keys.limits"},
		{"shape sliding beside an hour that slides", func(p *Policy) {
			*p = Policy{Limits: []Limit{{Permits: 80, Window: time.Second}, {Permits: 1, Window: time.Hour, Sliding: true}}, Release: Release{Shape: ShapeSliding}}
		}, ""},
		{"no zone", func(p *Policy) { p.Zone = "Europe/Nowhere" }, "zone"},
		{"a zone that depends on the host", func(p *Policy) { p.Zone = "Local" }, "zone"},
		{"longest of all", limits(Limit{Permits: 1, Window: huge}), "limits[0].window"},
		{"window of no whole milliseconds", limits(Limit{Permits: 1, Window: time.Second + 1}), "limits[0].window"},
		{"no window", limits(Limit{Permits: 1, Window: 0}), "limits[0].window"},
		{"mode", func(p *Policy) { p.Mode = "Enforce" }, "mode"},
		{"outage rule", func(p *Policy) { p.Outage = "wait" }, "outage"},
		{"pacing of a later version", func(p *Policy) { p.Pacing = "waltz" }, "pacing"},
		{"pacing", func(p *Policy) { p.Pacing = "slow" }, "pacing"},
		{"sliding", func(p *Policy) { p.Shape, p.Guard, p.Pacing = ShapeSliding, 0, PacingOff }, ""},
		{"sliding and an hour", func(p *Policy) {
			p.Shape, p.Guard, p.Pacing, p.Next, p.Limits = ShapeSliding, 0, PacingOff, nil, []Limit{{Permits: 100, Window: time.Second}, {Permits: 5000, Window: time.Hour}}
		}, "shape"},
		{"sliding and a minute", func(p *Policy) {
			p.Shape, p.Guard, p.Pacing, p.Next, p.Limits = ShapeSliding, 0, PacingOff, nil, []Limit{{Permits: 100, Window: time.Second}, {Permits: 5000, Window: time.Minute}}
		}, ""},
		{"bucket and an hour", func(p *Policy) {
			p.Shape, p.Burst, p.Guard, p.Pacing, p.Next, p.Limits = ShapeBucket, 1, 0, PacingOff, nil, []Limit{{Permits: 100, Window: time.Second}, {Permits: 5000, Window: time.Hour}}
		}, ""},
		{"bucket", func(p *Policy) {
			p.Shape, p.Burst, p.WarmUp, p.Guard, p.Pacing = ShapeBucket, 1, time.Minute, 0, PacingOff
		}, ""},
		{"bucket larger than a limit", func(p *Policy) { p.Shape, p.Burst, p.Guard, p.Pacing = ShapeBucket, MaxPermits, 0, PacingOff }, "burst"},
		{"no lending", func(p *Policy) { p.Lend = lendOff }, ""},
		{"lending of an earlier version", func(p *Policy) { p.Lend = "newcomers" }, "lend"},
		{"lending of a later version", func(p *Policy) { p.Lend = "everything" }, "lend"},
		{"kept for critical calls", func(p *Policy) { p.Pacing, p.Critical = PacingOff, 90 }, ""},
		{"too much kept for critical calls", func(p *Policy) { p.Pacing, p.Critical = PacingOff, 91 }, "classes.critical"},
		{"kept below 0", func(p *Policy) { p.Critical = -1 }, "classes.critical"},
		{"kept under pacing", func(p *Policy) { p.Pacing, p.Critical = PacingEven, 10 }, "classes.critical"},
		{"kept under a shape", func(p *Policy) { p.Shape, p.Guard, p.Pacing, p.Critical = ShapeBucket, 0, PacingOff, 10 }, "classes.critical"},
		{"shape of a later version", func(p *Policy) { p.Shape = "torus" }, "shape"},
		{"burst of no bucket", func(p *Policy) { p.Shape, p.Burst, p.Guard, p.Pacing = ShapeSliding, 5, 0, PacingOff }, "burst"},
		{"burst of fixed windows", func(p *Policy) { p.Burst = 5 }, "burst"},
		{"burst below 0", func(p *Policy) { p.Shape, p.Burst, p.Guard, p.Pacing = ShapeBucket, -1, 0, PacingOff }, "burst"},
		{"burst too large", func(p *Policy) { p.Shape, p.Burst, p.Guard, p.Pacing = ShapeBucket, MaxPermits+1, 0, PacingOff }, "burst"},
		{"warm-up too short", func(p *Policy) { p.WarmUp = minWarmUp - 1 }, "warm_up"},
		{"warm-up too long", func(p *Policy) { p.WarmUp = maxWarmUp + 1 }, "warm_up"},
		{"warm-up of fixed windows", func(p *Policy) { p.WarmUp = minWarmUp }, ""},
		{"sliding and even pacing", func(p *Policy) { p.Shape, p.Pacing, p.Guard = ShapeSliding, PacingEven, 0 }, "pacing"},
		{"sliding and a guard", func(p *Policy) { p.Shape, p.Guard, p.Pacing = ShapeSliding, 6*time.Millisecond, PacingOff }, ""},
		{"sliding and a guard of less than two slots", func(p *Policy) { p.Shape, p.Guard, p.Pacing = ShapeSliding, 6*time.Millisecond-1, PacingOff }, "guard"},
		{"bucket and a guard in which the burst accrues", func(p *Policy) {
			p.Limits, p.Next = []Limit{{Permits: 100, Window: time.Second}}, nil
			p.Shape, p.Burst, p.Guard, p.Pacing = ShapeBucket, 5, 40*time.Millisecond+1, PacingOff
		}, "guard"},
		{"bucket and a guard just below", func(p *Policy) {
			p.Limits, p.Next = []Limit{{Permits: 100, Window: time.Second}}, nil
			p.Shape, p.Burst, p.Guard, p.Pacing = ShapeBucket, 5, 40*time.Millisecond, PacingOff
		}, ""},
		{"settle too short", func(p *Policy) { p.Settle, p.Freshness = minSettle-1, minFreshness }, "settle"},
		{"settle too long", func(p *Policy) { p.Settle = MaxSettle + 1 }, "settle"},
		{"settle beyond all", func(p *Policy) { p.Settle = huge }, "settle"},
		{"settle below 0", func(p *Policy) { p.Settle = -time.Second }, "settle"},
		{"settle no more than freshness", func(p *Policy) { p.Freshness = p.Settle }, "settle"},
		{"freshness below 0", func(p *Policy) { p.Freshness = -1 }, "freshness"},
		{"freshness beyond all", func(p *Policy) { p.Freshness = huge }, "freshness"},
		{"clock error below 0", func(p *Policy) { p.ClockError = -1 }, "clock_error"},
		{"clock error beyond all", func(p *Policy) { p.ClockError = huge }, "clock_error"},
		{"clock error and settle beyond all", func(p *Policy) { p.Settle, p.Freshness, p.ClockError = huge, 0, huge }, "settle clock_error"},
		{"settle too short for any freshness", func(p *Policy) { p.Settle, p.Freshness = time.Millisecond, 0 }, "settle"},
		{"settle and freshness too short", func(p *Policy) { p.Settle, p.Freshness = time.Millisecond, time.Millisecond }, "settle freshness"},
		{"guard below 0", func(p *Policy) { p.Guard = -1 }, "guard"},
		{"guard of half the shortest window, announced", func(p *Policy) { p.Guard = 750 * time.Millisecond }, "guard"},
		{"guard just below", func(p *Policy) { p.Guard = 750*time.Millisecond - 1 }, ""},
		{"guard whose double overflows", func(p *Policy) { p.Guard = 1 << 62 }, "guard"},
		{"from before 1970", func(p *Policy) { p.From = time.Unix(-1, 0) }, "from"},
		{"from after 2199", func(p *Policy) { p.From, p.Next = latest, nil }, "from"},
		{"time of the year 9999", func(p *Policy) { p.Time = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }, "time"},
		{"announced change without a time", func(p *Policy) { p.Next[0].From = time.Time{} }, "next[0].from"},
		{"announced change at from", func(p *Policy) { p.Next[0].From = p.From }, "next[0].from"},
		{"announced changes at one time", func(p *Policy) { p.Next = append(p.Next, p.Next[0]) }, "next[1].from"},
		{"announced change without limits", func(p *Policy) { p.Next[0].Limits = nil }, "next[0].limits"},
		{"announced change of bad limits", func(p *Policy) { p.Next[0].Limits[0].Permits = -1 }, "next[0].limits[0].permits"},
		{"too many announced changes", func(p *Policy) {
			for n := range maxChanges {
				p.Next = append(p.Next, LimitChange{p.Next[0].From.Add(time.Duration(n+1) * time.Hour), p.Limits})
			}
		}, "next"},
		{"greatest step below 1", func(p *Policy) { p.MaxStep = 0.5 }, "max_step"},
		{"greatest step below 0", func(p *Policy) { p.MaxStep = -10 }, "max_step"},
		{"greatest step that is no number", func(p *Policy) { p.MaxStep = math.NaN() }, "max_step"},
		{"greatest step beyond all", func(p *Policy) { p.MaxStep = math.Inf(1) }, "max_step"},
		{"greatest step of 1", func(p *Policy) { p.MaxStep = 1 }, ""},
		{"too many features", func(p *Policy) { p.Requires = slices.Repeat([]string{"x"}, maxRequires+1) }, "requires"},
		{"a feature without a name", func(p *Policy) { p.Requires = []string{"x", ""} }, "requires[1]"},
		{"a feature too long", func(p *Policy) { p.Requires[0] = strings.Repeat("x", maxNameBytes+1) }, "requires[0]"},
		{"author too long", func(p *Policy) { p.Author = strings.Repeat("x", maxAuthorBytes+1) }, "author"},
		{"reason too long", func(p *Policy) { p.Reason = strings.Repeat("x", maxReasonBytes+1) }, "reason"},
		{"reason that is no text", func(p *Policy) { p.Reason = "\xff" }, "reason"},
		{"several", func(p *Policy) { p.Mode, p.Guard, p.Author = "x", -1, "\xff" }, "mode guard author"},
	} {
		p := fullPolicy()
		test.change(&p)
		checkFields(t, test.name, p.Validate(), test.fields)
	}
}

// checkFields holds that err names exactly the fields, in order, each in one
// line.
func checkFields(t *testing.T, name string, err error, want string) {
	t.Helper()
	var got []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			var field *FieldError
			if !errors.As(e, &field) || strings.Contains(e.Error(), "\n") {
				t.Errorf("%s: %q is no *FieldError of one line", name, e)
				continue
			}
			got = append(got, field.Field)
		}
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%s: fields %q, want %q: %v", name, got, want, err)
	}
}

func TestWithDefaults(t *testing.T) {
	t.Parallel()
	p := Policy{Limits: []Limit{{Permits: 2, Window: 2 * time.Second}, {Permits: 1, Window: time.Second}}, Next: []LimitChange{{newYear, []Limit{{Permits: 4, Window: 4 * time.Second}, {Permits: 3, Window: 3 * time.Second}}}}}
	before := p.Clone()
	got := p.WithDefaults()
	if !reflect.DeepEqual(p, before) {
		t.Errorf("the receiver became %+v", p)
	}
	want := Policy{
		Limits: []Limit{{Permits: 1, Window: time.Second}, {Permits: 2, Window: 2 * time.Second}}, Division: Division{Lend: lendOn}, Mode: ModeEnforce,
		Timing: Timing{Settle: DefaultSettle, Freshness: DefaultFreshness, ClockError: DefaultClockError}, Outage: OutageHold, Release: Release{Pacing: PacingOff, Shape: ShapeFixed},
		Throttling: Throttling{Backoff: BackoffFleet, BackoffMax: time.Minute}, MaxStep: 10,
		Next: []LimitChange{{newYear, []Limit{{Permits: 3, Window: 3 * time.Second}, {Permits: 4, Window: 4 * time.Second}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if again := got.WithDefaults(); !reflect.DeepEqual(again, got) {
		t.Errorf("the second time: %+v", again)
	}
}

func TestClone(t *testing.T) {
	t.Parallel()
	p := fullPolicy()
	c := p.Clone()
	c.Limits[0].Permits++
	c.Next[0].From = time.Time{}
	c.Next[0].Limits[0].Permits++
	c.Requires[0] = "x"
	if !reflect.DeepEqual(p, fullPolicy()) {
		t.Errorf("a change of the clone reached the original: %+v", p)
	}
}

func TestSupported(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy Policy
		want   string
	}{
		{Policy{}, ""},
		{Policy{Division: Division{Lend: lendOn}, Mode: ModePause, Outage: OutageStop, Release: Release{Pacing: PacingOff}}, ""},
		{Policy{Requires: []string{"levels", "x"}}, "levels, x"},
		{Policy{Ignored: []string{"adaptive", "weights"}}, ""},
		{Policy{Ignored: []string{"share weighted"}}, "share weighted"},
		{Policy{Release: Release{Pacing: "waltz", Shape: "torus"}}, "pacing waltz, shape torus"},
		{Policy{Release: Release{Shape: ShapeBucket}}, ""},
		{Policy{Mode: "dry", Outage: "ask"}, "mode dry, outage ask"},
	} {
		if got := strings.Join(test.policy.Unsupported(), ", "); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.policy, got, test.want)
		}
	}
}

// inFlight is a policy of calls in flight, changed.
func inFlight(change func(*Policy)) func(*Policy) {
	return func(p *Policy) {
		*p = Policy{Limits: []Limit{{Permits: 200, Window: 10 * time.Minute, InFlight: true}}}
		change(p)
	}
}

func TestValidateProvider(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "payments/charge", "a/b/c", "Zahlung/Auslösung", "a b", "...", "a%2Fb", strings.Repeat("x", maxProviderBytes)} {
		if err := ValidateProvider(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", " a", "a ", "a\nb", "a\x00", "a\u200bb", "a\u00a0b", "\xff",
		strings.Repeat("x", maxProviderBytes+1), strings.Repeat("é", 1<<20),
	} {
		err := ValidateProvider(name)
		if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 500 {
			t.Errorf("%.40q: %.600v", name, err)
		}
	}
}

// A bucket never holds more than its limit's permits: a larger burst was cut off
// without a word.
func TestABurstLargerThanALimitIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits string
		burst  int64
		err    string
	}{
		{"1/s", 1, ""},
		{"5/5s", 5, ""},
		{"1/s", 5, "burst 5: must be at most 1, the permits of limit 1/s; 5/5s is the same rate, with room for it"},
		{"2/s", 5, "burst 5: must be at most 2, the permits of limit 2/s; 6/3s is the same rate, with room for it"},
		{"10/s,100/1m", 50, "burst 50: must be at most 10, the permits of limit 10/s; 50/5s is the same rate, with room for it"},
		{"10/1m", 50, "burst 50: must be at most 10, the permits of limit 10/1m; lower the burst"},
	} {
		limits, err := ParseLimits(c.limits)
		if err != nil {
			t.Fatal(err)
		}
		err = Policy{Limits: limits, Release: Release{Shape: ShapeBucket, Burst: c.burst}}.Validate()
		if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s with burst %d: %v, want %q", c.limits, c.burst, err, c.err)
		}
	}
}
