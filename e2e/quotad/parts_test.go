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

	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/quota"
)

// parts counts each client's permits by the end of their window.
type parts struct {
	mu     sync.Mutex
	counts map[string]*[clients]int
}

const clients = 3

// read counts what a client prints.
func (p *parts) read(client int, out *bufio.Scanner) {
	for out.Scan() {
		p.mu.Lock()
		if p.counts[out.Text()] == nil {
			p.counts[out.Text()] = &[clients]int{}
		}
		p.counts[out.Text()][client]++
		p.mu.Unlock()
	}
}

// whole returns the windows in which all clients have permits, but for the last, oldest
// first.
func (p *parts) whole() (list [][clients]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ends []string
	for end, n := range p.counts {
		if !slices.Contains(n[:], 0) {
			ends = append(ends, end)
		}
	}
	slices.Sort(ends)
	for _, end := range ends[:max(0, len(ends)-1)] {
		list = append(list, *p.counts[end])
	}
	return list
}

// equal reports whether all clients have equal parts in so many windows on end.
func (p *parts) equal(windows int) bool {
	run := 0
	for _, got := range p.whole() {
		if run++; slices.Min(got[:]) < permits/clients-1 {
			run = 0
		}
		if run == windows {
			return true
		}
	}
	return false
}

const permits = 60

// All clients beside each other, as processes that call all the time, get equal parts of
// quotad's share. Without parts the quickest gets half of it, and the slowest a tenth.
func TestClientsGetEqualParts(t *testing.T) {
	_, quotad, socket, script := setUp(t, map[string]quota.Policy{"p": {Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}})
	quotad()
	const callers = "4" // of each client: fewer than its part, so it has to call again in time
	p := &parts{counts: map[string]*[clients]int{}}
	var said [clients]bytes.Buffer
	for n, c := range []*exec.Cmd{
		exec.Command("python3", "testdata/parts.py", socket, callers),
		exec.Command("python3", "testdata/parts.py", socket, callers, "asyncio"),
		exec.Command("node", "testdata/parts.mjs", script, socket, callers),
	} {
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, c, &said[n])
		go p.read(n, bufio.NewScanner(out))
	}
	await.Until(t, "all clients have equal parts in three windows on end", func() bool { return p.equal(3) })
	t.Log(p.whole())
}
