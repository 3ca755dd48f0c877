package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// program is quotad as a process, which systemd has started as far as it knows.
type program struct {
	socket string
	client *http.Client
	cmd    *exec.Cmd
	said   said
	states net.PacketConn // of sd_notify
}

// said is what a process writes while others read it.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) contains(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

// start starts a process, and waits until it serves.
func start(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := &program{socket: filepath.Join(dir, "quotad.sock")}
	notify := filepath.Join(t.TempDir(), "notify.sock")
	if d.states, err = net.ListenPacket("unixgram", notify); err != nil {
		t.Fatal(err)
	}
	d.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}}
	d.cmd = exec.Command(self, append([]string{"--socket", d.socket}, args...)...)
	d.cmd.Env = append(os.Environ(), programVariable+"=", "NOTIFY_SOCKET="+notify)
	d.cmd.Stderr = &d.said
	child.Tie(d.cmd)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		_ = d.states.Close()
		d.client.CloseIdleConnections()
		if t.Failed() {
			t.Log(d.said.text.String())
		}
	})
	d.awaitState(t, "READY=1")
	return d
}

func (d *program) awaitState(t *testing.T, want string) {
	t.Helper()
	if deadline, ok := t.Deadline(); ok {
		_ = d.states.SetReadDeadline(deadline.Add(-time.Second))
	}
	state := make([]byte, 100)
	n, _, err := d.states.ReadFrom(state)
	if err != nil || string(state[:n]) != want {
		t.Fatalf("systemd hears %q, %v; want %s", state[:n], err, want)
	}
}

// end sends a signal, and waits for the end.
func (d *program) end(t *testing.T, s os.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	d.awaitState(t, "STOPPING=1")
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("%v: %v", s, err)
	}
}

// acquire returns the status of the answer to a call for a permit. Like quotad's clients it asks again if the call waited at
// a quotad when another one took the socket.
func (d *program) acquire(t *testing.T) (status int) {
	t.Helper()
	for {
		status, a := d.post(t, "/v1/acquire", `{"provider":"p","max_wait":60}`)
		if status != http.StatusOK {
			t.Logf("%d: %s", status, a.Detail)
		}
		if status == http.StatusOK || t.Context().Err() != nil || !strings.HasPrefix(a.Detail, "another quotad serves this socket") {
			return status
		}
	}
}

// answer is what tests read of quotad's answers.
type answer struct{ ID, Detail string }

// post returns the status of an answer, and the answer.
func (d *program) post(t *testing.T, path, body string) (status int, a answer) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://quotad"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "") // so Go asks again if a kept connection ends, as quotad's clients do
	r, err := d.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, a
}

func instances(t *testing.T, operator *admin.Client) []string {
	t.Helper()
	f, err := feed.Inside(operator).Fleet(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, i := range f.Instances {
		ids = append(ids, i.Instance.ID)
	}
	return ids
}

// limited starts an etcd with a policy for provider p.
func limited(t *testing.T) (*embedded.Cluster, *admin.Client) {
	t.Helper()
	cluster, client := etcdtest.New(t, embedded.Options{})
	operator, err := admin.New(client, admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: 200 * time.Millisecond}}, Timing: quota.Timing{Settle: time.Second, Freshness: 500 * time.Millisecond}}
	if _, err := operator.PutIf(t.Context(), "p", policy, 0); err != nil {
		t.Fatal(err)
	}
	return cluster, operator
}

// In a rolling update the next process serves beside this one, at the same socket, before
// SIGTERM, and settles what this one gave. If it is the next one that ends, the socket is this one's again.
func TestTheNextServesBeside(t *testing.T) {
	cluster, operator := limited(t)
	dir := t.TempDir()
	args := []string{"--endpoints", strings.Join(cluster.Endpoints(), ","), "--provider", "p"}
	serves := func(p *program) {
		t.Helper()
		p.client.CloseIdleConnections()
		await.Until(t, "there are permits", func() bool { return p.acquire(t) == http.StatusOK })
	}
	first := start(t, dir, args...)
	serves(first)
	_, settled := first.post(t, "/v1/acquire", `{"provider":"p","max_wait":60,"settle_within":120}`)
	second := start(t, dir, args...)
	serves(second)
	if status, _ := second.post(t, "/v1/permits/"+settled.ID+"/settle", `{"used":1}`); status != http.StatusOK {
		t.Errorf("%d for what the first one gave, %q", status, settled.ID)
	}
	first.end(t, syscall.SIGTERM)
	serves(second)
	third := start(t, dir, args...)
	serves(third)
	third.end(t, syscall.SIGTERM)
	serves(second)
	second.end(t, syscall.SIGTERM)
	if got := instances(t, operator); len(got) != 0 {
		t.Errorf("instances %q after SIGTERM", got)
	}
	if left, err := os.ReadDir(dir); len(left) != 1 || left[0].Name() != "quotad.sock.lock" || err != nil {
		t.Errorf("%v are left, %v", left, err)
	}
}

