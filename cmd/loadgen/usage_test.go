package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

// Each refusal names the flag, the value, and what would do instead; and the
// command's exit status is that of bad usage.
func TestBadUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--limit 300000/x", []string{"--limit", "300000/x", "^"}},
		{"--limit 5/2s,7/5s", []string{"5s", "2s", "6s"}},
		{"--instances 0", []string{"--instances", "0", "1 to 10000"}},
		{"--instances 10001", []string{"10001"}},
		{"--duration 0s", []string{"--duration", "0s", "1ms"}},
		{"--duration 25h", []string{"25h0m0s", "24h"}},
		{"--duration soon", []string{"--duration", "soon"}},
		{"--demand 0", []string{"--demand", "0", "1000"}},
		{"--demand NaN", []string{"--demand", "NaN"}},
		{"--arrival now", []string{"--arrival", "now", "poisson"}},
		{"--zipf 9", []string{"--zipf", "9", "0 to 8"}},
		{"--zipf even", []string{"--zipf", "even"}},
		{"--zipf NaN", []string{"--zipf", "NaN"}},
		{"--hot 5 --instances 4", []string{"--hot", "5", "0 to 4"}},
		{"--hot -1", []string{"--hot", "-1"}},
		{"--hot 1 --zipf 1", []string{"--hot", "--zipf", "one of them"}},
		{"--move 5s", []string{"--move 5s", "even", "--hot 1 or --zipf 1"}},
		{"--move -5s --hot 1", []string{"--move", "-5s", "24h"}},
		{"--move 5s --hot 4 --instances 4", []string{"--move", "all 4 instances", "lower --hot"}},
		{"--move 50ms --hot 1", []string{"--move", "50ms", "100ms"}},
		{"--move 5s --hot 1 --shape sliding", []string{"--move", "--shape fixed"}},
		{"--move 5s --hot 1 --warm-up 10s", []string{"--move", "--warm-up"}},
		{"--move 5s --hot 1 --limit 5/100ms", []string{"--move", "250ms"}},
		{"--keys 1001", []string{"--keys", "1001", "0 to 1000"}},
		{"--key-limit 5/s", []string{"--key-limit", "--keys 100"}},
		{"--keys 5 --key-limit 5/2s", []string{"--key-limit", "5/2s", "1s"}},
		{"--keys 5 --key-limit 5/s,9/2s", []string{"--key-limit", "one limit"}},
		{"--keys 5 --key-owners 17", []string{"keys.owners", "17", "0 to 16"}},
		{"--keys 5 --max-wait 1s", []string{"--max-wait", "leave it out"}},
		{"--keys 5 --hot 3", []string{"--hot", "--zipf"}},
		{"--keys 5 --shape sliding", []string{"keys", "fixed windows"}},
		{"--max-wait -1s", []string{"--max-wait", "-1s", "1m0s"}},
		{"--settle 50ms", []string{"--settle", "50ms", "100ms"}},
		{"--guard soon", []string{"--guard", "soon", "20ms"}},
		{"--guard 600ms", []string{"guard", "600ms", "less than half"}},
		{"--guard auto", []string{"--guard", "auto", "went", "as in 50ms"}},
		{"--trace x --ntp a", []string{"--trace", "--ntp", "leave one out"}},
		{"--ntp a,a", []string{"--ntp", "two votes"}},
		{"--outage maybe", []string{"outage", "maybe", "hold, stop"}},
		{"--share weighted", []string{"--share", "gone", "equal", "lend"}},
		{"--adapt none", []string{"--adapt", "gone", "429"}},
		{"--provider-capacity 5/s", []string{"--provider-capacity", "gone", "--transport http"}},
		{"--pacing waltz", []string{"pacing", "waltz", "even"}},
		{"--shape square", []string{"shape", "square", "fixed, sliding, bucket"}},
		{"--burst 5", []string{"burst 5", "shape bucket", "fixed"}},
		{"--burst 5 --shape sliding", []string{"burst 5", "shape bucket", "sliding"}},
		{"--burst -1 --shape bucket", []string{"burst", "-1", "must be from"}},
		{"--warm-up 1ms", []string{"warm_up", "1ms", "100ms"}},
		{"--shape bucket --pacing even", []string{`pacing "even"`, "shape is bucket", "burst"}},
		{"--shape sliding --duration 2h", []string{"--shape sliding", "2ms", "1h6m40s", "2h0m0s"}},
		{"--shape sliding --duration 1h --measure-after 10m", []string{"1h6m40s", "1h10m0s"}},
		{"--change 5s", []string{"--change", "5s", "AT=LIMIT"}},
		{"--change x=5/s", []string{"--change", "x", "1m30s"}},
		{"--change 10s=5/s", []string{"--change", "10s", "--duration"}},
		{"--change 5s=5/y", []string{"--change", "5/y", "^"}},
		{"--change 5s=5/2s", []string{"--change", "1s", "2s"}},
		{"--change 5s=5/s --change 5s=6/s", []string{"--change", "5s", "two"}},
		{"--processes 0", []string{"--processes", "0", "1 to 256"}},
		{"--processes 5 --instances 4", []string{"--processes", "5", "4 instances"}},
		{"--churn -1", []string{"--churn", "-1", "100"}},
		{"--churn NaN", []string{"--churn", "NaN"}},
		{"--churn 2 --churn-kill 1.5", []string{"--churn-kill", "1.5", "0 to 1"}},
		{"--churn 2 --instances 11", []string{"--churn", "10s", "11 processes", "11 instances"}},
		{"--churn 90 --instances 10000", []string{"--churn", "at most 256"}},
		{"--churn 1 --rolling-restart", []string{"--churn", "--rolling-restart", "one of them"}},
		{"--crash 5s", []string{"--crash", "--processes 2"}},
		{"--crash soon --processes 2", []string{"--crash", "soon", "1m30s"}},
		{"--crash 10s --processes 2", []string{"--crash", "10s", "--duration"}},
		{"--crash 5s --processes 2 --rolling-restart", []string{"--crash", "one of them"}},
		{"--measure-after -1s", []string{"--measure-after", "-1s"}},
		{"--html -", []string{"--html", "report.html"}},
		{"--html /nowhere/at/all.html", []string{"--html", "/nowhere/at/all.html"}},
		{"--transport tcp", []string{"--transport", "tcp", "none or http"}},
		{"--least-use 101", []string{"--least-use", "101", "0 to 100"}},
		{"--etcd-members 2", []string{"--etcd-members", "2", "odd"}},
		{"--etcd-members 3 --endpoints localhost:1", []string{"--etcd-members", "--endpoints"}},
		{"--fault 5s", []string{"--fault", "5s", "AT=FAULT"}},
		{"--fault 5s=flood", []string{"--fault", "flood", "kill-leader"}},
		{"--fault 10s=kill-all", []string{"--fault", "10s", "--duration"}},
		{"--replicas 2", []string{"--replicas", "--help"}},
		{"--endpoints http://", []string{"--endpoints"}},
		{"--user ann", []string{"--user", "--endpoints"}},
		{"extra", []string{"extra", "--help"}},
		{"--window-offset 5s", []string{"--window-offset", "5000/h", "300000/s"}},
		{"--limit 5/s,100/h --window-offset -1s", []string{"--window-offset", "-1s", "24h"}},
		{"--limit 5/s,100/h --window-offset 5s --transport http", []string{"--window-offset", "--transport http"}},
		{"--limit 5/s,100/mo", []string{"--limit", "100/mo", "a day"}},
		{"--json /nowhere/at/all.json", []string{"--json", "/nowhere/at/all.json"}},
	} {
		var stdout, stderr bytes.Buffer
		code := loadgen(context.Background(), strings.Fields(c.args), noEnv, &stdout, &stderr)
		if code != exitUsage || stdout.Len() > 0 {
			t.Errorf("%s: exit %d, output %q, %s", c.args, code, stdout.String(), stderr.String())
		}
		for _, want := range c.want {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: no %q in %s", c.args, want, stderr.String())
			}
		}
	}
}

// A limit that does not count by windows of the clock is refused, with what would do instead.
func TestALimitThatIsNotCounted(t *testing.T) {
	for _, c := range []struct {
		limit string
		want  []string
	}{
		{"5 inflight hold=10s", []string{"--limit: 5 inflight hold=10s:", "until they end", "go run ./examples/llm-client"}},
		{"80/s,5000/h sliding", []string{"leave out the phase and sliding, as in 5000/h;", "--window-offset"}},
		{"5000/h@17m", []string{"leave out the phase and sliding, as in 5000/h;"}},
	} {
		var stderr bytes.Buffer
		code := loadgen(context.Background(), []string{"--limit", c.limit}, noEnv, io.Discard, &stderr)
		for _, want := range c.want {
			if code != exitUsage || !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: exit %d, no %q in %s", c.limit, code, want, stderr.String())
			}
		}
	}
}

// No window fits, so nothing is started only to say so.
func TestADurationWithoutAWholeWindow(t *testing.T) {
	var stderr bytes.Buffer
	code := loadgen(context.Background(), []string{"--duration", "10s", "--limit", "10/1m"}, noEnv, io.Discard, &stderr)
	if code != exitUsage || !strings.Contains(stderr.String(), "--duration 1m0s") {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
}
