package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// provider is that of the program.
const provider = "payments/charge"

// setUp returns the program, in a module of its own, an etcd with its policy, and an
// instance beside it.
func setUp(t *testing.T) (program string, client *clientv3.Client, other *consumer.Limiter) {
	t.Helper()
	// The program's 50 permits are spent at once. The next ones come more than its
	// second later, so it sees ErrLimited.
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: 3 * time.Second}}, Timing: quota.Timing{Settle: 500 * time.Millisecond, ClockError: time.Millisecond}}
	cluster, client := etcdtest.New(t, etcdtest.Options{})
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Put(t.Context(), provider, policy); err != nil {
		t.Fatal(err)
	}
	session, err := coordinator.Join(t.Context(), client, coordinator.Options{Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if other, err = consumer.Open(t.Context(), session, provider, consumer.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	return build(t, strings.TrimPrefix(cluster.Endpoints()[0], "http://")), client, other
}

// build builds the program for another etcd.
func build(t *testing.T, endpoint string) string {
	t.Helper()
	dir := t.TempDir()
	module := regexp.MustCompile(`(?m)^module .*`).ReplaceAllLiteralString(read(t, filepath.Join(root, "go.mod")), "module quickstart")
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	module += "\nrequire github.com/quotient-limiter/quotient v0.0.0\nreplace github.com/quotient-limiter/quotient => " + absolute + "\n"
	for name, text := range map[string]string{
		"main.go": strings.Replace(read(t, "main.go"), "127.0.0.1:2379", endpoint, 1),
		"go.mod":  module,
		"go.sum":  read(t, filepath.Join(root, "go.sum")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", "quickstart", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "quickstart")
}

// The program whose heart README.md shows runs: in a module of its own, as one
// instance of a fleet.
func TestREADMEsProgramRuns(t *testing.T) {
	t.Parallel()
	program, _, other := setUp(t)
	var out, errs bytes.Buffer
	run := exec.CommandContext(t.Context(), program)
	run.Stdout, run.Stderr = &out, &errs
	if err := run.Run(); err != nil || strings.Count(out.String(), "job ") != 100 {
		t.Errorf("%v, printed:\n%s%s", err, &out, &errs)
	}
	await.Until(t, "the program has left", func() bool { return other.Status().Instances == 1 })
}

// On SIGTERM, which container platforms send, the program announces its end before its key
// goes, and ends without an error.
func TestSIGTERMHandsTheShareOver(t *testing.T) {
	t.Parallel()
	program, client, _ := setUp(t)
	var errs bytes.Buffer
	run := exec.CommandContext(t.Context(), program)
	run.Stderr = &errs
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		t.Error("it does no job")
	}
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	what := history(t, client)
	if err := run.Wait(); err != nil || !slices.Equal(what, []string{"joined", "announced", "gone"}) {
		t.Errorf("%v, its key: %v\n%s", err, what, &errs)
	}
}

// history returns what happened to the key of the second instance until it went.
func history(t *testing.T, client *clientv3.Client) (what []string) {
	t.Helper()
	first := ""
	for r := range client.Watch(t.Context(), "/quotient/v1/providers/payments%2Fcharge/instances/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for _, e := range r.Events {
			var i protocol.Instance
			switch key := string(e.Kv.Key); {
			case first == "" || key == first:
				first = key
				continue
			case e.Type == clientv3.EventTypeDelete:
				return append(what, "gone")
			}
			if err := json.Unmarshal(e.Kv.Value, (*protocol.Incarnation)(&i)); err != nil {
				t.Fatal(err)
			}
			if i.Until.IsZero() {
				what = append(what, "joined")
			} else {
				what = append(what, "announced")
			}
		}
	}
	t.Fatalf("the instance is still there after %v", what)
	return nil
}
