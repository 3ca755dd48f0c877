//go:build e2e && linux

package quotad

import (
	"bufio"
	"bytes"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// parts counts each client's permits by the end of their window.
type parts struct {
	want []int // of each client, in a window

	mu     sync.Mutex
	counts map[string][]int
}

// read counts what a client prints.
func (p *parts) read(client int, out *bufio.Scanner) {
	for out.Scan() {
		p.mu.Lock()
		if p.counts[out.Text()] == nil {
			p.counts[out.Text()] = make([]int, len(p.want))
		}
		p.counts[out.Text()][client]++
		p.mu.Unlock()
	}
}

// whole returns the windows in which all clients have permits, but for the last, oldest
// first.
func (p *parts) whole() (list [][]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ends []string
	for end, n := range p.counts {
		if !slices.Contains(n, 0) {
			ends = append(ends, end)
		}
	}
	slices.Sort(ends)
	for _, end := range ends[:max(0, len(ends)-1)] {
		list = append(list, slices.Clone(p.counts[end]))
	}
	return list
}

// divided reports whether all clients have their parts, but for one permit, in so many
// windows on end.
func (p *parts) divided(windows int) bool {
	run := 0
	for _, got := range p.whole() {
		run++
		for i, n := range got {
			if n < p.want[i]-1 {
				run = 0
			}
		}
		if run == windows {
			return true
		}
	}
	return false
}

const permits = 60

// await starts clients that call all the time and print their permits, and waits until each
// has its part.
func (p *parts) await(t *testing.T, clients ...*exec.Cmd) {
	t.Helper()
	p.counts = map[string][]int{}
	for n, c := range clients {
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, c, &bytes.Buffer{})
		go p.read(n, bufio.NewScanner(out))
	}
	await.Until(t, "all clients have their parts in three windows on end", func() bool { return p.divided(3) })
	t.Log(p.whole())
}

// callers are how many each client has: fewer than its part, so it has to call again in time.
const callers = "4"

// All clients beside each other, as processes that call all the time, get equal parts of
// quotad's share. Without parts the quickest gets half of it, and the slowest a tenth.
func TestClientsGetEqualParts(t *testing.T) {
	_, quotad, socket, script := setUp(t, map[string]quota.Policy{"p": {Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}})
	quotad()
	p := &parts{want: []int{20, 20, 20}}
	p.await(t,
		exec.Command("python3", "testdata/parts.py", socket, callers),
		exec.Command("python3", "testdata/parts.py", socket, callers, "asyncio"),
		exec.Command("node", "testdata/parts.mjs", script, socket, callers))
}

// A certificate is a user with one process, however many connections show it: its client gets
// as much as both processes of the user at the socket together.
func TestACertificateIsAUser(t *testing.T) {
	_, quotad, socket, script := setUp(t, map[string]quota.Policy{"p": {Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}})
	server, client := overTLS(t)
	quotad(server...)
	p := &parts{want: []int{15, 15, 30}}
	p.await(t,
		exec.Command("python3", "testdata/parts.py", socket, callers),
		exec.Command("node", "testdata/parts.mjs", script, socket, callers),
		exec.Command("python3", append([]string{"testdata/parts.py", client[0], callers}, client[1:]...)...))
}
