//go:build e2e && linux

package quotad

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	limit  = 600
	window = time.Second
)

// provider counts calls by the window of their permits.
type provider struct {
	mu     sync.Mutex
	counts map[time.Time]int // by the window's end
	quotad map[time.Time]int // of these, from clients of quotad
	byOwn  map[time.Time]int // by its own clock
	late   int               // calls that came after their window, as on a busy machine
	early  time.Duration     // the most by which a call came before its window
	bad    string            // a call without a permit
}

func (p *provider) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	now := time.Now()
	until, err := time.Parse(time.RFC3339Nano, r.Header.Get("Until"))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.bad = err.Error()
		return
	}
	p.counts[until]++
	if r.Header.Get("By") == "quotad" {
		p.quotad[until]++
	}
	p.early = max(p.early, until.Add(-window).Sub(now))
	if now.Before(until) {
		p.byOwn[now.Truncate(window)]++
	} else {
		p.late++
	}
}

// fromQuotad returns the calls with permits of quotad, in windows that began after an
// instant.
func (p *provider) fromQuotad(after time.Time) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for until, count := range p.quotad {
		if until.Add(-window).After(after) {
			n += count
		}
	}
	return n
}

// run starts a process that is killed at the test's end at the latest.
func run(t *testing.T, said *bytes.Buffer, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	start(t, cmd, said)
	return cmd
}

// start starts a command that is killed at the test's end at the latest.
func start(t *testing.T, cmd *exec.Cmd, said io.Writer) {
	t.Helper()
	cmd.Env = ofClients()
	cmd.Stderr = said
	child.Tie(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// ofClients returns the environment of a program that uses a client of the tree.
func ofClients() []string {
	return append(os.Environ(), "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
}

// piped is start, and returns what writes to the program, and what reads what it prints.
func piped(t *testing.T, cmd *exec.Cmd, said io.Writer) (in io.Writer, out *bufio.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	prints, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd, said)
	return in, bufio.NewReader(prints)
}

// instance makes calls with permits of its own session.
func instance(t *testing.T, cluster *embedded.Cluster, url string) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	s, err := coordinator.Join(t.Context(), etcdtest.NewClient(t, cluster), coordinator.Options{Name: "go", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	l, err := consumer.Open(t.Context(), s, "p", consumer.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				permit, err := l.Take(ctx, 1, 5*time.Second)
				if err != nil {
					continue
				}
				r, _ := http.NewRequest(http.MethodGet, url, nil)
				r.Header.Set("Until", permit.Until().UTC().Format(time.RFC3339Nano))
				if answer, err := http.DefaultClient.Do(r); err == nil {
					_ = answer.Body.Close()
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		workers.Wait()
		_ = s.Close()
	})
}

// setUp starts an etcd with policies. It returns it, how to start quotad, its socket, and
// the compiled client of TypeScript.
func setUp(t *testing.T, policies map[string]quota.Policy) (cluster *embedded.Cluster, quotad func(more ...string) *exec.Cmd, socket, script string) {
	t.Helper()
	script, err := filepath.Abs(cmp.Or(os.Getenv("QUOTIENT_TYPESCRIPT"), "../../clients/typescript/dist/quotient.js"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, socket := filepath.Join(dir, "quotad"), filepath.Join(dir, "quotad.sock")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/quotad").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cluster, client := etcdtest.New(t, embedded.Options{})
	operator, err := admin.New(client, admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, policy := range policies {
		if _, err := operator.PutIf(t.Context(), name, policy, 0); err != nil {
			t.Fatal(err)
		}
	}
	providers := strings.Join(slices.Collect(maps.Keys(policies)), ",")
	return cluster, func(more ...string) *exec.Cmd {
		return run(t, &bytes.Buffer{}, program, append([]string{"--socket", socket, "--provider", providers, "--endpoints", strings.Join(cluster.Endpoints(), ",")}, more...)...)
	}, socket, script
}

// overTLS returns the flags by which quotad serves TLS, and what a client needs: address,
// authority, certificate and key.
func overTLS(t *testing.T) (server, client []string) {
	t.Helper()
	address, err := embedded.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	authority := etcdtest.NewAuthority(t)
	serverCert, serverKey := authority.Issue("quotad", "quotad")
	cert, key := authority.Issue("client", "client")
	return []string{"--listen", address[0], "--tls-cert", serverCert, "--tls-key", serverKey, "--tls-client-ca", authority.File},
		[]string{address[0], authority.File, cert, key}
}

// Clients in two languages are killed while they wait and while they hold batches, and
// quotad ends, is killed and starts again. No window has more calls than the limit, and
// the limit is used.
func TestClients(t *testing.T) {
	policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: window}}, Timing: quota.Timing{Guard: 20 * time.Millisecond}}
	cluster, quotad, socket, script := setUp(t, map[string]quota.Policy{"p": policy})
	p := &provider{counts: map[time.Time]int{}, quotad: map[time.Time]int{}, byOwn: map[time.Time]int{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	instance(t, cluster, server.URL)

	daemon := quotad()
	var wrong [8]bytes.Buffer // what workers say
	worker := func(n int) *exec.Cmd {
		if n%2 == 0 {
			return run(t, &wrong[n], "python3", "testdata/worker.py", socket, address)
		}
		return run(t, &wrong[n], "node", "testdata/worker.mjs", script, socket, address)
	}
	workers := make([]*exec.Cmd, 4)
	for n := range workers {
		workers[n] = worker(n)
	}
	kills := 0
	killAndUse := func(windows int) { // kill a worker in each of so many windows that are used
		for range windows {
			began := time.Now()
			await.Until(t, "clients of quotad make calls", func() bool { return p.fromQuotad(began) > 0 })
			n := kills % len(workers)
			_ = workers[n].Process.Kill()
			_ = workers[n].Wait()
			workers[n] = worker(n)
			kills++
		}
	}
	await.Until(t, "clients of quotad make calls", func() bool { return p.fromQuotad(time.Time{}) > 0 })
	began := time.Now()
	killAndUse(4)
	for _, end := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = daemon.Process.Signal(end)
		_ = daemon.Wait()
		daemon = quotad()
		restarted := time.Now()
		await.Until(t, "clients of quotad make calls again", func() bool { return p.fromQuotad(restarted) > 0 })
		t.Logf("%v after its end by %v, quotad has given permits of a new window", time.Since(restarted).Round(time.Millisecond), end)
		killAndUse(2)
	}
	for _, w := range workers {
		_ = w.Process.Kill()
		_ = w.Wait()
	}
	for n := range wrong {
		if said := wrong[n].String(); said != "" {
			t.Errorf("worker %d: %s", n, said)
		}
	}
	p.judge(t, began, kills)
}

// The clients return refusals with their time and tell them from mistakes, and their next
// call after a restart of quotad is answered.
func TestAnswers(t *testing.T) {
	limits := func(permits int64, window time.Duration) quota.Policy {
		return quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: window}}}
	}
	keyed := limits(1000, time.Second)
	keyed.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 2, Window: time.Second}}, Most: 10}
	hourly := limits(4, time.Hour) // one for each client
	_, quotad, socket, script := setUp(t, map[string]quota.Policy{"p": limits(limit, window), "few": limits(4, time.Minute), "keyed": keyed, "python": hourly, "asyncio": hourly, "node": hourly})
	server, tls := overTLS(t)
	daemon := quotad(server...)
	open := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	ready := func() bool {
		answer, err := open.Post("http://quotad/v1/acquire", "application/json", strings.NewReader(`{"provider":"p","permits":100}`)) // more than a new instance borrows
		if err == nil {
			_ = answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK
	}
	await.Until(t, "quotad gives permits", ready)
	var said [2]bytes.Buffer
	clients := []*exec.Cmd{exec.Command("python3", append([]string{"testdata/answers.py", socket}, tls...)...), exec.Command("node", append([]string{"testdata/answers.mjs", script, socket}, tls...)...)}
	var proceed []io.Writer
	for n, c := range clients {
		in, out := piped(t, c, &said[n])
		proceed = append(proceed, in)
		if line, err := out.ReadString('\n'); err != nil {
			t.Fatalf("%v %q, %v: %s", c.Args, line, err, &said[n])
		}
	}
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	quotad()
	await.Until(t, "quotad gives permits again", ready)
	for n, c := range clients {
		_, _ = io.WriteString(proceed[n], "quotad was restarted\n")
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %v: %s", c.Args, err, &said[n])
		}
	}
}

