package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// BenchmarkSocket measures a call for one permit to quotad, a process with a Unix socket,
// and to a counter in Redis on one: with 1 connection and with 16. The callers share the
// machine with them. Those of quotad write requests and read answers without a library.
func BenchmarkSocket(b *testing.B) {
	for _, connections := range []int{1, callers} {
		for _, c := range []struct {
			name string
			open func(*redis.Client) take
		}{{"floor: PING", ping}, {"INCR with expiry", fixedWindow}} {
			b.Run(fmt.Sprintf("counter=%s/connections=%d", c.name, connections), func(b *testing.B) {
				_, client := startRedis(b)
				before := redisCPU(b, client)
				permits := drive(b, repeat(connections, func() take { return c.open(client) }), "")
				b.ReportMetric(float64(redisCPU(b, client)-before)/float64(permits), "server-cpu-ns/permit")
			})
		}
		b.Run(fmt.Sprintf("counter=quotad/connections=%d", connections), func(b *testing.B) {
			server, socket := startQuotad(b, quota.MaxPermits-1)
			permits := drive(b, repeat(connections, func() take { return dialQuotad(b, socket) }), "")
			_ = server.Process.Kill()
			_ = server.Wait()
			used := server.ProcessState.UserTime() + server.ProcessState.SystemTime() // its start included
			b.ReportMetric(float64(used)/float64(permits), "server-cpu-ns/permit")
		})
	}
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

// startQuotad starts an etcd and a quotad, and returns it and its socket when it gives permits.
func startQuotad(b *testing.B, permits int64) (*exec.Cmd, string) {
	b.Helper()
	etcd, client := etcdtest.New(b, embedded.Options{Processes: true})
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "bench"})
	must(b, err)
	_, err = admin.Put(b.Context(), "bench", limit(permits, time.Second))
	must(b, err)
	folder, err := os.MkdirTemp("", "quotad") //nolint:usetesting // a socket's path is short
	must(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "socket")
	cmd := exec.Command(buildQuotad(b), "--socket", socket, "--provider", "bench", "--endpoints", strings.Join(etcd.Endpoints(), ","))
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
	return cmd, socket
}

// dialQuotad connects to a quotad, for calls one after the other.
func dialQuotad(b *testing.B, socket string) take {
	b.Helper()
	c, err := net.Dial("unix", socket)
	must(b, err)
	b.Cleanup(func() { _ = c.Close() })
	const body = `{"provider":"bench"}`
	request := []byte("POST /v1/acquire HTTP/1.1\r\nHost: quotad\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	r := bufio.NewReader(c)
	return func(context.Context) (bool, error) {
		if _, err := c.Write(request); err != nil {
			return false, err
		}
		status, err := r.ReadSlice('\n')
		ok := bytes.HasPrefix(status, []byte("HTTP/1.1 200 "))
		length := 0
		for err == nil {
			var line []byte
			if line, err = r.ReadSlice('\n'); err != nil || len(line) <= 2 {
				break
			}
			if v, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
				length, err = strconv.Atoi(string(bytes.TrimSpace(v)))
			}
		}
		if err == nil {
			_, err = r.Discard(length)
		}
		return ok, err
	}
}