// A process that ends waits for the longest window of its providers. Of one whose window ends long before it has nothing
// more to give then: programs that had connections to it are served by the other process at the socket, whether that is
// the next one or the one before.
func TestProgramsMoveToTheOther(t *testing.T) {
	cluster, operator := limited(t)
	long := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: 4 * time.Second}}}
	if _, err := operator.PutIf(t.Context(), "long", long, 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	next := func() *program {
		d := start(t, dir, "--endpoints", strings.Join(cluster.Endpoints(), ","), "--provider", "p,long")
		await.Until(t, "it has its shares", func() bool { return ask(d.socket, "readyz") == nil })
		if status := d.acquire(t); status != http.StatusOK { // by a connection that stays
			t.Fatal(status)
		}
		return d
	}
	ends := func(d *program) {
		t.Helper()
		phase := func() time.Duration { return time.Duration(time.Now().UnixNano()) % long.Limits[0].Window }
		await.Until(t, "a long window has begun", func() bool { return phase() < time.Second })
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ended, by := make(chan error, 1), map[int]int{}
		go func() { ended <- d.cmd.Wait() }()
		for {
			by[d.acquire(t)]++
			select {
			case err := <-ended:
				if err != nil || len(by) != 1 || by[http.StatusOK] == 0 {
					t.Errorf("%v, and calls by status: %v", err, by)
				}
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	first := next()
	_ = next()
	ends(first)
	ends(next())
}

// After a crash of the next process the socket is this one's again. One that cannot have its
// port leaves the socket alone.
func TestTheNextFails(t *testing.T) {
	cluster, _ := limited(t)
	dir := t.TempDir()
	args := []string{"--endpoints", strings.Join(cluster.Endpoints(), ","), "--provider", "p"}
	first, second := start(t, dir, args...), start(t, dir, args...)
	await.Until(t, "the second says that it takes the socket", func() bool {
		return second.said.contains("the socket of a running process is taken")
	})
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = second.cmd.Wait()
	await.Until(t, "the path leads to a process", func() bool {
		c, err := net.Dial("unix", first.socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	await.Until(t, "there are permits", func() bool { return first.acquire(t) == http.StatusOK })
	fails(t, first)
	if status := first.acquire(t); status != http.StatusOK {
		t.Error(status)
	}
}

// fails starts a process whose port another one has. It must not take the socket.
func fails(t *testing.T, p *program) {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	next := exec.Command(p.cmd.Path, slices.Concat(p.cmd.Args[1:], []string{"--metrics", port.Addr().String()})...)
	next.Env = append(os.Environ(), programVariable+"=")
	child.Tie(next)
	said, err := next.CombinedOutput()
	if err == nil || !bytes.Contains(said, []byte("address already in use")) || bytes.Contains(said, []byte("is taken")) {
		t.Errorf("%v: %s", err, said)
	}
}

// Without etcd quotad is ready if the outage rule lets it issue permits.
func TestReadyInAnOutage(t *testing.T) {
	cluster, operator := limited(t)
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: 200 * time.Millisecond}}, Timing: quota.Timing{Settle: time.Second, Freshness: 500 * time.Millisecond}, Outage: quota.OutageStop}
	if _, err := operator.PutIf(t.Context(), "stop", policy, 0); err != nil {
		t.Fatal(err)
	}
	ready := func(d *program) int {
		r, err := d.client.Get("http://quotad/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	var all []*program
	for _, provider := range []string{"p", "stop"} {
		d := start(t, t.TempDir(), "--endpoints", strings.Join(cluster.Endpoints(), ","), "--provider", provider)
		await.Until(t, provider+" has a share", func() bool { return ready(d) == http.StatusOK })
		all = append(all, d)
	}
	cluster.Stop(0)
	await.Until(t, "hold is stale", func() bool { return all[0].said.contains("limiter is stale") })
	await.Until(t, "stop is not ready", func() bool { return ready(all[1]) == http.StatusServiceUnavailable })
	if ready(all[0]) != http.StatusOK || all[0].acquire(t) != http.StatusOK {
		t.Error("under outage rule hold it is not ready, or issues nothing")
	}
	late := start(t, t.TempDir(), "--endpoints", strings.Join(cluster.Endpoints(), ","))
	await.Until(t, "a quotad that reaches no etcd says so", func() bool { return late.said.contains("etcd does not answer") })
}

// A quotad that ends while etcd is away cannot hand its share over. It says so, and when others have it.
func TestAShareThatIsNotHandedOver(t *testing.T) {
	cluster, _ := limited(t)
	d := start(t, t.TempDir(), "--endpoints", strings.Join(cluster.Endpoints(), ","), "--provider", "p", "--grace", "1s")
	await.Until(t, "there are permits", func() bool { return d.acquire(t) == http.StatusOK })
	cluster.Stop(0)
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err == nil || !d.said.contains("the share was not handed over (--grace is 1s, and a second signal cuts it short): others use it when the lease ends: ") {
		t.Errorf("%v, and it says\n%s", err, &d.said.text)
	}
}
