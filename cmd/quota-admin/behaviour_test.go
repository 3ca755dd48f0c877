package main

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// TestNoLostUpdate lets many operators change one policy at once: every change
// that was reported as done must have been made on top of another one, so that
// no two started from the same revision.
func TestNoLostUpdate(t *testing.T) {
	b := newBench(t, server)
	b.want(exitDone, "set", "a", "1/s")
	var mu sync.Mutex
	var all sync.WaitGroup
	from := map[int64]int{}
	for range 8 {
		all.Go(func() {
			for range 5 {
				code, stdout, stderr := b.call("set", "a", "2/s", "-o", "json")
				if code == exitConflict {
					continue
				}
				var result struct{ Old struct{ Revision int64 } }
				if err := json.Unmarshal([]byte(stdout), &result); code != exitDone || err != nil {
					t.Errorf("exit %d, %v: %s", code, err, stderr)
					return
				}
				mu.Lock()
				from[result.Old.Revision]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for revision, n := range from {
		if n > 1 {
			t.Errorf("%d changes were made from revision %d", n, revision)
		}
	}
	stdout, _ := b.want(exitDone, "history", "a", "-o", "json")
	var h historyJSON
	if err := json.Unmarshal([]byte(stdout), &h); err != nil {
		t.Fatal(err)
	}
	if len(h.Changes) != len(from)+1 {
		t.Errorf("%d changes were reported as done, and history has %d", len(from)+1, len(h.Changes))
	}
}

func TestVersion(t *testing.T) {
	b := newBench(t, server)
	stdout, _ := b.want(exitDone, "version")
	if !strings.HasPrefix(stdout, "VERSION ") || !strings.Contains(stdout, "go1.") {
		t.Errorf("got %s", stdout)
	}
	stdout, _ = b.want(exitDone, "version", "-o", "json")
	var v buildInfo
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v != readBuildInfo() {
		t.Errorf("%v: %s", err, stdout)
	}
	stdout, _ = b.want(exitDone, "version", "-o", "yaml")
	var m map[string]any
	if err := yaml.Load([]byte(stdout), &m); err != nil || m["go"] != v.Go {
		t.Errorf("%v: %s", err, stdout)
	}
}

func TestCompletion(t *testing.T) {
	b := newBench(t, server)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if stdout, _ := b.want(exitDone, "completion", shell); !strings.Contains(stdout, "quota-admin") {
			t.Errorf("%s: %s", shell, stdout)
		}
	}
	b.want(exitDone, "set", "payments/charge", "5/s")
	b.want(exitDone, "set", "payments/refund", "5/s")
	b.want(exitDone, "set", "mail", "5/s")
	stdout, _ := b.want(exitDone, "__complete", "get", "pay")
	if want := "payments/charge\npayments/refund\n:4\n"; stdout != want {
		t.Errorf("got %q, want %q", stdout, want)
	}
	b.env["QUOTIENT_ENDPOINTS"] = closedPort(t)
	if stdout, _ = b.want(exitDone, "__complete", "get", "pay"); stdout != ":1\n" {
		t.Errorf("without etcd: got %q, want no names", stdout)
	}
}

// TestEscaping draws texts with anything in them: whatever the tool shows must
// print, and JSON and YAML must still hold the text that went in.
func TestEscaping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"\u009b31m", "\x7f", "\u202e", "\U000e0041", "\x1b]0;x\a", "\xff\xfe", "a\tb\nc", `"x"`, " x ", "", "é", "\u2028", "\ufeff", "12", "null", "on",
		})).Draw(t, "text")
		for name, shown := range map[string]string{"show": show(text), "clean": clean(text)} {
			if !printable(shown) {
				t.Fatalf("%s(%q) = %q, which does not print", name, text, shown)
			}
		}
		encoded, err := encodeJSON(map[string]any{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		if plain := strings.ReplaceAll(string(encoded), "\n", ""); !printable(plain) {
			t.Fatalf("JSON %q does not print", plain)
		}
		var back map[string]string
		if err := json.Unmarshal(encoded, &back); err != nil || back["text"] != jsonText(t, text) {
			t.Fatalf("JSON of %q: %v, back %q", text, err, back["text"])
		}
		y, err := yamlFromJSON(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if plain := strings.ReplaceAll(string(y), "\n", ""); !printable(plain) {
			t.Fatalf("YAML %q does not print", plain)
		}
		var fromYAML map[string]string
		if err := yaml.Load(y, &fromYAML); err != nil || fromYAML["text"] != back["text"] {
			t.Fatalf("YAML of %q: %v, back %q", text, err, fromYAML["text"])
		}
	})
}

// jsonText is text as encoding/json can carry it: bytes that are not UTF-8 are
// replaced.
func jsonText(t *rapid.T, text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	return back
}
