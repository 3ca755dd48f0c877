package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// The whole command against an etcd that ran before, at a limit lower than the
// number of instances: it holds, nothing is wasted, standard output is nothing
// but the report, a page is beside it, and no policy stays behind.
func TestEndToEnd(t *testing.T) {
	cluster, client := etcdtest.New(t, etcdtest.Options{})
	var stdout, stderr bytes.Buffer
	page := filepath.Join(t.TempDir(), "page.html")
	code := loadgen(context.Background(), []string{
		"--endpoints", strings.Join(cluster.Endpoints(), ","), "--instances", "12", "--limit", "5/s",
		"--settle", "1s", "--duration", "3s", "--json", "-", "--html", page,
	}, noEnv, &stdout, &stderr)
	var report load.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
	}
	s := report.Summary
	if code != exitHeld || report.Verdict != load.Held || s.Windows != 3 || s.OverLimitWindows != 0 || s.MaxOverRatio > 1 {
		t.Errorf("exit %d, %q, %+v\n%s", code, report.Verdict, s, stderr.String())
	}
	total := int64(0)
	for _, w := range report.Windows {
		total += w.Issued
	}
	if total == 0 || total != s.IssuedTotal {
		t.Errorf("%d permits in the windows, %d in all", total, s.IssuedTotal)
	}
	if !strings.Contains(stderr.String(), "HELD") {
		t.Errorf("no verdict in %s", stderr.String())
	}
	if w := report.Within; w == nil || report.Began.IsZero() || len(w.Mean) != 100 {
		t.Errorf("%v, %+v", report.Began, report.Within)
	}
	shown, err := os.ReadFile(page)
	for _, want := range []string{"12 instances share 5/s", ">HELD: ", "Issued and limit, per second", "Shares, stacked by instance"} {
		if err != nil || !strings.Contains(string(shown), want) {
			t.Errorf("%v: no %q on the page", err, want)
		}
	}
	got, err := client.Get(context.Background(), "/quotient/v1/providers/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		t.Errorf("left behind: %s", kv.Key)
	}
}

// An interrupt ends the run early, with a verdict on what was seen: here, before
// anything was.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cluster, _ := etcdtest.New(t, etcdtest.Options{})
	var stdout bytes.Buffer
	stderr := &cancelOn{text: "settling: 0 of 3", cancel: cancel}
	code := loadgen(ctx, []string{"--endpoints", cluster.Endpoints()[0], "--instances", "3", "--settle", "20s"}, noEnv, &stdout, stderr)
	if code != exitCannot || !strings.Contains(stdout.String(), "UNKNOWN: no whole window") {
		t.Errorf("exit %d\n%s%s", code, stdout.String(), stderr.String())
	}
}

// cancelOn calls cancel once text is written to it.
type cancelOn struct {
	bytes.Buffer
	text   string
	cancel func()
}

func (c *cancelOn) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

func TestEtcdOutOfReach(t *testing.T) {
	var stderr bytes.Buffer
	code := loadgen(context.Background(), []string{"--endpoints", "127.0.0.1:1", "--command-timeout", "200ms", "--quiet"}, noEnv, &stderr, &stderr)
	if code != exitCannot || strings.Count(stderr.String(), "loadgen: ") != 1 || strings.Contains(stderr.String(), "{") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
}

func TestReportFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report.json")
	out, text, done, err := outputs(&config{json: name}, os.Stdout, os.Stderr)
	if err != nil || text != os.Stdout {
		t.Fatal(err)
	}
	fmt.Fprint(out, "{}")
	if err := done(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); string(b) != "{}" {
		t.Errorf("%q, %v", b, err)
	}
}

// Three limiters that each believe they are alone issue three times the limit.
// Their own counters see nothing wrong; the generator's counts must.
func TestAFleetThatDoesNotShareIsCaught(t *testing.T) {
	limits := []quota.Limit{{Permits: 50, Window: quota.MinWindow}}
	s := &shared{window: int64(quota.MinWindow), cell: int64(quota.MinWindow), maxWait: 20 * time.Millisecond,
		room: memory, use: func(int64, load.Request) {}, demand: load.Demand{Ratio: 1.5, Instances: 3}}
	s.limits.Store(&limits)
	g := newGenerator(s)
	for i := range 3 {
		l, err := consumer.Open(context.Background(), consumer.Fixed(quota.Policy{Limits: limits}), "p", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		g.add(l, load.NewProcess(load.Steady, 1, i, 3), 1.0/3, new(atomic.Bool))
	}
	start := quota.WindowAt(quota.MinWindow, time.Now().UnixNano()).End()
	end := start + 5*s.window
	s.stop.Store(end)
	g.run()
	answered(t, g)
	windows, summary, verdict := load.Judge(load.Run{
		Counts: g.tally.Counts(), Fleet: 3, Active: start, Start: start, End: end,
		Timeline: load.Timeline{Settle: quota.DefaultSettle, Changes: []load.Change{{Limits: limits}}},
	})
	if verdict != load.NotHeld || summary.OverLimitWindows == 0 || summary.MaxOverRatio <= 1 {
		t.Errorf("%q, %+v\n%+v", verdict, summary, windows)
	}
}

// What the generator counts is what the limiters issued.
func TestCountsAreComplete(t *testing.T) {
	limits := []quota.Limit{{Permits: 1000, Window: quota.MinWindow}}
	s := &shared{window: int64(quota.MinWindow), cell: int64(quota.MinWindow), maxWait: quota.MinWindow, room: memory, use: func(int64, load.Request) {}, demand: load.Demand{Ratio: 2, Instances: 1}}
	s.limits.Store(&limits)
	s.stop.Store(time.Now().Add(500 * time.Millisecond).UnixNano())
	g := newGenerator(s)
	l, err := consumer.Open(context.Background(), consumer.Fixed(quota.Policy{Limits: limits}), "p", consumer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g.add(l, load.NewProcess(load.Poisson, 1, 0, 1), 1, new(atomic.Bool))
	g.run()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	answered(t, g)
	var issued, offered int64
	for _, c := range g.tally.Counts() {
		issued += c.Issued
		offered += c.Offered
	}
	if want := l.Status().Issued; issued != want || issued != g.issued.Load() {
		t.Errorf("counted %d and %d, the limiter issued %d", issued, g.issued.Load(), want)
	}
	if offered < issued {
		t.Errorf("%d calls for %d permits", offered, issued)
	}
}

// answered returns when no call of the generator waits any more.
func answered(t *testing.T, g *generator) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	late := time.After(time.Minute)
	for g.waiting.Load() > 0 {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("%d calls have no answer", g.waiting.Load())
		}
	}
}
