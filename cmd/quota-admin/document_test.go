package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
	const most = 64
	if _, stderr := b.want(exitFailed, "apply", "-f", write(most+1, 10)); !strings.Contains(stderr, "65 policies to change: one transaction of etcd takes 64 (128 operations") {
		t.Errorf("too many: %s", stderr)
	}
	stdout, _ := b.want(exitDone, "apply", "-f", write(most, 10), "-o", "json")
	var result applyJSON
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || len(result.Changes) != most {
		t.Fatal(err, stdout)
	}
	for _, c := range result.Changes {
		if c.New.Revision != result.Changes[0].New.Revision {
			t.Errorf("%s is at revision %d, others at %d", c.Provider, c.New.Revision, result.Changes[0].New.Revision)
		}
	}
	// Those that stay the same do not count.
	if stdout, _ = b.want(exitDone, "apply", "-f", write(most+1, 10)); !strings.Contains(stdout, "policies: 1 changed at revision") || !strings.Contains(stdout, "64 as they were") {
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
	b.want(exitRefused, "apply", "-f", bad)
	if stdout, _ = b.want(exitDone, "get", "p000"); !strings.Contains(stdout, "10/s") {
		t.Errorf("a document that was refused left %s", stdout)
	}
}
