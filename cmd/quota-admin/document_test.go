package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/change"
	"github.com/quotient-limiter/quotient/quota"
)

// TestDocumentsKnowEveryField: a field that is added to Policy must be taken by
// apply, unless it belongs to one writing.
func TestDocumentsKnowEveryField(t *testing.T) {
	p := quota.Policy{
		Limits: []quota.Limit{{Permits: 1, Window: time.Second}}, From: time.Unix(1, 0), Time: time.Unix(1, 0),
		Next: []quota.LimitChange{{From: time.Unix(2, 0), Limits: []quota.Limit{{Permits: 1, Window: time.Second}}}},
	}
	for i, v := 0, reflect.ValueOf(&p).Elem(); i < v.NumField(); i++ {
		switch f := v.Field(i); f.Kind() {
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
			t.Fatalf("set %s here", v.Type().Field(i).Name)
		}
	}
	fields := object(p)
	if len(fields) < reflect.TypeFor[quota.Policy]().NumField() {
		t.Errorf("%d fields of JSON for %d of Policy", len(fields), reflect.TypeFor[quota.Policy]().NumField())
	}
	for _, f := range fields {
		if !slices.Contains(notInDocuments, f.name) && !slices.Contains(knownFields(), f.name) {
			t.Errorf("apply does not know %s", f.name)
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
		Limits: limits("limits"), Mode: rapid.SampledFrom([]quota.Mode{quota.ModeEnforce, quota.ModeShadow, quota.ModePause}).Draw(t, "mode"),
		Settle:   rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 7*time.Second + time.Millisecond}).Draw(t, "settle"),
		Outage:   rapid.SampledFrom([]quota.Outage{quota.OutageHold, quota.OutageStop}).Draw(t, "outage"),
		Guard:    rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond}).Draw(t, "guard"),
		MaxStep:  rapid.SampledFrom([]float64{0, 1, 2.5, 1e12}).Draw(t, "step"),
		Requires: rapid.SampledFrom([][]string{nil, {"12", "null", "a: b", "\u2028"}}).Draw(t, "requires"),
		Weights:  rapid.SampledFrom([]map[string]int64{nil, {"big": 8, "true": 2}}).Draw(t, "weights"),
		Reason:   "x", Author: "y",
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
		policies := ordered{}
		want := map[string]quota.Policy{}
		for _, name := range names {
			p := somePolicy(rt, now)
			want[name] = p
			policies = append(policies, orderedField{name, exported(p, now)})
		}
		for _, f := range []format{formatYAML, formatJSON} {
			var text bytes.Buffer
			if err := f.write(&text, ordered{{"schema", 1}, {"policies", policies}}); err != nil {
				rt.Fatal(err)
			}
			entries, err := parseDocument("export", text.Bytes())
			if err != nil || len(entries) != len(names) {
				rt.Fatalf("%s: %v\n%s", f, err, text.String())
			}
			for _, e := range entries {
				if next := change.Carry(want[e.provider], e.policy, now); !change.Same(want[e.provider], next, now) {
					rt.Fatalf("%s of %s: %+v\nfrom %+v\n%s", f, e.provider, e.policy, want[e.provider], text.String())
				}
			}
		}
	})
}

func TestApplyIsOneTransaction(t *testing.T) {
	b := newBench(t, server)
	write := func(n int, permits int) string {
		var doc strings.Builder
		doc.WriteString("policies:\n")
		for i := range n {
			fmt.Fprintf(&doc, "  p%03d: {limits: %d/s}\n", i, permits)
		}
		file := filepath.Join(t.TempDir(), "doc.yaml")
		if err := os.WriteFile(file, []byte(doc.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const most = coordinator.MaxTogether
	if _, stderr := b.want(exitFailed, "apply", "-f", write(most+1, 10)); !strings.Contains(stderr, "changes 65 policies; one transaction of etcd takes 64 (128 operations") {
		t.Errorf("too many: %s", stderr)
	}
	stdout, _ := b.want(exitDone, "apply", "-f", write(most, 10), "-o", "json")
	var result applyJSON
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || len(result.Changes) != most {
		t.Fatal(err, stdout)
	}
	for _, c := range result.Changes {
		if c.Revision != result.Changes[0].Revision {
			t.Errorf("%s is at revision %d, others at %d", c.Provider, c.Revision, result.Changes[0].Revision)
		}
	}
	// Those that stay the same do not count.
	if stdout, _ = b.want(exitDone, "apply", "-f", write(most+1, 10)); !strings.Contains(stdout, "1 changed at revision") || !strings.Contains(stdout, "64 as they were") {
		t.Errorf("one more: %s", stdout)
	}
	// One that is wrong keeps all from being written.
	bad := write(3, 20)
	text, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, append(text, "  p004: {limits: 20000/s}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	b.want(exitFailed, "apply", "-f", bad)
	if stdout, _ = b.want(exitDone, "get", "p000"); !strings.Contains(stdout, "10/s") {
		t.Errorf("a document that was refused left %s", stdout)
	}
}

// FuzzDocument feeds apply's parser: it must not panic, and what it takes is
// valid.
func FuzzDocument(f *testing.F) {
	for _, name := range []string{"policies.yaml", "bad.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"schema":1,"policies":{"a":{"limits":"5/s","next":[{"from":"2150-01-01T00:00:00Z","limits":"6/s"}],"requires":["x"]}}}`))
	f.Add([]byte("policies: {a: {limits: 5/s, max_step: .inf, requires: [[]]}}"))
	f.Add([]byte("policies:\n  ? [a]\n  : {<<: {limits: 5/s}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parseDocument("fuzz", text)
		if err != nil {
			_ = classify(err)
			return
		}
		for _, e := range entries {
			if err := e.policy.Validate(); err != nil {
				t.Fatalf("%s: %v", e.provider, err)
			}
			if err := quota.ValidateProvider(e.provider); err != nil {
				t.Fatal(err)
			}
		}
	})
}
