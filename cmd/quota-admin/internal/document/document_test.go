package document

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// TestDocumentsKnowEveryField: a field that is added to Policy must be taken by
// apply, unless it belongs to one writing.
func TestDocumentsKnowEveryField(t *testing.T) {
	p := quota.Policy{
		Limits: []quota.Limit{{Permits: 1, Window: time.Second}}, From: time.Unix(1, 0), Time: time.Unix(1, 0),
		Keys: quota.Keys{Limits: []quota.Limit{{Permits: 1, Window: time.Second}}},
		Next: []quota.LimitChange{{From: time.Unix(2, 0), Limits: []quota.Limit{{Permits: 1, Window: time.Second}}}},
	}
	count := 0
	for _, field := range reflect.VisibleFields(reflect.TypeFor[quota.Policy]()) {
		if field.Anonymous || field.Name == "Ignored" {
			continue // a group, and what is only read
		}
		count++
		switch f := reflect.ValueOf(&p).Elem().FieldByIndex(field.Index); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int64:
			f.SetInt(int64(time.Second))
		case reflect.Float64:
			f.SetFloat(2)
		case reflect.Slice:
			if f.Len() == 0 {
				f.Set(reflect.ValueOf([]string{"x"}))
			}
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]int64{"x": 2}))
		case reflect.Struct:
		default:
			t.Fatalf("set %s here", field.Name)
		}
	}
	fields := change.Fields(&p)
	known := append(slices.Collect(maps.Keys(change.Fields(&quota.Policy{}))), optional...)
	if n := len(fields) + len(change.OfOneWrite) + 1; n-1 < count { // less the schema; a guard is two fields
		t.Errorf("%d fields of JSON for %d of Policy", n-1, count)
	}
	for name := range fields {
		if !slices.Contains(known, name) {
			t.Errorf("apply does not know %s", name)
		}
	}
	for _, name := range optional {
		if fields[name] == nil && name != "from" && name != "next" {
			t.Errorf("apply knows %s, which no policy has", name)
		}
	}
}

// somePolicy draws a valid policy with whatever may be announced.
func somePolicy(t *rapid.T, now time.Time) quota.Policy {
	limits := func(label string) []quota.Limit {
		return rapid.SampledFrom([][]quota.Limit{
			{{Permits: 0, Window: time.Second}}, {{Permits: 300000, Window: time.Second}},
			{{Permits: 500, Window: 2 * time.Second}, {Permits: 10000, Window: time.Minute}}, {{Permits: 7, Window: 1500 * time.Millisecond}},
		}).Draw(t, label)
	}
	p := quota.Policy{
		Limits: limits("limits"), Zone: rapid.SampledFrom([]string{"", "Europe/Berlin"}).Draw(t, "zone"), Mode: rapid.SampledFrom([]quota.Mode{quota.ModeEnforce, quota.ModeShadow, quota.ModePause}).Draw(t, "mode"),
		Timing:   quota.Timing{Settle: rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 7*time.Second + time.Millisecond}).Draw(t, "settle"), Guard: rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond}).Draw(t, "guard")},
		Outage:   rapid.SampledFrom([]quota.Outage{quota.OutageHold, quota.OutageStop}).Draw(t, "outage"),
		MaxStep:  rapid.SampledFrom([]float64{0, 1, 2.5, 1e12}).Draw(t, "step"),
		Requires: rapid.SampledFrom([][]string{nil, {"12", "null", "a: b", "\u2028"}}).Draw(t, "requires"),
		Reason:   "x", Author: "y",
	}
	if rapid.Bool().Draw(t, "budgets") {
		p.Limits = append(slices.Clone(p.Limits), quota.Limit{Permits: 900, Window: 15 * time.Minute}, quota.Limit{Permits: 9, Window: 24 * time.Hour})
	}
	at := now.Add(time.Duration(rapid.IntRange(-300, 300).Draw(t, "first")) * time.Second).UTC()
	if rapid.Bool().Draw(t, "begins") {
		p.From = at
	}
	for range rapid.IntRange(0, 3).Draw(t, "announced") {
		at = at.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "then")) * time.Second)
		p.Next = append(p.Next, quota.LimitChange{From: at, Limits: limits("next")})
	}
	return p.WithDefaults()
}

