package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
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
const provider = "demo/api"

// setUp returns an etcd with the program's policy, and an instance beside the program.
func setUp(t *testing.T) (endpoint string, client *clientv3.Client, other *consumer.Limiter) {
	t.Helper()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}, Timing: quota.Timing{Settle: 500 * time.Millisecond, ClockError: time.Millisecond}}
	cluster, client := etcdtest.New(t, embedded.Options{})
	operator, err := admin.New(client, admin.Options{Author: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Put(t.Context(), provider, policy); err != nil {
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
	return cluster.Endpoints()[0], client, other
}

// useIt returns what the section of README.md with the program begins with: the commands before the
// program, the program, and the command that starts it.
func useIt(t *testing.T) (before, program, start string) {
	t.Helper()
	_, section, _ := strings.Cut(read(t, filepath.Join(root, "README.md")), "\n## Use it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := markdown.Blocks(section)
	if len(blocks) < 3 || blocks[0].Language != "sh" || blocks[1].Language != "go" || blocks[2].Language != "sh" {
		t.Fatalf("README.md has other blocks under its title Use it: %+v", blocks)
	}
	return blocks[0].Text, blocks[1].Text, blocks[2].Text
}

// module does what README.md says before the start, and returns the folder with the
// program.
func module(t *testing.T) (folder, start string) {
	t.Helper()
	before, program, start := useIt(t)
	checkout := filepath.Join(t.TempDir(), "quotient")
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(absolute, checkout); err != nil {
		t.Fatal(err)
	}
	beside := shell(t, filepath.Dir(checkout), "mkdir at && cd at\n"+before+"\npwd -P")
	out, err := beside.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	folder = strings.TrimSpace(string(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:]))
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder, start
}

// shell is a script that ends at its first failure, in a process group of its own.
func shell(t *testing.T, folder, script string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	cmd.Dir, cmd.Stderr = folder, t.Output()
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// untilJob reads until the program has done so many jobs, and goes on reading.
func untilJob(t *testing.T, from io.Reader, job int) {
	t.Helper()
	out := bufio.NewReader(from)
	for said := ""; !strings.Contains(said, fmt.Sprint("job ", job)); {
		var err error
		if said, err = out.ReadString('\r'); err != nil {
			t.Fatalf("it ends before job %d: %v", job, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
}

// The program that README.md shows runs by the commands that it shows: in a module of its
// own, as one instance of a fleet. Ctrl-C ends it.
func TestREADMEsProgramRuns(t *testing.T) {
	t.Parallel()
	endpoint, _, other := setUp(t)
	folder, start := module(t)
	run := shell(t, folder, start)
	run.Env = append(run.Env, "QUOTIENT_ENDPOINTS=http://127.0.0.1:1,"+endpoint)
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	untilJob(t, out, 100)
	// A terminal's Ctrl-C reaches `go run` too, which waits for the program.
	if err := syscall.Kill(-run.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait() // sh says that it was interrupted
	await.Until(t, "the program has left", func() bool { return other.Status().Instances == 1 })
}

// On SIGTERM, which container platforms send, the program announces its end before its key
// goes, and ends without an error.
func TestSIGTERMHandsTheShareOver(t *testing.T) {
	t.Parallel()
	endpoint, client, other := setUp(t)
	folder, _ := module(t)
	if err := shell(t, folder, "go build -o charge .").Run(); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	run := exec.CommandContext(t.Context(), filepath.Join(folder, "charge"))
	run.Env = append(os.Environ(), "QUOTIENT_ENDPOINTS=http://127.0.0.1:1,"+endpoint)
	run.Stderr = &errs
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	untilJob(t, out, 1)
	await.Until(t, "the program has a share", func() bool { return other.Status().Shortest().Share == 50 })
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	what := history(t, client)
	if err := run.Wait(); err != nil || !slices.Equal(what, []string{"joined", "announced", "gone"}) {
		t.Errorf("%v, its key: %v\n%s", err, what, &errs)
	}
}

// history returns what happened to the key of the second instance until it went.
func history(t *testing.T, client *clientv3.Client) (what []string) {
	t.Helper()
	first := ""
	for r := range client.Watch(t.Context(), "/quotient/v1/providers/demo%2Fapi/instances/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
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
			switch {
			case i.Until.IsZero():
				what = append(what, "joined")
			case i.Until.Equal(i.Until.Truncate(time.Second)):
				what = append(what, "announced") // from the start of a window on
			default:
				what = append(what, "broken off") // as Close does, within a window
			}
		}
	}
	t.Fatalf("the instance is still there after %v", what)
	return nil
}
