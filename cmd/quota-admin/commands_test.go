package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// A change that is made while history --follow runs is a line of its own.
func TestHistoryFollows(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "payments/charge", "100/s")
	client := etcdtest.NewClient(t, server)
	operator, err := admin.New(client, admin.Options{Prefix: b.prefix})
	if err != nil {
		t.Fatal(err)
	}
	lines, written := io.Pipe()
	said, told := io.Pipe()
	a := &app{stdout: written, stderr: told, format: format.Table, etcd: &etcdflags.Flags{Prefix: b.prefix}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.follow(ctx, connection{operator, client}) }()
	if text, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.HasPrefix(text, "following") {
		t.Fatalf("%q, %v", text, err)
	}
	// The watch may begin after a change: until it does, there are more.
	changes, stop := context.WithCancel(t.Context())
	go func() {
		for n := 0; changes.Err() == nil; n++ {
			b.call("set", "payments/charge", []string{"200/s", "300/s"}[n%2], "--reason", "campaign")
		}
	}()
	text, err := bufio.NewReader(lines).ReadString('\n')
	stop()
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	for _, want := range []string{" payments/charge revision ", "00/s -> ", ", by ann@host: campaign\n"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%q, %v lacks %q", text, err, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitNotFound, "wait", "p")
	b.want(exitDone, "set", "p", "100/s", "--settle", "1s")
	b.want(exitDone, "wait", "p")
	if _, stderr := b.want(exitLate, "wait", "p", "--healthy", "--timeout", "1ms"); !strings.Contains(stderr, "no instance of p was running") {
		t.Error(stderr)
	}
	for _, l := range b.join(server, "p", 2) {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if stdout, _ := b.want(exitDone, "wait", "p", "--healthy", "--timeout", "5m"); !strings.Contains(stdout, "applied by 2 of 2 instances") {
		t.Error(stdout)
	}
}

// Healthy is who issues permits, or is paused, and says of no problem.
func TestWaitCountsTheHealthy(t *testing.T) {
	t.Parallel()
	report := func(state quota.State, problem string) protocol.InstanceStatus {
		return protocol.InstanceStatus{Report: &protocol.Report{State: state, Problem: problem, Revision: 7, PolicyRevision: 7, Time: time.Now()}}
	}
	f := &protocol.Fleet{Instances: []protocol.InstanceStatus{
		report(quota.StateActive, ""), report(quota.StatePaused, ""), report(quota.StateJoining, ""), report(quota.StateStale, ""), report(quota.StateActive, "clock"),
	}}
	for healthy, want := range map[bool]int{false: 5, true: 2} {
		w := waitJSON{Revision: 7, policy: 7, healthy: healthy}
		if w.count(f, time.Now()); w.Applied != want || w.Applied+len(w.Laggards) != 5 {
			t.Errorf("healthy %v: %+v", healthy, w)
		}
	}
}

// A shell is told the values of flags, and what stands in etcd.
func TestCompletionOfValues(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "20/s,500/h")
	b.want(exitDone, "set", "keyed", "20/s", "--keys", "5/s,70/h")
	b.want(exitDone, "keys", "set", "keyed", "installation-4711", "6/s", "--force")
	stdout, _ := b.want(exitDone, "get", "p", "-o", "yaml")
	_, rest, _ := strings.Cut(stdout, "\nrevision: ")
	revision, _, _ := strings.Cut(rest, "\n")
	for args, want := range map[string]string{
		"set p 5/s --outage ":      "hold\nstop\n:4\n",
		"top p --by ":              "instance\nclass\nkey\nlabel\n:4\n",
		"set p 5/s --if-revision ": revision + "\n:4\n",
		"budget p --limit ":        "500/h\n:4\n",
		"budget keyed --limit ":    "70/h\n:4\n",
		"budget keyed --key ":      "installation-4711\n:4\n",
		"budget p --keys-file ":    ":0\n",
		"list -o ":                 "table\nwide\njson\nyaml\n:4\n",
		"list --cacert ":           ":0\n",
		"list --user ":             ":4\n",
		"rollback p ":              revision + "\t20/s,500/h by ann@host\n:4\n",
		"history p --diff ":        revision + "\t20/s,500/h by ann@host\n:4\n",
		"explain p ":               ":4\n",
		"keys delete keyed ":       "installation-4711\n:4\n",
		"keys list keyed x":        ":4\n",
	} {
		if stdout, _ := b.want(exitDone, append([]string{"__complete"}, strings.Split(args, " ")...)...); stdout != want {
			t.Errorf("%s: %q, want %q", args, stdout, want)
		}
	}
}

// A limit by key of an hour is set as any other. No instance has a share of it.
func TestKeysOfAnHour(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "hourly", "20/s", "--keys", "5000/h")
	stdout, _ := b.want(exitDone, "keys", "set", "hourly", "x", "9000/h", "--dry-run")
	if stdout != "hourly: key x: those of each key -> 9000/h\n" {
		t.Errorf("%q", stdout)
	}
	b.want(exitDone, "keys", "set", "hourly", "x", "9000/h,7/s")
	if stdout, _ := b.want(exitDone, "keys", "list", "hourly"); !strings.Contains(stdout, "7/s,9000/h") {
		t.Errorf("%q", stdout)
	}
}