// TestExportIsTheInputOfApply: what export writes, as YAML or JSON, apply reads
// as the policies that stand, so that there is nothing to change.
func TestExportIsTheInputOfApply(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_800_000_000, 0)
		names := []string{"a/b", "payments/charge", "true", "12", "ünï/cødé", "a: b", "- x"}
		want := map[string]Entry{}
		for _, name := range names {
			want[name] = Entry{Policy: somePolicy(rt, now)}
			if rapid.Bool().Draw(rt, "keys") && want[name].Policy.Guard == 0 {
				p := want[name].Policy
				p.Keys.Limits = []quota.Limit{{Permits: 80, Window: time.Second}}
				want[name] = Entry{p.WithDefaults(), map[string]*protocol.Override{
					"a: b/ü_\"": {Limits: []quota.Limit{{Permits: 1, Window: time.Minute}}}, "12": {Limits: []quota.Limit{{Permits: 0, Window: time.Second}}, Owners: new(rapid.Int64Range(0, 16).Draw(rt, "owners"))},
				}}
			}
		}
		for _, f := range []format.Output{format.YAML, format.JSON} {
			var text bytes.Buffer
			if err := f.Write(&text, Of(want, now)); err != nil {
				rt.Fatal(err)
			}
			entries, problems := Parse("export", text.Bytes())
			if problems != nil || len(entries) != len(names) {
				rt.Fatalf("%s: %q\n%s", f, problems, text.String())
			}
			for name, e := range entries {
				if next := change.Carry(want[name].Policy, e.Policy, now); !change.Same(want[name].Policy, next, now) || !reflect.DeepEqual(e.Overrides, want[name].Overrides) {
					rt.Fatalf("%s of %s: %+v\nfrom %+v\n%s", f, name, e, want[name], text.String())
				}
			}
		}
	})
}

