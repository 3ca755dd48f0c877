package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestListByPrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	for _, p := range []string{"payments/charge", "payments/refund", "mail"} {
		b.want(exitDone, "set", p, "5/s")
	}
	stdout, _ := b.want(exitDone, "list", "payments/", "-o", "json")
	var all struct{ Policies []storedJSON }
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all.Policies) != 2 {
		t.Errorf("%v: %s", err, stdout)
	}
	b.want(exitUsage, "list", "a", "b")

	b.want(exitDone, "set", "github", "15000/s", "--keys", "14/s,5000/h sliding")
	if stdout, _ = b.want(exitDone, "list", "github"); !strings.Contains(stdout, "15000/s   14/s,5000/h sliding") {
		t.Errorf("the limits of each key are missing:\n%s", stdout)
	}
}
