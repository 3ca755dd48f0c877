//go:build e2e && linux

package faults

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// timeServers are four NTP servers on hosts of their own: real chrony daemons
// that leave the host's clock alone.
type timeServers struct{ good, liar, dead, slow *host }

const lie = 300 * time.Millisecond

// newTimeServers starts chronyd on three hosts; on the fourth nothing listens,
// and packets are dropped.
func newTimeServers(t *testing.T, f *fabric, log io.Writer) *timeServers {
	t.Helper()
	s := &timeServers{newHost(t, f, "good", 31), newHost(t, f, "liar", 32), newHost(t, f, "dead", 33), newHost(t, f, "slow", 34)}
	command(t, "ip", "netns", "exec", s.dead.name, "nft", "add rule ip cut in drop")
	f.set(s.slow.address, link{delay: 40 * time.Millisecond, jitter: 10 * time.Millisecond})
	const serve = "local stratum 8\nallow all\ncmdport 0\n"
	chrony(t, s.good, log, serve)
	chrony(t, s.slow, log, serve)
	// A daemon that follows the good one, and believes that it is 300 ms slow.
	chrony(t, s.liar, log, fmt.Sprintf("server %s minpoll 0 maxpoll 0 iburst offset %.3f\nallow all\ncmdport 0\n", s.good.ip(), lie.Seconds()))
	return s
}

func (s *timeServers) addresses() []string {
	return []string{s.good.ip(), s.liar.ip(), s.dead.ip(), s.slow.ip()}
}

// chrony starts a daemon with a configuration.
func chrony(t *testing.T, h *host, log io.Writer, config string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "chrony.conf")
	config += fmt.Sprintf("pidfile %s/pid\nbindcmdaddress /\n", dir)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// -x: never touch the clock; -d: in the foreground; -u: chronyd drops root.
	h.start(log, "chronyd", "-x", "-d", "-f", file, "-u", "root")
}