// FuzzDocument feeds apply's parser: it must not panic, and what it takes is
// valid.
func FuzzDocument(f *testing.F) {
	for _, name := range []string{"policies.yaml", "bad.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"schema":1,"policies":{"a":{"limits":"5/s","next":[{"from":"2150-01-01T00:00:00Z","limits":"6/s"}],"requires":["x"]}}}`))
	f.Add([]byte("policies: {a: {limits: 5/s, max_step: .inf, requires: [[]]}}"))
	f.Add([]byte("policies:\n  ? [a]\n  : {<<: {limits: 5/s}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, problems := Parse("fuzz", text)
		if problems != nil {
			return
		}
		for name, e := range entries {
			if err := e.Policy.Validate(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := quota.ValidateProvider(name); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"policies: {}\nextra: 1":                                `unknown field "extra"; known are policies and schema`,
		"policies: {a: {limits: 5/s, guard: 5}}":                "a: guard: must be a text, such as \"20ms\" for a time, found: number",
		"policies: {a: {limits: 5/s, burst: 5/s}}":              "a: burst: must be a whole number, found: string",
		"policies: [a]":                                         "must be a list or fields, as export writes them, found: array",
		"policies:\n  a: {limits: 5/s}\n  a: {limits: 6/s}":     `key "a" already set`,
		"policies: {a: {limits: 5/s, settle: 5s, settle: 6s}}":  `key "settle" already set`,
		"schema: 2\npolicies: {}":                               "schema 2",
		"schema: 1":                                             "policies are missing",
		"policies: {a: }":                                       "the value is missing",
		"policies: {a: {limits: 5}}":                            "must be a text",
		"policies: {a: {limits: 5/s, author: x}}":               "unknown field",
		"policies: {a: {limits: 5/s, classes: {gold: 3}}}":      "classes: unknown field \"gold\"",
		"policies: {a: {limits: 5/s, classes: {critical: 91}}}": "classes.critical 91",
		"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]": "excessive aliasing",
		strings.Repeat("#", Most+1): "more than 8 MiB",
	} {
		if _, problems := Parse("f", []byte(text)); len(problems) == 0 || !strings.Contains(problems[0], want) || !strings.HasPrefix(problems[0], "f: ") {
			t.Errorf("%.60q: %q, want %q", text, problems, want)
		}
	}
}

// Limits by key are read and written as text, and what is wrong with them has their name.
func TestKeysInDocuments(t *testing.T) {
	parse := func(keys string) (quota.Policy, string) {
		all, problems := Parse("file", []byte("policies:\n  github:\n    limits: 100/s\n    keys: "+keys+"\n"))
		return all["github"].Policy, strings.Join(problems, "\n")
	}
	for keys, want := range map[string]string{
		"{limits: '80/s,1000/m', most: 7}": "80/s,1000/1m of 7 by 0",
		"{limits: 80/s}":                   "80/s of 100000 by 0",
		"{limits: 80/s, owners: 3}":        "80/s of 100000 by 3",
	} {
		p, problems := parse(keys)
		if got := quota.FormatLimits(p.Keys.Limits) + " of " + strconv.FormatInt(p.Keys.Most, 10) + fmt.Sprint(" by ", p.Keys.Owners); got != want || problems != "" {
			t.Errorf("%s: %s, %s", keys, got, problems)
		}
		if again, _ := yaml.Marshal(Fields(p)["keys"]); !strings.Contains(string(again), "limits: "+quota.FormatLimits(p.Keys.Limits)) {
			t.Errorf("%s is written as %s", keys, again)
		}
	}
	for keys, want := range map[string]string{
		"{most: 7}":                            "keys: must have limits, and may have most, owners and overrides: limits are missing",
		"{limits: 80/s, least: 7}":             "unknown field",
		"{limits: 80}":                         "must be a text",
		"{limits: 1/s, owners: many}":          "keys: owners: must be a whole number, found: string",
		"{limits: 1/s, most: 1.5}":             "keys: most: must be a whole number, found: number 1.5",
		"80/s":                                 "keys: must have limits, and may have most, owners and overrides",
		"{limits: 5000/25h}":                   "longer than a day",
		"":                                     "keys: the value is missing",
		"{limits: 1/s, overrides: {a: 5/25h}}": "the window 25h is longer than a day",
		"{limits: 1/s, overrides: {'': 5/s}}":  "keys: overrides: key \"\" is empty",
		"{limits: 1/s, overrides: {a: 5}}":     "must be a text",
		"{limits: 1/s, overrides: {a: 5/s owners=17}}": "keys: overrides: key \"a\": keys.owners 17",
		"{limits: 1/s, overrides: {a: 5/s owners=x}}":  "want a number, as in 400/s owners=3",
		"{limits: 1/s, overrides: {a: 5/s, a: 6/s}}":   "already set",
		"{limits: 1/s, owners: 17}":                    "keys.owners 17: must be from 0 to 16",
	} {
		if _, problems := parse(keys); !strings.Contains(problems, want) {
			t.Errorf("%s: %q, want %q", keys, problems, want)
		}
	}
}

// The parser reads the first of several YAML documents: what it would drop is refused.
func TestOneFileHasOneDocument(t *testing.T) {
	const one = "policies:\n  a:\n    limits: 10/s\n"
	for text, want := range map[string]string{
		one + "--- {x: 1}\n": "f: the file has 2 YAML documents: apply one file for each",
		one:                  "", "# head\n---\n" + one + "---\n# end\n...\n": "",
		one + "---\n" + one: "f: the file has 2 YAML documents: apply one file for each", one + "--- # next\r\n" + one + "---\nx: 1\n": "f: the file has 3 YAML documents: apply one file for each",
	} {
		_, problems := Parse("f", []byte(text))
		if got := strings.Join(problems, "\n"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
