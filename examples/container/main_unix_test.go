//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// workerVariable makes the test program be the worker.
const workerVariable = "QUOTIENT_TEST_WORKER"

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(workerVariable); ok {
		main()
		return
	}
	os.Exit(m.Run())
}

// worker is the example in a process of its own.
type worker struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	log   bytes.Buffer
}

func start(t *testing.T, env ...string) *worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: exec.Command(self)}
	w.cmd.Env = append(append(os.Environ(), workerVariable+"=1"), env...)
	out, err := w.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.lines = bufio.NewScanner(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = w.cmd.Process.Kill() }) // ends its log
	t.Cleanup(func() {
		late.Stop()
		_ = w.cmd.Process.Kill()
	})
	return w
}

// await reads the log until a line has the text.
func (w *worker) await(t *testing.T, text string) {
	t.Helper()
	for w.lines.Scan() {
		fmt.Fprintln(&w.log, w.lines.Text())
		if strings.Contains(w.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("no %q in\n%s", text, w.log.String())
}

// end reads the rest of the log and returns the exit status.
func (w *worker) end() int {
	for w.lines.Scan() {
		fmt.Fprintln(&w.log, w.lines.Text())
	}
	_ = w.cmd.Wait()
	return w.cmd.ProcessState.ExitCode()
}

// setUp starts an etcd with a policy and a worker that serves.
func setUp(t *testing.T, share quota.ShareRule, env ...string) (*worker, *clientv3.Client) {
	t.Helper()
	cluster, client := etcdtest.New(t, etcdtest.Options{})
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: 200 * time.Millisecond}}, Share: share, Settle: 3 * time.Second, ClockError: time.Millisecond}
	if _, err := admin.Put(t.Context(), "demo/jobs", policy, coordinator.AnyRevision); err != nil {
		t.Fatal(err)
	}
	w := start(t, append(env, "ETCD_ENDPOINTS="+strings.Join(cluster.Endpoints(), ","))...)
	w.await(t, "INFO serving")
	return w, client
}

// history returns what happened to the keys of instances, in order: "joined",
// "announced" or "gone".
func history(t *testing.T, client *clientv3.Client) (what []string) {
	t.Helper()
	watch := client.Watch(t.Context(), "/quotient/v1/providers/demo%2Fjobs/instances/", clientv3.WithPrefix(), clientv3.WithRev(1))
	for r := range watch {
		for _, e := range r.Events {
			var i quota.Instance
			if e.Type == clientv3.EventTypeDelete {
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

// On SIGTERM the worker announces its end before its key goes, ends all jobs that
// it has begun, and exits with 0.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	w, client := setUp(t, quota.ShareEqual, "JOB=50ms")
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.end(); code != 0 || !strings.Contains(w.log.String(), "broken_off=0") || strings.Contains(w.log.String(), "jobs=0 ") {
		t.Errorf("exit %d\n%s", code, w.log.String())
	}
	if strings.Contains(w.log.String(), "not handed over") {
		t.Error(w.log.String())
	}
	if got := strings.Join(history(t, client), " "); got != "joined announced gone" {
		t.Error(got)
	}
}

// By demand a leave takes the settle time. A grace period that is too short cuts it
// short: the worker says so, promises that it has ended, and exits all the same before
// it is killed.
func TestAGracePeriodThatIsTooShort(t *testing.T) {
	t.Parallel()
	w, client := setUp(t, quota.ShareDemand, "GRACE=1s", "JOB=1ms")
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.end(); code != 0 || !strings.Contains(w.log.String(), "not handed over") {
		t.Errorf("exit %d\n%s", code, w.log.String())
	}
	if got := strings.Join(history(t, client), " "); got != "joined announced announced gone" {
		t.Error(got)
	}
}

func TestWithoutEtcd(t *testing.T) {
	t.Parallel()
	w := start(t, "ETCD_ENDPOINTS=127.0.0.1:1")
	if code := w.end(); code != 1 || !strings.Contains(w.log.String(), "127.0.0.1:1") {
		t.Errorf("exit %d\n%s", code, w.log.String())
	}
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]string{
		"WORKERS=0": "WORKERS", "WORKERS=many": "many", "JOB=-1s": "JOB", "GRACE=10ms": "1s", "GRACE=x": "GRACE", "PROVIDER=//": "provider",
	} {
		name, value, _ := strings.Cut(text, "=")
		_, err := settingsFrom(func(n string) string {
			if n == name {
				return value
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	s, err := settingsFrom(func(string) string { return "" })
	if err != nil || s.drain() >= s.grace/2 {
		t.Errorf("%+v, %v", s, err)
	}
}
