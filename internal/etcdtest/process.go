package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/internal/child"
)

const memberRole = "etcd member"

// RunIfMember turns this process into a member of a cluster, and does not
// return, if it was started as one by a Cluster with Options.Processes. Programs
// and tests that start such clusters call it first of all.
func RunIfMember() {
	child.Be(memberRole, func(c memberConfig, over <-chan struct{}, tell func(serving)) error {
		server, err := c.start()
		if err != nil {
			return err
		}
		defer server.stop()
		if err := server.ready(); err != nil {
			return err
		}
		tell(serving{})
		select {
		case <-over:
			return nil
		case err := <-server.Err():
			return err
		}
	})
}

// serving is what a member's process tells.
type serving struct{}

// process is a member in a process of its own.
type process struct {
	*child.Process
	serves func() error // returns when the member serves
}

func (p *process) ready() error { return p.serves() }

func (p *process) stop() { _ = p.Close(startTimeout) }

// startProcess starts a member. If it ends without having been told to, onExit
// is called.
func startProcess(c memberConfig, onExit func(error)) (*process, error) {
	serves := make(chan struct{})
	p, err := child.Start(memberRole, c, func(serving) { close(serves) }, onExit)
	if err != nil {
		return nil, err
	}
	return &process{p, func() error {
		select {
		case <-serves:
			return nil
		case <-p.Gone:
			return errors.New("member process ended before it was ready")
		case <-time.After(startTimeout):
			return fmt.Errorf("member process is not ready after %v", startTimeout)
		}
	}}, nil
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
		"--enable-grpc-gateway=false", "--unsafe-no-fsync", "--log-level", "panic",
	}
	health := c.Client.String()
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
	p, err := child.Run(cmd, onExit)
	if err != nil {
		return nil, err
	}
	return &process{p, func() error { return healthy(health, p.Gone) }}, nil
}

// healthy waits until the server at a URL says that it serves.
func healthy(url string, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", http.NoBody)
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
		case <-gone:
			return errors.New("etcd ended before it was healthy")
		case <-ctx.Done():
			return fmt.Errorf("etcd is not healthy after %v", startTimeout)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