// judge checks the windows since began.
func (p *provider) judge(t *testing.T, began time.Time, kills int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, whole, most := 0, 0, 0
	for until, n := range p.counts {
		if n > limit {
			t.Errorf("%d calls in the window until %v, more than %d", n, until, limit)
		}
		if until.Add(-window).After(began) && until.Before(time.Now()) {
			all, whole = all+n, whole+1
		}
	}
	for start, n := range p.byOwn {
		most = max(most, n)
		if n > limit {
			t.Errorf("%d calls in the second from %v by the provider's clock, more than %d", n, start, limit)
		}
	}
	if p.early > quota.DefaultClockError || p.bad != "" {
		t.Errorf("a call came %v before its window; %s", p.early, p.bad)
	}
	used := float64(all) / float64(whole*limit)
	t.Logf("%d calls in %d windows, %.1f%% of the limit; at most %d in one, by the provider's clock; %d came late; %d clients killed", all, whole, 100*used, most, p.late, kills)
	if used < 0.5 {
		t.Errorf("only %.0f%% of the limit is used", 100*used)
	}
}

// Answers that come when their permits are no longer valid do not keep a client beyond its
// timeout, and the client says what happened and what to do.
func TestLateAnswers(t *testing.T) {
	script, err := filepath.Abs(cmp.Or(os.Getenv("QUOTIENT_TYPESCRIPT"), "../../clients/typescript/dist/quotient.js"))
	if err != nil {
		t.Fatal(err)
	}
	_, socket := served(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"permits":1,"until":"2000-01-01T00:00:00Z","expires_in":0}`)
	})
	const python = "import quotient, sys\ntry:\n  sys.exit(quotient.Client(sys.argv[1]).acquire('p', timeout=0.1))\nexcept quotient.Limited as e: print(e, file=sys.stderr)"
	const node = "const { Client, Limited } = await import(process.argv[1]);\n" +
		"await new Client(process.argv[2]).acquire('p', { timeout: 0.1 }).then((until) => process.exit(1), (e) => (console.error(e.message), process.exit(e instanceof Limited ? 0 : 1)))"
	for _, args := range [][]string{{"python3", "-c", python, socket}, {"node", "--input-type=module", "-e", node, script, socket}} {
		var said bytes.Buffer
		cmd := run(t, &said, args[0], args[1:]...)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v: %s", args[0], err, &said)
			}
			if !strings.Contains(said.String(), "its permits were good for 0 s: no call was made by them. Ask again") {
				t.Errorf("%s says: %s", args[0], &said)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s waits on: %s", args[0], &said)
		}
	}
}
