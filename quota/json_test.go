package quota

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var newYear = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// fullPolicy has every field set, to other than the default.
func fullPolicy() Policy {
	return Policy{
		Limits: []Limit{{Permits: 500, Window: 2 * time.Second}, {Permits: 10_000, Window: time.Minute}}, Division: Division{Lend: lendOff}, Mode: ModeShadow,
		Timing: Timing{Settle: 5 * time.Second, Freshness: 4 * time.Second, ClockError: 20 * time.Millisecond, Guard: 50 * time.Millisecond}, Outage: OutageStop, Release: Release{Pacing: PacingEven}, From: newYear,
		Next:       []LimitChange{{newYear.Add(time.Hour + time.Nanosecond), []Limit{{Permits: 7, Window: 1500 * time.Millisecond}}}},
		Throttling: Throttling{Backoff: BackoffInstance, BackoffMax: 2 * time.Minute},
		MaxStep:    2.5,
		Requires:   []string{"levels"}, Author: "ann@host", Reason: "campaign", Time: newYear.Add(-time.Minute),
	}
}

// The bytes are an agreement with every other version: a change here breaks it.
func TestJSONGolden(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		value any
		want  string
	}{
		{
			"defaults are written out", Policy{Limits: []Limit{{Permits: 300_000, Window: time.Second}}},
			`{"schema":1,"limits":[{"permits":300000,"window":"1s"}],"mode":"enforce","outage":"hold","pacing":"off","backoff":"fleet","settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s"}`,
		},
		{
			"every field", fullPolicy(),
			`{"schema":1,"limits":[{"permits":500,"window":"2s"},{"permits":10000,"window":"1m0s"}],"lend":"off","mode":"shadow","outage":"stop","pacing":"even","backoff":"instance","from":"2027-01-01T00:00:00Z","max_step":2.5,"requires":["levels"],"author":"ann@host","reason":"campaign","time":"2026-12-31T23:59:00Z","settle":"5s","freshness":"4s","clock_error":"20ms","guard":"50ms","backoff_max":"2m0s","next":[{"from":"2027-01-01T01:00:00.000000001Z","limits":[{"permits":7,"window":"1.5s"}]}]}`,
		},
		{
			"times are UTC", Policy{Limits: []Limit{{Permits: 1, Window: time.Second}}, From: newYear.In(time.FixedZone("", 3600))},
			`{"schema":1,"limits":[{"permits":1,"window":"1s"}],"mode":"enforce","outage":"hold","pacing":"off","backoff":"fleet","from":"2027-01-01T00:00:00Z","settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s"}`,
		},
		{
			"classes", Policy{Limits: []Limit{{Permits: 100, Window: time.Second}}, Release: Release{Critical: 10}},
			`{"schema":1,"limits":[{"permits":100,"window":"1s"}],"mode":"enforce","outage":"hold","pacing":"off","backoff":"fleet","settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s","classes":{"critical":10}}`,
		},
		{
			"phases, which earlier versions refuse", Policy{Limits: []Limit{{Permits: 9, Window: time.Hour, Phase: 17 * time.Minute}, {Permits: 10, Window: day, Phase: 12 * time.Hour}}},
			`{"schema":1,"limits":[{"permits":9,"window":"1h0m0s","phase":"17m0s"},{"permits":10,"window":"24h0m0s","phase":"12h0m0s"}],"mode":"enforce","outage":"hold","pacing":"off","backoff":"fleet","requires":["phases"],"settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s"}`,
		},
		{
			"what slides", Policy{Limits: []Limit{{Permits: 80, Window: time.Second}, {Permits: 9, Window: time.Hour, Sliding: true}}, Requires: []string{"levels"}},
			`{"schema":1,"limits":[{"permits":80,"window":"1s"},{"permits":9,"window":"1h0m0s","sliding":true}],"mode":"enforce","outage":"hold","pacing":"off","backoff":"fleet","requires":["levels","sliding budgets"],"settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s"}`,
		},
		{
			"calls in flight", Policy{Limits: []Limit{{Permits: 200, Window: 10 * time.Minute, InFlight: true}}},
			`{"schema":1,"limits":[{"permits":200,"window":"10m0s","in_flight":true}],"mode":"enforce","outage":"hold","pacing":"off","backoff":"fleet","requires":["calls in flight"],"settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s"}`,
		},
		{
			"a shape", Policy{Limits: []Limit{{Permits: 100, Window: time.Second}}, Release: Release{Shape: ShapeBucket, Burst: 20, WarmUp: time.Minute}, Requires: []string{"levels"}},
			`{"schema":1,"limits":[{"permits":100,"window":"1s"}],"mode":"enforce","outage":"hold","pacing":"off","shape":"bucket","burst":20,"backoff":"fleet","requires":["levels"],"settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s","warm_up":"1m0s"}`,
		},
	} {
		got, err := json.Marshal(test.value)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n got %s\nwant %s", test.name, err, got, test.want)
		}
	}
}

