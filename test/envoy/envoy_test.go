//go:build e2e

package envoy

import (
	"context"
	"fmt"
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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	provider = "payments/charge" // of examples/envoy/rules.yaml
	permits  = 1000
	margin   = 50 * time.Millisecond // the longest way of a call that is counted
	guard    = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	os.Exit(m.Run())
}

// upstream is a provider. It counts calls by the second of its clock in which they arrive.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	seconds map[int64]map[string]int // calls by their sender, without those that took too long
	late    int
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{seconds: map[int64]map[string]int{}}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Arrived", strconv.FormatInt(time.Now().Unix(), 10))
	}))
	t.Cleanup(u.Close)
	return u
}

// count counts a call by its answer.
func (u *upstream) count(sender string, r *http.Response, took time.Duration) {
	second, err := strconv.ParseInt(r.Header.Get("Arrived"), 10, 64)
	if err != nil {
		return // refused on its way
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if took > margin {
		u.late++
		return
	}
	if u.seconds[second] == nil {
		u.seconds[second] = map[string]int{}
	}
	u.seconds[second][sender]++
}

// since returns the calls of a sender that arrived after a second.
func (u *upstream) since(second int64, sender string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for s, by := range u.seconds {
		if s > second {
			n += by[sender]
		}
	}
	return n
}

// RoundTrip sends a call of one of the Go instances, and counts it.
type counted struct {
	*upstream
	sender string
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		c.count(c.sender, response, time.Since(sent))
	}
	return response, err
}

// run starts a program and returns what kills it. Its last words are shown if the test
// fails.
func run(t *testing.T, name string, args ...string) (kill func()) {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	child.Tie(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		kill()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s: ...%s", filepath.Base(name), text[max(0, len(text)-4000):])
		}
		_ = log.Close()
	})
	return kill
}

// fleet is two hosts, each with a quotad and an Envoy, and three Go instances, that share a
// limit.
type fleet struct {
	*upstream
	t       *testing.T
	folders [2]string // of each host, in place of /run/quotad
	etcd    string    // endpoints
	quotad  string    // binary
	ports   []string
	running atomic.Bool
	answers [2]map[int]int // of each Envoy, by status
	mu      sync.Mutex
}

func (f *fleet) runQuotad(i int) (kill func()) {
	return run(f.t, f.quotad, "--endpoints", f.etcd, "--socket", filepath.Join(f.folders[i], "quotad.sock"), "--envoy", filepath.Join(f.folders[i], "envoy.sock"), "--envoy-rules", "../../examples/envoy/rules.yaml", "--provider", provider)
}

// runEnvoy starts an Envoy with the configuration that the documents show, but for
// addresses.
func (f *fleet) runEnvoy(i int) (kill func()) {
	text, err := os.ReadFile("../../examples/envoy/ratelimit.yaml")
	if err != nil {
		f.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(f.Listener.Addr().String())
	config := strings.NewReplacer("port_value: 10000", "port_value: "+f.ports[i], "port_value: 9000", "port_value: "+port,
		"/run/quotad", f.folders[i]).Replace(string(text))
	return run(f.t, os.Getenv("QUOTIENT_TEST_ENVOY"), "--config-yaml", config, "--concurrency", "2", "--disable-hot-restart", "--log-level", "warning")
}

// call calls an Envoy, all the time, more often than its share allows.
func (f *fleet) call(i int) {
	var callers sync.WaitGroup
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for f.running.Load() {
		<-tick.C
		for range 8 { // 400 a second
			callers.Go(func() {
				sent := time.Now()
				r, err := client.Get("http://127.0.0.1:" + f.ports[i])
				if err != nil {
					return // it was killed
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				f.count(fmt.Sprint("envoy ", i), r, time.Since(sent))
				f.mu.Lock()
				defer f.mu.Unlock()
				f.answers[i][r.StatusCode]++
			})
		}
		callers.Wait()
	}
}

// work is a Go instance that calls whenever it has a permit.
func (f *fleet) work(ctx context.Context, limiter *consumer.Limiter, name string) {
	client := &http.Client{Transport: &httplimit.Transport{Base: counted{f.upstream, name}, Limiter: limiter, MaxWait: consumer.Forever, Margin: margin}}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				request, _ := http.NewRequestWithContext(ctx, http.MethodGet, f.URL, nil)
				if r, err := client.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_ = r.Body.Close()
				}
			}
		})
	}
	callers.Wait()
}

