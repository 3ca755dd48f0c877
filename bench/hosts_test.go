package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

var (
	hosts       = flag.Int("hosts", 0, "quotads of BenchmarkHosts; 0: none")
	hostClients = flag.Int("host-clients", 50, "clients of each quotad of BenchmarkHosts")
)

// BenchmarkHosts measures many clients of few instances: a quotad for each host, as a
// process, and clients that each keep a connection to its socket. All quotads start at
// once, while the clients call already. Then limits are raised under callers that wait.
// Hosts, clients and etcd share one machine.
func BenchmarkHosts(b *testing.B) {
	if *hosts == 0 {
		b.Skip("-hosts names no size")
	}
	etcd, client := etcdtest.New(b, embedded.Options{Processes: true, Slow: true})
	operator, err := admin.New(client, admin.Options{Author: "bench"})
	must(b, err)
	set := func(permits int) {
		_, err := operator.Put(b.Context(), "bench", limit(int64(permits), time.Second))
		must(b, err)
	}
	clients := *hosts * *hostClients
	plenty, few := 1000*clients, *hosts
	set(plenty)
	quotad := buildQuotad(b)

	// A path of a socket has at most 107 bytes.
	folder, err := os.MkdirTemp("", "quotad") //nolint:usetesting // its path is short
	must(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(folder) })
	began := time.Now()
	var callers []*http.Client
	for i := range *hosts {
		socket := filepath.Join(folder, fmt.Sprint(i))
		cmd := exec.Command(quotad, "--socket", socket, "--name", fmt.Sprintf("host-%d", i), "--provider", "bench",
			"--endpoints", strings.Join(etcd.Endpoints(), ","))
		must(b, cmd.Start())
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		for range *hostClients {
			callers = append(callers, &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}}})
		}
	}
	b.ReportMetric(everyCall(b, callers)[clients-1].Sub(began).Seconds(), "all-served-s")

	var after []float64
	for range whole(20, 1) {
		set(few) // a permit a second for each host: the rest waits
		letPass(1500 * time.Millisecond)
		raised := make(chan time.Time, 1)
		time.AfterFunc(500*time.Millisecond, func() {
			raised <- time.Now()
			set(plenty)
		})
		answered := everyCall(b, callers)
		at := <-raised
		for _, t := range answered {
			if t.After(at) { // not by the old limit
				after = append(after, t.Sub(at).Seconds()*1e3)
			}
		}
	}
	slices.Sort(after)
	b.ReportMetric(after[len(after)/2], "set-p50-ms")
	b.ReportMetric(after[len(after)*99/100], "set-p99-ms")
	b.ReportMetric(after[len(after)-1], "set-max-ms")
	b.ReportMetric(0, "ns/op")
}

// everyCall has each client call until it has a permit, all at once, and returns when
// they had it, in order.
func everyCall(b *testing.B, callers []*http.Client) []time.Time {
	b.Helper()
	at := make([]time.Time, len(callers))
	var all sync.WaitGroup
	for i, c := range callers {
		all.Go(func() {
			for !served(b.Context(), c) && b.Context().Err() == nil {
				letPass(20 * time.Millisecond)
			}
			at[i] = time.Now()
		})
	}
	all.Wait()
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// served reports whether a call that may wait for 30 s got a permit.
func served(ctx context.Context, c *http.Client) bool {
	body := []byte(`{"provider": "bench", "max_wait": 30}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://quotad/v1/acquire", bytes.NewReader(body))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode == http.StatusOK
}
