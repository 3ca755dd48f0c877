//go:build e2e && linux

package quotad

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/opencalls"
	"github.com/quotient-limiter/quotient/quota"
)

// counter is a provider that counts the calls that are open: all together, and those of the clients in each
// language, by the path.
type counter struct {
	all, python, node opencalls.Provider
	made              atomic.Int64
}

// ServeHTTP answers after some milliseconds, and each eighth call after a second. A client that goes away ends no call.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	of := &c.node
	if r.URL.Path == "/python" {
		of = &c.python
	}
	for _, p := range []*opencalls.Provider{&c.all, of} {
		p.Begin()
		defer p.End()
	}
	lasts := 20 * time.Millisecond
	if c.made.Add(1)%8 == 0 {
		lasts = time.Second
	}
	<-time.After(lasts)
}

func open(p *opencalls.Provider) int {
	n, _, _ := p.Counts()
	return n
}

func made(p *opencalls.Provider) int {
	_, _, n := p.Counts()
	return n
}

// listens waits until a quotad does.
func listens(t *testing.T, socket string) {
	t.Helper()
	await.Until(t, "quotad listens", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// Two hosts share a limit of calls in flight. Clients in two languages are killed while their calls are open, and then a
// quotad. Never are more calls open at the provider than the limit, and the places of a host that has gone are the
// other's.
func TestCallsInFlightOfTwoHosts(t *testing.T) {
	const limit, callers = 12, 15 // of each host: one alone can use all of the limit
	policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: 8 * time.Second, InFlight: true}}}
	_, quotad, _, script := setUp(t, map[string]quota.Policy{"calls": policy})
	var p counter
	server := httptest.NewServer(&p)
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	dir := t.TempDir()
	first, second := filepath.Join(dir, "1.sock"), filepath.Join(dir, "2.sock")
	var wrong [2]bytes.Buffer
	python := func() *exec.Cmd {
		return run(t, &wrong[0], "python3", "testdata/flight.py", first, address, fmt.Sprint(callers))
	}
	node := func() *exec.Cmd {
		return run(t, &wrong[1], "node", "testdata/flight.mjs", script, second, address, fmt.Sprint(callers))
	}
	kill := func(c *exec.Cmd) {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	serves := func(of *opencalls.Provider, name string) {
		t.Helper()
		before := made(of)
		await.Until(t, "clients in "+name+" make calls", func() bool { return made(of) >= before+2*limit })
	}
	daemon := quotad("--socket", first, "--name", "first")
	quotad("--socket", second, "--name", "second")
	listens(t, first)
	listens(t, second)
	ofPython, ofNode := python(), node()
	serves(&p.python, "Python")
	serves(&p.node, "TypeScript")
	kill(ofNode)
	ofNode = node()
	serves(&p.node, "TypeScript")

	kill(ofPython) // whose calls are open, and which nobody ends
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	began := time.Now()
	await.Until(t, "the other host has all places", func() bool { return open(&p.node) == limit })
	t.Logf("%v after the end of one quotad, the other has all %d places", time.Since(began).Round(time.Millisecond), limit)
	quotad("--socket", first, "--name", "first")
	listens(t, first)
	ofPython = python()
	serves(&p.python, "Python")
	kill(ofPython)
	kill(ofNode)
	for n := range wrong {
		if said := wrong[n].String(); said != "" {
			t.Errorf("worker %d: %s", n, said)
		}
	}
	_, most, all := p.all.Counts()
	t.Logf("%d calls, at most %d of %d open", all, most, limit)
	if most > limit {
		t.Errorf("%d calls were open at once, the limit is %d", most, limit)
	}
}