func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(fullPolicy())
	if err != nil {
		t.Fatal(err)
	}
	var p Policy
	if err := json.Unmarshal(b, &p); err != nil || !reflect.DeepEqual(p, fullPolicy()) {
		t.Errorf("got %+v, %v, want %+v", p, err, fullPolicy())
	}
}

func TestPolicyJSONReads(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want Policy
	}{
		// Versions that knew no back-off of fleets wrote no rule.
		{`{"schema":1}`, Policy{}},
		{`{"schema":1,"backoff":"fleet","backoff_max":"90s"}`,
			Policy{Throttling: Throttling{Backoff: BackoffFleet, BackoffMax: 90 * time.Second}}},
		{`{"schema":1,"unknown":{"a":[1]},"limits":[{"permits":5,"window":"1s","burst":3}]}`, Policy{Limits: []Limit{{Permits: 5, Window: time.Second}}}},
		{`{"schema":1,"limits":[{"permits":5,"window":"s"},{"permits":6,"window":"1m"},{"permits":7,"window":"250ms"}]}`,
			Policy{Limits: []Limit{{Permits: 7, Window: 250 * time.Millisecond}, {Permits: 5, Window: time.Second}, {Permits: 6, Window: time.Minute}}}},
		// Out of bounds, but well formed: Validate says so, not the decoder.
		{`{"schema":1,"limits":[{"permits":-5,"window":"1h"}],"settle":"-3s"}`,
			Policy{Limits: []Limit{{Permits: -5, Window: time.Hour}}, Timing: Timing{Settle: -3 * time.Second}}},
	} {
		got := Policy{Author: "what was there before is gone"}
		if err := json.Unmarshal([]byte(test.text), &got); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, %v, want %+v", test.text, got, err, test.want)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, says string }{
		{`{}`, "schema is missing"},
		{`null`, "schema is missing"},
		{`{"schema":2}`, "schema 2 is not the one this version knows, 1"},
		{`{"schema":0}`, "schema is missing"},
		// Another schema is named as such, whatever its fields look like.
		{`{"schema":2,"limits":"5/s","settle":{},"name":{}}`, "schema 2"},
		{`{"schema":"1"}`, "cannot unmarshal string"},
		{`{"schema":1.5}`, "cannot unmarshal number"},
		{`[]`, "cannot unmarshal array"},
		{`{"schema":1`, "unexpected end"},
		{`{"schema":1} {}`, "after top-level value"},
		{`{"schema":1,"limits":[{"permits":5.5,"window":"1s"}]}`, "number 5.5"},
		{`{"schema":1,"limits":[{"permits":1e3,"window":"1s"}]}`, "number 1e3"},
		{`{"schema":1,"limits":[{"permits":99999999999999999999,"window":"1s"}]}`, "number 99999999999999999999"},
		{`{"schema":1,"limits":[{"permits":5,"window":"y"}]}`, `"y" is no duration`},
		{`{"schema":1,"settle":3}`, "number"},
		{`{"schema":1,"settle":"3"}`, `"3" is no duration`},
		{`{"schema":1,"settle":"9999999h"}`, "is no duration"},
		{`{"schema":1,"settle":"` + strings.Repeat("x", 1000) + `"}`, `xxx..." is no duration`},
		{`{"schema":1,"from":"tomorrow"}`, "tomorrow"},
		{`{"schema":1,"reason":"` + strings.Repeat("x", MaxPolicyBytes) + `"}`, "more than the most, 262144"},
	} {
		var p Policy
		if err := json.Unmarshal([]byte(test.text), &p); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%.100s: %v, want %q", test.text, err, test.says)
		}
	}
}

