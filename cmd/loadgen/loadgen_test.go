package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// The whole command against an etcd that ran before, at a limit lower than the
// number of instances: it holds, nothing is wasted, standard output is nothing
// but the report, a page is beside it, and no policy stays behind.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	cluster, client := etcdtest.New(t, embedded.Options{})
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

// Where one instance makes all calls, another one soon, the others lend it theirs. The report tells
// what that cost etcd, and how soon loans came; without lending there is none.
func TestAHotInstanceBorrows(t *testing.T) {
	t.Parallel()
	for lend, flags := range map[string]string{"on": "--move 700ms", "off": "--lend off"} {
		for tries := 1; ; tries++ {
			var stdout, stderr bytes.Buffer
			code := loadgen(context.Background(), strings.Fields(flags+" --limit 100/s --instances 4 --hot 1 --max-wait 0 --settle 500ms --duration 3s --least-use 0 --json -"), noEnv, &stdout, &stderr)
			var report load.Report
			if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
				t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
			}
			s := report.Summary
			if code != exitHeld || s.Etcd == nil {
				t.Fatalf("lend %s: exit %d, %+v\n%s", lend, code, s.Etcd, stderr.String())
			}
			lent := s.FirstLoan != nil && s.FirstLoan.Windows > 0 && s.FirstLoan.P50 > 0 && s.Etcd.Keys["asks"] > 0 && s.Etcd.Keys["loans"] > 0
			none := s.FirstLoan == nil && s.Etcd.Keys["asks"] == 0 && s.Etcd.Keys["loans"] == 0
			if lend == "on" && !lent && tries < 5 { // on a busy machine no loan may come within a window
				continue
			}
			if lend == "on" && !lent || lend == "off" && !none {
				t.Errorf("lend %s: %+v, %+v", lend, s.Etcd, s.FirstLoan)
			}
			if want := "etcd had "; !strings.Contains(stderr.String(), want) || strings.Contains(stderr.String(), "first loan came after") != lent {
				t.Error(stderr.String())
			}
			break
		}
	}
}

// Of a limit per hour a window ends within the run. Its transactions are counted.
func TestAWindowThatEndsWithinTheRun(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := loadgen(context.Background(), strings.Fields("--limit 100/200ms,40/h --window-offset 3s --instances 4 --settle 500ms --duration 3s --json -"), noEnv, &stdout, &stderr)
	var report load.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
	}
	hours := map[int]int64{}
	for _, w := range report.Windows {
		if w.Length == "1h0m0s" {
			hours[w.Start.Minute()] += w.Issued
		}
	}
	b := report.Summary.Budgets
	if code != exitHeld || len(hours) != 1 || hours[0] == 0 || b == nil || b.Transactions == 0 || b.NotIssued < 0 {
		t.Errorf("exit %d, %v, %+v\n%s", code, hours, b, stderr.String())
	}
	if !strings.Contains(stderr.String(), "ahead") || !strings.Contains(stderr.String(), "long limits: ") {
		t.Error(stderr.String())
	}
}

// An interrupt ends the run early, with a verdict on what was seen: here, before
// anything was.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cluster, _ := etcdtest.New(t, embedded.Options{})
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
	if code != exitCannot || strings.Count(stderr.String(), "loadgen: ") != 1 || strings.Contains(stderr.String(), "{") ||
		strings.Contains(stderr.String(), "rpc error") || !strings.Contains(stderr.String(), "check --endpoints") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
}

func TestNoFolderForTheEmbeddedEtcd(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	var stderr bytes.Buffer
	code := loadgen(t.Context(), []string{"--quiet"}, noEnv, &stderr, &stderr)
	if code != exitCannot || !strings.Contains(stderr.String(), "missing: no such file or directory") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
}

func TestABrokenLimitOutranksOtherErrors(t *testing.T) {
	failed := config.Usagef("etcd went away")
	for _, c := range []struct {
		verdict load.Verdict
		traced  int
		err     error
		want    int
	}{
		{load.Held, exitHeld, nil, exitHeld}, {load.Held, exitHeld, failed, exitCannot}, {load.Unknown, exitHeld, nil, exitCannot},
		{load.NotHeld, exitCannot, nil, exitNotHeld}, {load.NotHeld, exitHeld, failed, exitNotHeld},
		{load.Held, exitNotHeld, failed, exitNotHeld}, {load.Held, exitCannot, nil, exitCannot},
		{load.Unused, exitCannot, failed, exitUnused}, {load.Unused, exitNotHeld, nil, exitNotHeld},
		{load.Underused, exitHeld, nil, exitUnderused}, {load.Underused, exitCannot, nil, exitCannot}, {load.Underused, exitHeld, failed, exitCannot},
	} {
		if got := exitStatus(c.verdict, c.traced, c.err); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
