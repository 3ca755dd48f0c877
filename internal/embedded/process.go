package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/quotient-limiter/quotient/internal/cli/child"
)

const memberRole = "etcd member"

// RunIfMember turns this process into a member of a cluster, and does not
// return, if it was started as one by a Cluster with Options.Processes. Programs
// and tests that start such clusters call it first of all.
func RunIfMember() {
	child.Be(memberRole, func(c memberConfig, over <-chan struct{}, _ func(nothing)) error {
		server, err := c.start()
		if err != nil {
			return err
		}
		defer server.stop()
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		for {
			select {
			case <-over:
				return nil
			case <-asked:
				server.terminate()
			case err := <-server.Err(): // nil when it has ended as asked
				return err
			}
		}
	})
}

// nothing is what a member's process tells.
type nothing struct{}

// process is a member in a process of its own.
type process struct {
	*child.Process
	health string // URL of what says that it serves
}

func (p *process) stop() { _ = p.Close(startTimeout) }

func (p *process) terminate() <-chan struct{} {
	_ = p.Terminate() // one that is gone is just as well
	return p.Gone
}

// startProcess starts a member. If it ends without having been told to, onExit
// is called.
func startProcess(c memberConfig, onExit func(error)) (*process, error) {
	p, err := child.Start(memberRole, c, func(nothing) {}, onExit)
	return &process{p, c.health()}, err
}

// binaryVariable names a released etcd server in the environment, so that all
// tests can be run against it.
const binaryVariable = "QUOTIENT_TEST_ETCD"

// startBinary starts a member as a process of an etcd server. If it ends without
// having been told to, onExit is called.
func startBinary(path string, c memberConfig, onExit func(error)) (*process, error) {
	tick, election := c.timers()
	args := []string{
		"--name", c.Name, "--data-dir", c.Dir,
		"--listen-peer-urls", c.Peer.String(), "--initial-advertise-peer-urls", c.Peer.String(),
		"--listen-client-urls", c.Client.String(), "--advertise-client-urls", c.Client.String(),
		"--initial-cluster", c.Cluster, "--initial-cluster-state", c.State,
		"--heartbeat-interval", strconv.FormatUint(uint64(tick), 10),
		"--election-timeout", strconv.FormatUint(uint64(election), 10),
		"--auto-compaction-mode", "periodic", "--auto-compaction-retention", c.Retention.String(),
		"--enable-grpc-gateway=" + strconv.FormatBool(c.Gateway), "--unsafe-no-fsync", "--log-level", "panic", "--listen-metrics-urls", c.Metrics.String(),
	}
	if c.TLS != nil {
		args = append(args, "--client-cert-auth",
			"--cert-file", c.TLS.Cert, "--key-file", c.TLS.Key, "--trusted-ca-file", c.TLS.CA)
	}
	cmd := exec.Command(path, args...) //nolint:gosec // what the caller asked for
	cmd.Stderr = os.Stderr
	p, err := child.Run(cmd, onExit)
	return &process{p, c.health()}, err
}

// ready waits until the member says that it serves.
func (p *process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health, http.NoBody)
		if err != nil {
			return err
		}
		r.Close = true
		if answer, err := http.DefaultClient.Do(r); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.Gone:
			return errors.New("member process ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("member process is not ready after %v", startTimeout)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
