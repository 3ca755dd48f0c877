package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// childrenOf returns the processes that a process has started and that still run,
// by id, with the variable that says what each is.
func childrenOf(t *testing.T, parent int) map[int]string {
	t.Helper()
	found := map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (command) state ppid ...
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(name, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		environment, _ := os.ReadFile(filepath.Dir(name) + "/environ")
		for v := range strings.SplitSeq(string(environment), "\x00") {
			if role, ok := strings.CutPrefix(v, child.RoleVariable+"="); ok {
				found[pid] = role
			}
		}
	}
	return found
}

// alive reports whether a process runs.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

// parent is a run of loadgen in a process of its own.
type parent struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	out  bytes.Buffer
	done chan struct{} // all output is read
}

func startParent(t *testing.T, args ...string) *parent {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &parent{cmd: exec.Command(self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	go func() {
		defer close(p.done)
		for s := bufio.NewScanner(r); s.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.out, s.Text())
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = r.Close()
	})
	return p
}

func (p *parent) says(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.out.String(), text)
}

// wait returns the exit status, -1 if a signal ended the process.
func (p *parent) wait() int {
	<-p.done // children hold its output too: it is read to the end when all are gone
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

var short = []string{"--settle", "500ms", "--limit", "20/200ms", "--json", "-"}

// A process that crashes is killed with all its instances, and started again: its
// counts are in the sum, and the report tells what happened.
func TestACrashedProcessComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	var stdout, stderr bytes.Buffer
	code := loadgen(context.Background(), append([]string{
		"--instances", "6", "--processes", "2", "--crash", "600ms", "--duration", "8s",
	}, short...), noEnv, &stdout, &stderr)
	var report load.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
	}
	if code != exitHeld || report.Verdict != load.Held {
		t.Errorf("exit %d, %q\n%s", code, report.Verdict, stderr.String())
	}
	if d := report.Summary.Departures; d == nil || d.Killed != 3 {
		t.Errorf("departures %+v", d)
	}
	if e := report.Events; len(e) != 1 || e[0].Text != "3 instances crash" || e[0].At.Before(report.Began) {
		t.Errorf("events %+v", e)
	}
	if last := report.Windows[len(report.Windows)-1]; last.Instances < 3 {
		t.Errorf("at the end %+v", last)
	}
	if left := childrenOf(t, os.Getpid()); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// A fleet of several processes, half of whose leavers are killed, with a provider
// that counts requests: the limit holds, and the counts of the killed are in the
// sum, for there are at least as many permits as requests. No process is left.
func TestAFleetOfProcessesWithChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	traces := t.TempDir()
	var stdout, stderr bytes.Buffer
	code := loadgen(context.Background(), append([]string{
		"--processes", "2", "--instances", "12", "--churn", "2", "--duration", "4s", "--transport", "http", "--trace", traces,
	}, short...), noEnv, &stdout, &stderr)
	var got load.Report
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
	}
	s := got.Summary
	if code != exitHeld || got.Verdict != load.Held || s.Windows != 20 {
		t.Errorf("exit %d, %q, %+v\n%s", code, got.Verdict, s, stderr.String())
	}
	if s.Departures == nil || s.Departures.Killed != 4 {
		t.Errorf("departures: %+v", s.Departures)
	}
	if a := s.Arrivals; a == nil || a.Judged || !strings.Contains(a.Unjudged, "no guard") {
		t.Errorf("arrivals: %+v", a)
	}
	var arrived int64
	for _, w := range got.Windows {
		if w.Arrived == nil {
			t.Fatalf("window %v has no arrivals", w.Start)
		}
		arrived += *w.Arrived
	}
	// A killed process may take a few requests with it that it had permits for.
	if lost := s.IssuedTotal - arrived; arrived == 0 || lost < 0 || lost > 4*20 {
		t.Errorf("%d permits, %d requests", s.IssuedTotal, arrived)
	}
	judgeAgain(t, traces, stderr.String())
}

