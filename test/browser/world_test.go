//go:build e2e

package browser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// program is quota-admin, built once.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "quotient-dashboard-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "quota-admin")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/quota-admin")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// world is an etcd with fleets, which are real instances.
type world struct {
	t       *testing.T
	cluster *embedded.Cluster
	client  *clientv3.Client
	admin   *admin.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cluster, client := etcdtest.New(t, embedded.Options{Slow: true})
	operator, err := admin.New(client, admin.Options{Author: "setup@test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, cluster, client, operator}
}

// set writes a policy that settles fast.
func (w *world) set(provider, limits string) {
	w.t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		w.t.Fatal(err)
	}
	p := quota.Policy{Limits: l, Timing: quota.Timing{Settle: time.Second, Freshness: 800 * time.Millisecond}, Reason: "for the test"}
	if _, err := w.admin.Put(w.t.Context(), provider, p); err != nil {
		w.t.Fatal(err)
	}
}

// mode sets the mode of a policy, as pause and resume do.
func (w *world) mode(provider string, mode quota.Mode) {
	w.t.Helper()
	s, err := w.admin.Get(w.t.Context(), provider)
	if err == nil {
		s.Policy.Mode, s.Policy.Reason = mode, "for the test"
		_, err = w.admin.PutIf(w.t.Context(), provider, s.Policy, s.Revision)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// worker is an instance that asks for more than its share.
type worker struct {
	client         *clientv3.Client // its own
	session        *coordinator.Session
	end            context.CancelFunc
	done           sync.WaitGroup
	asked, refused atomic.Int64
}

// kill ends the instance without a word to the others: its key stays until its lease ends.
func (i *worker) kill() {
	i.end()
	i.done.Wait()
	_ = i.client.Close()
	_ = i.session.Close()
}

// join starts an instance that asks rate times a second.
func (w *world) join(name, provider string, rate float64) *worker {
	w.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	client := etcdtest.NewClient(w.t, w.cluster)
	s, err := coordinator.Join(w.t.Context(), client, coordinator.Options{Name: name, Logger: quiet, Lazy: true})
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := consumer.Open(w.t.Context(), s, provider, consumer.Options{Logger: quiet})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(w.t.Context()))
	i := &worker{client: client, session: s, end: end}
	i.done.Go(func() {
		for owed, tick := 0.0, time.NewTicker(20*time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			for owed += rate / 50; owed >= 1; owed-- {
				i.asked.Add(1)
				if !l.TryAcquire() {
					i.refused.Add(1)
				}
			}
		}
	})
	w.t.Cleanup(i.kill)
	return i
}

// fleet starts n instances.
func (w *world) fleet(n int, provider string, rate float64) (all []*worker) {
	w.t.Helper()
	for i := range n {
		all = append(all, w.join(fmt.Sprintf("worker-%d", i+1), provider, rate))
	}
	return all
}

// site is a running dashboard.
type site struct {
	link    string // what it printed
	address string
	pid     int
}

// dashboard starts quota-admin dashboard with more flags.
func (w *world) dashboard(flags ...string) *site {
	w.t.Helper()
	t := w.t
	args := []string{"dashboard", "--endpoints", strings.Join(w.cluster.Endpoints(), ","), "--listen", "127.0.0.1:0"}
	cmd := exec.Command(program, append(args, flags...)...)
	cmd.Env = append(os.Environ(), "QUOTIENT_AUTHOR=ann@host")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the dashboard ended: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, link, ok := strings.Cut(lines.Text(), "dashboard is at "); ok {
			go io.Copy(io.Discard, out) //nolint:errcheck // it ends with the process
			address := strings.TrimPrefix(strings.TrimPrefix(link, "http://"), "https://")
			address, _, _ = strings.Cut(address, "/")
			return &site{link: link, address: address, pid: cmd.Process.Pid}
		}
	}
	t.Fatal("the dashboard said nothing")
	return nil
}

// cable is a way to the dashboard that can be cut.
type cable struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	conns    []net.Conn
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: l, to: to}
	t.Cleanup(func() { _ = l.Close(); c.cut() })
	go c.serve()
	return c
}

func (c *cable) serve() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, near, far)
		c.mu.Unlock()
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
	}
}

// cut breaks the connections that there are.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// revision returns that of a provider's policy.
func (w *world) revision(provider string) int64 {
	w.t.Helper()
	s, err := w.admin.Get(w.t.Context(), provider)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Revision
}