// Two Envoys and three Go instances share 1,000/s, while an Envoy and a quotad are killed
// and etcd is away. By the provider's clock no second has more.
func TestEnvoysAndInstancesShareALimit(t *testing.T) {
	if os.Getenv("QUOTIENT_TEST_ENVOY") == "" {
		t.Fatal("QUOTIENT_TEST_ENVOY names no envoy binary: .ci/run envoy installs one")
	}
	quotad := filepath.Join(t.TempDir(), "quotad")
	if out, err := exec.Command("go", "build", "-o", quotad, "../../cmd/quotad").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cluster, client := etcdtest.New(t, embedded.Options{Processes: true})
	operator, err := admin.New(client, admin.Options{Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	policy := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Timing: quota.Timing{Guard: guard}}
	if _, err := operator.PutIf(t.Context(), provider, policy, 0); err != nil {
		t.Fatal(err)
	}
	addresses, err := embedded.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{
		upstream: newUpstream(t), t: t, folders: [2]string{t.TempDir(), t.TempDir()}, etcd: strings.Join(cluster.Endpoints(), ","), quotad: quotad,
		answers: [2]map[int]int{{}, {}},
	}
	for _, a := range addresses {
		_, port, _ := net.SplitHostPort(a)
		f.ports = append(f.ports, port)
	}

	killQuotad := f.runQuotad(0)
	f.runQuotad(1)
	killEnvoy := f.runEnvoy(0)
	f.runEnvoy(1)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	f.running.Store(true)
	defer f.running.Store(false)
	for i := range 2 {
		running.Go(func() { f.call(i) })
	}
	senders := []string{"envoy 0", "envoy 1"}
	var limiter *consumer.Limiter
	for i := range 3 {
		session, err := coordinator.Join(ctx, client, coordinator.Options{Name: fmt.Sprint("go-", i), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if limiter, err = consumer.Open(ctx, session, provider, consumer.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		sender := fmt.Sprint("go ", i)
		senders = append(senders, sender)
		own := limiter
		running.Go(func() { f.work(ctx, own, sender) })
	}
	parts := func(n int64) func() bool {
		return func() bool { more := limiter.Status().Shortest().Share - permits/n; return more == 0 || more == 1 } // of a remainder
	}
	all := func(what string) {
		t.Helper()
		second := time.Now().Unix()
		await.Until(t, what+": all have permits again", func() bool {
			return !slices.ContainsFunc(senders, func(s string) bool { return f.since(second, s) < 50 })
		})
		t.Logf("%s: after %v", what, time.Since(time.Unix(second, 0)).Round(time.Second))
	}
	await.Until(t, "each instance has a fifth", parts(5))
	all("at the start")
	killEnvoy()
	f.runEnvoy(0)
	all("an Envoy was killed")
	killQuotad()
	await.Until(t, "the Envoy answers 503 while its quotad is away", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.answers[0][http.StatusServiceUnavailable] > 0
	})
	f.runQuotad(0)
	await.Until(t, "the new one has a sixth", parts(6))
	all("a quotad was killed, and has its share until its lease ends")
	await.Until(t, "each has a fifth again", parts(5))
	all("its lease has ended")
	if err := cluster.Pause(0); err != nil {
		t.Fatal(err)
	}
	all("etcd is away")
	if err := cluster.Resume(0); err != nil {
		t.Fatal(err)
	}
	all("etcd is back")
	f.running.Store(false)
	cancel()
	running.Wait()
	f.judge(t, senders)
}

func (f *fleet) judge(t *testing.T, senders []string) {
	counted := 0
	for _, second := range slices.Sorted(maps.Keys(f.seconds)) {
		sum, text := 0, ""
		for _, s := range senders {
			sum += f.seconds[second][s]
			text += fmt.Sprintf(" %4d", f.seconds[second][s])
		}
		counted += sum
		t.Logf("%d:%s = %4d", second, text, sum)
		if sum > permits {
			t.Errorf("second %d has %d calls, the limit is %d", second, sum, permits)
		}
	}
	t.Logf("%d calls in %d seconds, and %d that took more than %v; the Envoys answered %v", counted, len(f.seconds), f.late, margin, f.answers)
	for i := range f.answers {
		if f.answers[i][http.StatusOK] == 0 || f.answers[i][http.StatusTooManyRequests] == 0 {
			t.Errorf("Envoy %d answered %v: it must admit some and refuse some", i, f.answers[i])
		}
		if n := f.answers[i][http.StatusInternalServerError]; n > 0 {
			t.Errorf("Envoy %d answered %d calls with 500", i, n)
		}
	}
}