// judgeAgain has the traces of a run judged by another: as the run did, and not at all once
// a line is missing.
func judgeAgain(t *testing.T, traces, told string) {
	t.Helper()
	var again, unknown bytes.Buffer
	if code := loadgen(context.Background(), []string{"--judge", traces}, noEnv, &again, io.Discard); code != exitHeld ||
		!strings.HasPrefix(again.String(), "TRACE HELD: ") || !strings.Contains(told, again.String()) {
		t.Errorf("judged again: %d, %s\nby the run: %s", code, again.String(), told)
	}
	files, err := filepath.Glob(filepath.Join(traces, "*.trace"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d traces, %v", len(files), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if err := os.WriteFile(files[0], bytes.Join(slices.Delete(lines, 3, 4), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := loadgen(context.Background(), []string{"--judge", traces}, noEnv, &unknown, io.Discard); code != exitCannot ||
		!strings.Contains(unknown.String(), "line 4 has the number 5: lines are missing") {
		t.Errorf("with a line missing: %d, %s", code, unknown.String())
	}
	var stderr bytes.Buffer
	if code := loadgen(context.Background(), []string{"--trace", traces}, noEnv, io.Discard, &stderr); code != exitUsage ||
		!strings.Contains(stderr.String(), "give an empty directory") {
		t.Errorf("a directory with traces: %d, %s", code, stderr.String())
	}
}

// With a guard that covers the clocks' error, arrivals are judged by the provider's
// clock, of every limit's windows; the table and the summary say so.
func TestArrivalsAreJudgedWithAGuard(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := loadgen(context.Background(), []string{"--settle", "500ms", "--limit", "50/250ms,150/1s", "--json", "-",
		"--processes", "2", "--instances", "4", "--duration", "3s", "--transport", "http", "--guard", "50ms"}, noEnv, &stdout, &stderr)
	var got load.Report
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
	}
	a := got.Summary.Arrivals
	if code != exitHeld || a == nil || !a.Judged || a.Unjudged != "" || a.OverLimitWindows != 0 || a.Total != got.Summary.IssuedTotal || a.Late > a.Total {
		t.Fatalf("exit %d, %+v\n%s", code, a, stderr.String())
	}
	arrived := map[string]int64{}
	for _, w := range got.Windows {
		arrived[w.Length] += *w.Arrived
	}
	if arrived["250ms"] != a.Total || arrived["1s"] != a.Total {
		t.Errorf("%v arrived, want %d", arrived, a.Total)
	}
	if !strings.Contains(stderr.String(), "the others by the provider's clock") {
		t.Error(stderr.String())
	}
}

// A worker's death that nobody asked for ends the run, which says so; what it had
// counted is in the report, and nobody stays behind.
func TestAWorkerDies(t *testing.T) {
	t.Parallel()
	p := startParent(t, append([]string{"--processes", "2", "--instances", "4", "--duration", "1h"}, short...)...)
	await.Until(t, "it measures", func() bool { return p.says("measuring:") })
	before := childrenOf(t, p.cmd.Process.Pid)
	for pid := range before {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(); code != exitCannot || !p.says(fmt.Sprintf("process %d ended though nobody had asked it to: signal: killed", pid)) {
			t.Errorf("exit %d, %s", code, p.out.String())
		}
		break
	}
	if len(before) != 2 {
		t.Errorf("%d children", len(before))
	}
	for pid := range before {
		if alive(pid) {
			t.Errorf("child %d is still there", pid)
		}
	}
}

// However loadgen is ended, no child of any kind stays behind, not even one that is stopped
// and can notice nothing. TestInterrupted has an interrupt.
func TestNoChildOutlivesItsParent(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := startParent(t, append([]string{"--processes", "2", "--instances", "9", "--churn", "0.2", "--transport", "http",
				"--etcd-members", "3", "--duration", "1h"}, short...)...)
			await.Until(t, "it settles", func() bool { return p.says("settling:") })
			// Two workers, two victims, three members of etcd.
			await.Until(t, "all children are there", func() bool { return len(childrenOf(t, p.cmd.Process.Pid)) == 7 })
			before := childrenOf(t, p.cmd.Process.Pid)
			if signal == syscall.SIGKILL {
				for pid := range before {
					if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			code := p.wait()
			if signal != syscall.SIGKILL && (code != exitCannot || !p.says("UNKNOWN")) && (code != exitHeld || !p.says("HELD")) {
				t.Errorf("exit %d, %s", code, p.out.String())
			}
			for pid, role := range before {
				await.Until(t, fmt.Sprintf("child %d (%.20s) is gone", pid, role), func() bool { return !alive(pid) })
			}
			if left, _ := filepath.Glob(p.tmp() + "/*"); signal != syscall.SIGKILL && len(left) > 0 {
				t.Errorf("files left behind: %v", left)
			}
		})
	}
}

// tmp is the folder that the process has for temporary files.
func (p *parent) tmp() string {
	for _, v := range p.cmd.Env {
		if dir, ok := strings.CutPrefix(v, "TMPDIR="); ok {
			return dir
		}
	}
	return ""
}

// Etcd loses its leader, and then all of it stands still for a while: nothing is
// exceeded, and the fleet is back at the end.
func TestFaultsOfEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := loadgen(context.Background(), append([]string{"--instances", "4", "--etcd-members", "3", "--outage", "stop", "--duration", "5s",
		"--fault", "500ms=kill-leader", "--fault", "1500ms=pause-all", "--fault", "3s=resume-all", "--fault", "3500ms=restart-all",
	}, short...), noEnv, &stdout, &stderr)
	if code != exitHeld {
		t.Errorf("exit %d\n%s\n%s", code, stdout.String(), stderr.String())
	}
}
