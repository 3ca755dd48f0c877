//go:build load && linux

package memory

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// The bounds in docs/proof/attacks.md, in kB of resident memory.
const (
	mostOfInstance = 256 << 10
	mostOfTool     = 128 << 10 // the dashboard too
	mostOfEach     = 8         // instance that a tool shows
)

const (
	provider = "p"
	large    = 1400 << 10 // etcd takes little more
)

// measuredRole is that of a process that runs a command and tells the most memory that
// the command ever had. Linux counts what the starting program had as the command's
// own; here that is less than any bound.
const measuredRole = "measured"

type program struct{ Args, Env []string }

type measured struct {
	Said      string
	Kilobytes int64
	Failed    bool
}

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	child.Be(measuredRole, func(c program, _ <-chan struct{}, tell func(measured)) error {
		cmd := exec.Command(c.Args[0], c.Args[1:]...)
		cmd.Env = c.Env
		child.Tie(cmd)
		said, err := cmd.CombinedOutput()
		tell(measured{string(said), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss, err != nil})
		return nil
	})
	os.Exit(m.Run())
}

// world is an etcd, in a process of its own, and the programs.
type world struct {
	t         *testing.T
	client    *clientv3.Client
	folder    string // of the programs
	endpoints string
}

func newWorld(t *testing.T, folder string) *world {
	t.Helper()
	cluster, client := etcdtest.New(t, embedded.Options{Processes: true, Slow: true})
	operator, err := admin.New(client, admin.Options{Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	p := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}
	if _, err := operator.Put(t.Context(), provider, p); err != nil {
		t.Fatal(err)
	}
	return &world{t, client, folder, strings.Join(cluster.Endpoints(), ",")}
}

// command returns a program that ends with the test.
func (w *world) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(w.folder, name), args...)
	cmd.Env = append(os.Environ(), "QUOTIENT_ENDPOINTS="+w.endpoints)
	child.Tie(cmd)
	return cmd
}

// start starts a program that runs until the test ends.
func (w *world) start(cmd *exec.Cmd) *exec.Cmd {
	w.t.Helper()
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// instance starts an instance.
func (w *world) instance() *exec.Cmd {
	w.t.Helper()
	quotad := w.command("quotad", "--provider", provider, "--socket", filepath.Join(w.t.TempDir(), "quotad.sock"))
	quotad.Env = append(quotad.Environ(), "GOGC=100") // as in an application: quotad's own default trades memory for time
	return w.start(quotad)
}

// haveApplied waits until so many instances have reported that they know a revision.
func (w *world) haveApplied(instances int, revision int64) {
	w.t.Helper()
	await.Until(w.t, fmt.Sprintf("%d instances apply revision %d", instances, revision), func() bool {
		answer, err := w.client.Get(w.t.Context(), "/quotient/v1/reports/"+provider+"/", clientv3.WithPrefix())
		if err != nil {
			w.t.Fatal(err)
		}
		n := 0
		for _, kv := range answer.Kvs {
			var r protocol.Report
			if json.Unmarshal(kv.Value, &r) == nil && r.Revision >= revision {
				n++
			}
		}
		return n == instances
	})
}

// dashboard starts the dashboard and opens its stream of the provider. It returns the
// newest revision that the stream has told while etcd answered, too.
func (w *world) dashboard() (*exec.Cmd, *atomic.Int64) {
	w.t.Helper()
	cmd := w.command("quota-admin", "dashboard", "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	w.start(cmd)
	var link string
	if _, err := fmt.Fscanf(out, "dashboard is at %s\n", &link); err != nil {
		w.t.Fatal(err)
	}
	r, err := http.Get(link + "api/events?provider=" + provider)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = r.Body.Close() })
	var shown atomic.Int64
	go func() {
		for d := json.NewDecoder(r.Body); ; {
			var m struct {
				State struct {
					Etcd   struct{ OK bool }
					Detail struct{ Revision int64 }
				}
			}
			if d.Decode(&m) != nil {
				return
			}
			if m.State.Etcd.OK {
				shown.Store(m.State.Detail.Revision)
			}
		}
	}()
	return cmd, &shown
}

