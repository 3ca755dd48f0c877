package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/load"
)

// Calls for keys with owners hold the limit of each key, and loadgen counts each.
func TestKeysHold(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	var stdout, stderr bytes.Buffer
	code := loadgen(context.Background(), strings.Fields("--instances 4 --limit 200/s --keys 20 --key-limit 10/s --key-owners 2 --zipf 1 --settle 1s --duration 3s --least-use 0 --json -"), noEnv, &stdout, &stderr)
	var report load.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
	}
	k := report.Summary.Keys
	if code != exitHeld || k == nil || k.Keys < 15 || k.Windows < 45 || k.OverLimitWindows > 0 || k.MaxOverRatio > 1 {
		t.Errorf("exit %d, %+v\n%s", code, k, stderr.String())
	}
	if !strings.Contains(stderr.String(), "KEYS: 0 of") || !strings.Contains(stderr.String(), "calls are for 20 keys of 10/s each, Zipf 1") {
		t.Errorf("nothing is said of keys in %s", stderr.String())
	}
}
