package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestAMisspeltProviderIsNotCreated: a typing error must not leave the provider
// that was meant as it is.
func TestAMisspeltProviderIsNotCreated(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "payments/charge", "100/s") // the first needs no flag
	for _, typo := range []string{"payment/charge", "payments/chagre", "Payments/charge"} {
		_, stderr := b.want(exitRefused, "set", typo, "50/s")
		if !strings.Contains(stderr, "did you mean payments/charge?") || !strings.Contains(stderr, "--create") {
			t.Errorf("%s: %s", typo, stderr)
		}
		if _, stderr := b.want(exitNotFound, "get", typo); !strings.Contains(stderr, "did you mean payments/charge?") {
			t.Errorf("get %s: %s", typo, stderr)
		}
	}
	b.want(exitDone, "set", "payments/refund", "50/s")
	b.want(exitDone, "set", "payment/charge", "50/s", "--create")
	b.want(exitDone, "set", "payments/charg", "50/s", "--if-revision", "0")
	// Names that are numbered, or very short, are no typing errors of each other.
	for _, name := range []string{"worker-1", "worker-2", "a", "b"} {
		b.want(exitDone, "set", name, "50/s")
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"charge", "chagre", 2}, {"ü", "u", 1}, {"same", "same", 0}} {
		if x, y := distance(c.a, c.b), distance(c.b, c.a); x != c.want || y != c.want {
			t.Errorf("%q and %q: %d and %d, want %d", c.a, c.b, x, y, c.want)
		}
	}
}

func TestANegativeLimitIsNoFlag(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	_, stderr := b.want(exitUsage, "set", "p", "-5/s")
	if !strings.Contains(stderr, "limits -5/s: a limit cannot be negative") {
		t.Error(stderr)
	}
}

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