// Whatever is valid must fit: else a policy could be written that nobody reads.
func TestLargestValidPolicyFits(t *testing.T) {
	t.Parallel()
	worst := func(n int) string { return strings.Repeat("\x01", n) } // six bytes each, escaped
	var limits []Limit
	for n := range maxLimits {
		limits = append(limits, Limit{Permits: MaxPermits, Window: MaxWindow - time.Duration(n+1)*time.Millisecond})
	}
	p := Policy{Limits: limits, From: newYear.Add(1), Time: newYear.Add(1), Author: worst(maxAuthorBytes), Reason: worst(maxReasonBytes)}
	for n := range maxChanges {
		p.Next = append(p.Next, LimitChange{newYear.Add(time.Hour*time.Duration(n+1) + 1), limits})
	}
	for range maxRequires {
		p.Requires = append(p.Requires, worst(maxNameBytes))
	}
	if err := p.Validate(); err != nil {
		t.Errorf("not the largest valid policy: %v", err)
	}
	b, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(b, new(Policy))
	}
	if err != nil {
		t.Errorf("the largest valid policy, %d bytes: %v", len(b), err)
	}
}

// A field that went with an earlier version is named, and is not written again.
func TestFieldsThatWent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fields            string
		want, unsupported []string
	}{
		{`"adaptive":{"floor_percent":20,"decrease_percent":30,"increase_percent":3,"every":"5s"}`, []string{"adaptive"}, nil},
		{`"adaptive":"on"`, []string{"adaptive"}, nil},
		{`"adaptive":null,"share":null,"weights":null`, nil, nil},
		{`"share":"equal"`, nil, nil},
		{`"share":"equal","weights":{"big":8}`, []string{"weights"}, nil},
		{`"share":"weighted","weights":{"big":8}`, []string{"share weighted", "weights"}, []string{"share weighted"}},
		{`"share":"demand"`, []string{"share demand"}, []string{"share demand"}},
		{`"lend":"newcomers"`, []string{"lend newcomers"}, nil},
		{`"lend":"on","weights":{"big":8}`, []string{"weights"}, nil},
		{`"reserve_percent":20`, []string{"reserve_percent"}, nil},
		{`"backoff_quorum":3`, []string{"backoff_quorum"}, nil},
		{`"share":7`, []string{"share 7"}, []string{"share 7"}},
	} {
		var p Policy
		if err := json.Unmarshal([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}],`+test.fields+`}`), &p); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Ignored, test.want) || !slices.Equal(p.Unsupported(), test.unsupported) || len(p.Limits) != 1 || p.WithDefaults().Lend != lendOn {
			t.Errorf("%s: %+v, unsupported: %q", test.fields, p, p.Unsupported())
		}
		b, err := json.Marshal(p)
		for _, name := range []string{"adaptive", "share", "weights", "lend", "reserve", "quorum"} {
			if err != nil || strings.Contains(string(b), name) {
				t.Errorf("%s is written as %s, %v", test.fields, b, err)
			}
		}
	}
}

func TestPolicyJSONRoundTripProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Limits: anyLimits(t),
			Timing: Timing{Settle: time.Duration(rapid.Int64().Draw(t, "settle")), Freshness: time.Duration(rapid.Int64().Draw(t, "freshness")), ClockError: time.Duration(rapid.Int64().Draw(t, "clock error")), Guard: time.Duration(rapid.Int64Min(0).Draw(t, "guard"))}, Requires: rapid.SampledFrom([][]string{nil, {"x"}, {"x", "y"}}).Draw(t, "requires"),
			Release:  Release{Shape: rapid.SampledFrom([]Shape{"", ShapeFixed, ShapeSliding, ShapeBucket, "no such"}).Draw(t, "shape"), Burst: rapid.Int64().Draw(t, "burst"), Critical: rapid.Int64().Draw(t, "critical"), WarmUp: time.Duration(rapid.Int64().Draw(t, "warm-up"))},
			Division: Division{Lend: rapid.SampledFrom([]string{"", lendOn, lendOff}).Draw(t, "lend")}, Reason: rapid.String().Draw(t, "reason"),
			From: time.Unix(rapid.Int64Range(0, 1e10).Draw(t, "from"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC(),
		}.WithDefaults()
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got Policy
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got.WithDefaults(), p) {
			t.Fatalf("got %+v, %v, want %+v\nfrom %s", got, err, p, b)
		}
	})
}

// settled holds that what was decoded and written once is then written the same
// for ever: two tools that pass a value on do not make a new one of it.
func settled(t *testing.T, text []byte, validate func(Policy) error) {
	var v, again Policy
	if json.Unmarshal(text, &v) != nil {
		return
	}
	_ = validate(v) // must return, quickly, whatever the value
	first, err := json.Marshal(v)
	if err != nil || validate(v) != nil {
		return // a year that RFC 3339 does not have, or a text that grows when escaped
	}
	if err := json.Unmarshal(first, &again); err != nil {
		t.Fatalf("%q was written as %s, which cannot be read: %v", text, first, err)
	}
	second, err := json.Marshal(again)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("%q: first %s, then %s, %v", text, first, second, err)
	}
	if err := validate(again); err != nil {
		t.Fatalf("%q: valid before it was written as %s: %v", text, first, err)
	}
}

func FuzzPolicyJSON(f *testing.F) {
	full, err := json.Marshal(fullPolicy())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}]}`))
	f.Add([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}],"settle":"1000h","clock_error":"1000h"}`))
	f.Add([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}],"from":"9999-12-31T23:59:59Z","next":[{"from":"0000-01-01T00:00:00Z","limits":[]}]}`))
	f.Add([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}],"shape":"bucket","burst":3,"warm_up":"30s","requires":["shapes"]}`))
	f.Add([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1s"}],"shape":"sliding","burst":-1,"warm_up":"-1s"}`))
	f.Add([]byte(`{"schema":1,"limits":[{"permits":5,"window":"1h","phase":"17m"},{"permits":5,"window":"24h","phase":"-1ns"}],"requires":["phases","x"]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		settled(t, text, func(p Policy) error {
			for _, wall := range []int64{-1 << 63, 0, newYear.UnixNano(), 1<<63 - 1} {
				p.LimitsAt(wall)
			}
			p.Unsupported()
			return p.Validate()
		})
	})
}

func ExamplePolicy() {
	limits, err := ParseLimits("500/2s,10000/1m")
	if err != nil {
		fmt.Println(err)
		return
	}
	p := Policy{Limits: limits, Timing: Timing{Settle: time.Second, Freshness: 990 * time.Millisecond}, Author: "ann@host"}
	fmt.Println(p.Validate())

	p.Settle, p.Freshness = 0, 0 // the defaults
	b, err := json.Marshal(p)
	fmt.Println(string(b), err)
	// Output:
	// settle 1s: too short: with freshness 990ms, clock_error 50ms and a longest window of 1m0s it must be at least 1.153s; raise settle, or lower freshness or clock_error
	// {"schema":1,"limits":[{"permits":500,"window":"2s"},{"permits":10000,"window":"1m0s"}],"mode":"enforce","outage":"hold","pacing":"off","backoff":"fleet","author":"ann@host","settle":"3s","freshness":"2.5s","clock_error":"50ms","guard":"0s"} <nil>
}
