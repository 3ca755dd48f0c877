package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
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

// The program whose heart README.md shows runs: in a module of its own, as one
// instance of a fleet.
func TestREADMEsProgramRuns(t *testing.T) {
	t.Parallel()
	// The program's 50 permits are spent at once. The next ones come more than its
	// second later, so it sees ErrLimited.
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: 3 * time.Second}}, Settle: 500 * time.Millisecond, ClockError: time.Millisecond}
	cluster, client := etcdtest.New(t, etcdtest.Options{})
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Put(t.Context(), "payments/charge", policy, coordinator.AnyRevision); err != nil {
		t.Fatal(err)
	}
	session, err := coordinator.Join(t.Context(), client, coordinator.Options{Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	other, err := consumer.Open(t.Context(), session, "payments/charge", consumer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	dir := t.TempDir()
	module := regexp.MustCompile(`(?m)^module .*`).ReplaceAllLiteralString(read(t, filepath.Join(root, "go.mod")), "module quickstart")
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	module += "\nrequire github.com/quotient-limiter/quotient v0.0.0\nreplace github.com/quotient-limiter/quotient => " + absolute + "\n"
	for name, text := range map[string]string{
		"main.go": strings.Replace(read(t, "main.go"), "127.0.0.1:2379", strings.TrimPrefix(cluster.Endpoints()[0], "http://"), 1),
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
	var out, errs bytes.Buffer
	run := exec.CommandContext(t.Context(), filepath.Join(dir, "quickstart"))
	run.Stdout, run.Stderr = &out, &errs
	if err := run.Run(); err != nil || strings.Count(out.String(), "job ") != 100 {
		t.Errorf("%v, printed:\n%s%s", err, &out, &errs)
	}
	await.Until(t, "the program has left", func() bool { return other.Status().Instances == 1 })
}