// tool runs a command of quota-admin and returns its peak.
func (w *world) tool(args ...string) (kilobytes int64) {
	w.t.Helper()
	cmd := w.command("quota-admin", append(args, "--command-timeout", "5m")...)
	var m measured
	p, err := child.Start(measuredRole, program{cmd.Args, cmd.Env}, func(told measured) { m = told }, func(err error) { w.t.Error(err) })
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.Close(10 * time.Minute); err != nil {
		w.t.Fatal(err)
	}
	if args[0] != "doctor" && m.Failed || !strings.Contains(m.Said, provider) {
		w.t.Fatalf("quota-admin %s: %.1000s", args, m.Said)
	}
	return m.Kilobytes
}

// peak returns the most memory that a running process ever had.
func (w *world) peak(cmd *exec.Cmd) (kilobytes int64) {
	w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		w.t.Fatal(err)
	}
	return kilobytes
}

// do writes and returns the revision.
func (w *world) do(op ...clientv3.Op) int64 {
	w.t.Helper()
	r, err := w.client.Txn(w.t.Context()).Then(op...).Commit()
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Header.Revision
}

const folder = "/quotient/v1/providers/" + provider + "/instances/"

// floods are what somebody with a consumer's rights may write. Each returns the
// newest revision.
var floods = []struct {
	name      string
	instances int64 // that it leaves
	write     func(w *world) int64
}{
	{"names", 0, func(w *world) (revision int64) {
		for i := range 40 {
			revision = w.do(clientv3.OpPut(fmt.Sprint(folder, i, strings.Repeat("x", large)), "{}"))
		}
		return revision
	}},
	{"values", 250, func(w *world) (revision int64) {
		value := strings.Repeat("x", large)
		for i := range 250 {
			revision = w.do(clientv3.OpPut(fmt.Sprint(folder, i), value))
		}
		return revision
	}},
	{"changes", 0, func(w *world) (revision int64) {
		long := folder + strings.Repeat("x", 200)
		for round := range 1200 {
			w.putAll(64, fmt.Sprint(long, round))
			revision = w.do(clientv3.OpDelete(long, clientv3.WithPrefix()))
		}
		return revision
	}},
	{"keys", 128 * 128, func(w *world) (revision int64) { // an eighth of the most
		for n := range 128 {
			revision = w.putAll(128, fmt.Sprint(folder, strings.Repeat("x", 100), n))
		}
		return revision
	}},
}

// putAll writes instances at once.
func (w *world) putAll(n int, prefix string) int64 {
	w.t.Helper()
	var puts []clientv3.Op
	for i := range n {
		puts = append(puts, clientv3.OpPut(fmt.Sprint(prefix, ".", i), `{"schema":1,"name":"`+strings.Repeat("y", protocol.MaxNameBytes)+`"}`))
	}
	return w.do(puts...)
}

// TestAFloodFillsNobodysMemory: every program stays under its bound, those that run
// while the flood comes and those that start after it.
func TestAFloodFillsNobodysMemory(t *testing.T) {
	programs := t.TempDir()
	build := exec.Command("go", "build", "-o", programs, "../../cmd/quota-admin", "../../cmd/quotad")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, flood := range floods {
		t.Run(flood.name, func(t *testing.T) {
			w := newWorld(t, programs)
			early := w.instance()
			w.haveApplied(1, 1)
			page, shown := w.dashboard()
			revision := flood.write(w)
			w.haveApplied(1, revision)
			late := w.instance()
			w.haveApplied(2, revision)
			check := func(name string, kilobytes, most int64) {
				t.Helper()
				if t.Logf("%s: %d MB", name, kilobytes>>10); kilobytes > most {
					t.Errorf("%s took %d MB, more than %d", name, kilobytes>>10, most>>10)
				}
			}
			mostOfTool := mostOfTool + mostOfEach*flood.instances
			for _, args := range [][]string{{"list"}, {"instances", provider}, {"top", provider, "--count", "1"}, {"doctor"}} {
				check(args[0], w.tool(args...), mostOfTool)
			}
			for range 3 { // looks of the page
				revision = w.do(clientv3.OpPut("/quotient/v1/x", ""))
				await.Until(t, "the page shows it", func() bool { return shown.Load() >= revision })
			}
			check("dashboard", w.peak(page), mostOfTool)
			check("instance", w.peak(early), mostOfInstance)
			check("instance that came later", w.peak(late), mostOfInstance)
		})
	}
}
