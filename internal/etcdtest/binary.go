package etcdtest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/internal/child"
)

// binaryVariable names a released etcd server in the environment, so that all
// tests can be run against it.
const binaryVariable = "QUOTIENT_TEST_ETCD"

// startBinary starts a member as a process of an etcd server. If it ends without
// having been told to, onExit is called.
func startBinary(path string, c memberConfig, onExit func(error)) (*process, error) {
	tick, election := c.timers()
	args := []string{
		"--name", c.Name, "--data-dir", c.Dir,
		"--listen-peer-urls", c.Peer, "--initial-advertise-peer-urls", c.Peer,
		"--listen-client-urls", c.Client, "--advertise-client-urls", c.Client,
		"--initial-cluster", c.Cluster, "--initial-cluster-state", c.State,
		"--heartbeat-interval", strconv.FormatUint(uint64(tick), 10),
		"--election-timeout", strconv.FormatUint(uint64(election), 10),
		"--auto-compaction-mode", "periodic", "--auto-compaction-retention", c.Retention.String(),
		"--enable-grpc-gateway=false", "--unsafe-no-fsync", "--log-level", "panic",
	}
	health := c.Client
	if c.TLS != nil {
		// Who asks for its health has no certificate.
		free, err := FreeAddresses(1)
		if err != nil {
			return nil, err
		}
		health = "http://" + free[0]
		args = append(args, "--listen-metrics-urls", health, "--client-cert-auth",
			"--cert-file", c.TLS.Cert, "--key-file", c.TLS.Key, "--trusted-ca-file", c.TLS.CA)
	}
	cmd := exec.Command(path, args...) //nolint:gosec // what the caller asked for
	cmd.Stderr = os.Stderr
	child.Tie(cmd)
	p := &process{cmd: cmd, url: health, ended: make(chan struct{})}
	return p, p.start(onExit)
}

// healthy waits until the server says that it serves.
func (p *process) healthy() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/health", http.NoBody)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended early: %s", p.cmd.Path, p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy after %v", p.cmd.Path, startTimeout)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
