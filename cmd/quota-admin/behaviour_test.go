package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
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
	for n := range 8 {
		all.Go(func() {
			for m := range 5 {
				code, stdout, stderr := b.call("set", "a", fmt.Sprintf("%d/s", 2+5*n+m), "--force", "-o", "json")
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
	if err := yaml.Unmarshal([]byte(stdout), &m); err != nil || m["go"] != v.Go {
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
