package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

var transcript = flag.String("transcript", "", "write what TestAnOperatorsNight saw to this file")

// TestAnOperatorsNight is a night on call, with a fleet that lives: cut a limit to
// half and know when all obey, schedule midnight, roll back, find the instance
// whose clock is off, find who changed what. -transcript writes what it saw.
func TestAnOperatorsNight(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	cluster, client := etcdtest.New(t, embedded.Options{})
	b := newBench(t, cluster)
	b.env["QUOTIENT_PREFIX"] = nightPrefix
	b.prefix = nightPrefix
	var told strings.Builder
	say := func(line string) { fmt.Fprintf(&told, "# %s\n", line) }
	do := func(code int, args ...string) string {
		t.Helper()
		stdout, stderr := b.want(code, args...)
		fmt.Fprintf(&told, "$ quota-admin %s\n%s%s\n", spell(args), stdout, stderr)
		return stdout + stderr
	}
	contains := func(text string, wanted ...string) {
		t.Helper()
		for _, w := range wanted {
			if !strings.Contains(text, w) {
				t.Errorf("lacks %q:\n%s", w, text)
			}
		}
	}
	const p = "payments/charge"
	b.want(exitDone, "set", p, "300000/s", "--reason", "contract")
	limiters := b.join(cluster, p, 5)
	for _, l := range limiters {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	say("22:40. The provider asks for half the traffic. A typing error first.")
	contains(do(exitRefused, "set", p, "15000/s", "--reason", "provider asks for half"), "20 times less", "--force")
	contains(do(exitDone, "set", p, "150000/s", "--reason", "provider asks for half", "--wait"), "300000/s -> 150000/s", "applied by 5 of 5 instances")
	say("They want it back at midnight: on every instance in the same window.")
	contains(do(exitDone, "set", p, "300000/s", "--at", "2149-12-24T00:00:00Z", "--reason", "back to normal at midnight"), "the same on every instance")
	contains(do(exitDone, "get", p), "Next:          300000/s from 2149-12-24T00:00:00Z")
	say("23:10. It was a false alarm: back to the contract now.")
	b.env["QUOTIENT_AUTHOR"] = "bob@host"
	revisions := changesOf(t, b, p)
	contains(do(exitDone, "rollback", p, fmt.Sprint(revisions[0]), "--reason", "false alarm", "--wait"), "150000/s -> 300000/s", "no longer announced", "applied by 5 of 5 instances")
	say("23:30. The provider sees bursts at second edges. Whose clock is off?")
	// Its report stands in for an instance on a host without NTP.
	b.put(client, "providers/payments%2Fcharge/instances/worker-9.skewed.1", protocol.Instance{Name: "worker-9", Host: "node-7"})
	b.put(client, "reports/payments%2Fcharge/worker-9.skewed.1", protocol.Report{Schema: 1, Name: "worker-9", State: quota.StateActive,
		PolicyRevision: changesOf(t, b, p)[3], ClockError: "1.83s", ProofAge: "120ms", Time: time.Now(),
		Problem: "the clock's error of 1.83s exceeds the policy's bound of 50ms"})
	contains(do(exitDone, "top", p, "--count", "1"), "1.83s", "instance worker-9.skewed.1: it says: the clock's error of 1.83s exceeds")
	say("08:00. Who changed what?")
	contains(do(exitDone, "history", p), "ann@host", "bob@host", "false alarm", "provider asks for half")
	revisions = changesOf(t, b, p)
	contains(do(exitDone, "history", p, "--diff", fmt.Sprint(revisions[2]), fmt.Sprint(revisions[3])), "150000/s -> 300000/s")
	if *transcript != "" {
		if err := os.WriteFile(*transcript, []byte(told.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const nightPrefix = "/quotient/v1/"

// changesOf returns the revisions of a policy's changes, oldest first.
func changesOf(t *testing.T, b *bench, provider string) (all []int64) {
	t.Helper()
	stdout, _ := b.want(exitDone, "history", provider, "-o", "json")
	var h historyJSON
	if err := json.Unmarshal([]byte(stdout), &h); err != nil {
		t.Fatal(err)
	}
	for _, c := range h.Changes {
		all = append([]int64{c.Revision}, all...)
	}
	return all
}
