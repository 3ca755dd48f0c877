package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// batch is how many permits a batch has.
const batch = 100

// BenchmarkSocket measures calls to quotad, a process with a Unix socket, for one permit and for
// batches, and beside them an HTTP server without a limiter, the floor, and a counter in Redis:
// with 1 connection and with 16. The callers share the machine with the servers. Those of HTTP
// write requests and read answers without a library. Each batch is settled, by a second call.
func BenchmarkSocket(b *testing.B) {
	for _, connections := range []int{1, callers} {
		run := func(name string, each int64, serve func(b *testing.B) (*exec.Cmd, string), open func(b *testing.B, socket string) take) {
			b.Run(fmt.Sprintf("counter=%s/connections=%d", name, connections), func(b *testing.B) {
				server, socket := serve(b)
				before := processCPU(b, server.Process.Pid)
				permits := drive(b, repeat(connections, func() take { return open(b, socket) }), each, "")
				b.ReportMetric(float64(processCPU(b, server.Process.Pid)-before)/float64(permits), "server-cpu-ns/permit")
			})
		}
		run("floor: HTTP without a limiter", 1, startNothing, dialQuotad)
		quotad := func(b *testing.B) (*exec.Cmd, string) {
			endpoints := startEtcd(b, quota.MaxPermits-1)
			return startQuotad(b, buildQuotad(b), endpoints)
		}
		run("quotad", 1, quotad, dialQuotad)
		run(fmt.Sprintf("quotad, batches of %d", batch), batch, quotad, dialBatches)
		for _, c := range []struct {
			name string
			open func(*redis.Client) take
		}{{"floor: PING", ping}, {"INCR with expiry", fixedWindow}} {
			b.Run(fmt.Sprintf("counter=%s/connections=%d", c.name, connections), func(b *testing.B) {
				_, client := startRedis(b)
				before := redisCPU(b, client)
				permits := drive(b, repeat(connections, func() take { return c.open(client) }), 1, "")
				b.ReportMetric(float64(redisCPU(b, client)-before)/float64(permits), "server-cpu-ns/permit")
			})
		}
	}
}

// processCPU returns the processor time that a process has used, in Linux's ticks of 10 ms.
func processCPU(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(b, err)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		must(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func repeat(n int, open func() take) (all []take) {
	for range n {
		all = append(all, open())
	}
	return all
}

// buildQuotad builds quotad, and returns the program.
func buildQuotad(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "quotad")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", program, "./cmd/quotad")
	build.Dir, build.Stderr = "..", os.Stderr
	must(b, build.Run())
	return program
}

// runIfNothing makes this process an HTTP server that answers every call alike, if it was started
// as one, and does not return then.
func runIfNothing() {
	socket := os.Getenv(nothingAt)
	if socket == "" {
		return
	}
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"permits":1,"until":"2000-01-01T00:00:01Z","expires_in":0.700000}`)
		}))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// nothingAt is the environment variable with the socket of that server.
const nothingAt = "QUOTIENT_BENCH_NOTHING_AT"

// startNothing starts that server, and returns it and its socket when it answers.
func startNothing(b *testing.B) (*exec.Cmd, string) {
	b.Helper()
	socket := socketPath(b)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nothingAt+"="+socket, "GOGC=400") // as quotad sets it
	return startServer(b, cmd, socket), socket
}

// socketPath returns a path for a socket, which is short.
func socketPath(b *testing.B) string {
	b.Helper()
	folder, err := os.MkdirTemp("", "quotad") //nolint:usetesting // a socket's path is short
	must(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "socket")
}

// startServer starts a server that ends with the benchmark at the latest, and returns it when it
// gives permits.
func startServer(b *testing.B, cmd *exec.Cmd, socket string) *exec.Cmd {
	b.Helper()
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	until(func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	first := dialQuotad(b, socket)
	until(func() bool {
		ok, err := first(b.Context())
		must(b, err)
		return ok
	})
	return cmd
}

// startEtcd starts an etcd with a limit, and returns its endpoints.
func startEtcd(b *testing.B, permits int64) string {
	b.Helper()
	etcd, client := etcdtest.New(b, embedded.Options{Processes: true})
	operator, err := admin.New(client, admin.Options{Author: "bench"})
	must(b, err)
	_, err = operator.Put(b.Context(), "bench", limit(permits, time.Second))
	must(b, err)
	return strings.Join(etcd.Endpoints(), ",")
}

// startQuotad starts a quotad, and returns it and its socket when it gives permits.
func startQuotad(b *testing.B, program, endpoints string) (*exec.Cmd, string) {
	b.Helper()
	socket := socketPath(b)
	return startServer(b, exec.Command(program, "--socket", socket, "--provider", "bench", "--endpoints", endpoints), socket), socket
}

// dialQuotad connects to a quotad, for calls one after the other.
func dialQuotad(b *testing.B, socket string) take {
	b.Helper()
	c := dialHTTP(b, socket)
	request := post("/v1/acquire", `{"provider":"bench"}`)
	return func(context.Context) (bool, error) {
		_, ok, err := c.call(request)
		return ok, err
	}
}

// dialBatches connects to a quotad, for batches one after the other.
func dialBatches(b *testing.B, socket string) take {
	b.Helper()
	c := dialHTTP(b, socket)
	request := post("/v1/acquire", fmt.Sprintf(`{"provider":"bench","permits":%d,"partial":true}`, batch))
	settled := fmt.Sprintf(`{"used":%d}`, batch)
	return func(context.Context) (bool, error) {
		answer, ok, err := c.call(request)
		if !ok || err != nil {
			return ok, err
		}
		_, id, _ := bytes.Cut(answer, []byte(`"id":"`))
		id, _, found := bytes.Cut(id, []byte(`"`))
		if !found || !bytes.Contains(answer, fmt.Appendf(nil, `"permits":%d,`, batch)) {
			return false, fmt.Errorf("no whole batch: %s", answer)
		}
		_, _, err = c.call(post("/v1/permits/"+string(id)+"/settle", settled)) // too late if the window ended meanwhile
		return true, err
	}
}

// post returns a request as text.
func post(path, body string) []byte {
	return []byte("POST " + path + " HTTP/1.1\r\nHost: quotad\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// connection is one to an HTTP server.
type connection struct {
	net.Conn
	r *bufio.Reader
}

func dialHTTP(b *testing.B, socket string) connection {
	b.Helper()
	c, err := net.Dial("unix", socket)
	must(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return connection{c, bufio.NewReader(c)}
}

// call sends a request, and returns the body of its answer, until the next call, and whether its
// status is 200.
func (c connection) call(request []byte) (body []byte, ok bool, err error) {
	if _, err := c.Write(request); err != nil {
		return nil, false, err
	}
	status, err := c.r.ReadSlice('\n')
	ok = bytes.HasPrefix(status, []byte("HTTP/1.1 200 "))
	length := 0
	for err == nil {
		var line []byte
		if line, err = c.r.ReadSlice('\n'); err != nil || len(line) <= 2 {
			break
		}
		if v, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
			length, err = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if err == nil {
		if body, err = c.r.Peek(length); err == nil {
			_, err = c.r.Discard(length)
		}
	}
	return body, ok, err
}
