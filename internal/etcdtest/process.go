package etcdtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// memberVariable holds a member's configuration in the environment of the
// process that is to be it.
const memberVariable = "QUOTIENT_ETCD_MEMBER"

// RunIfMember turns this process into a member of a cluster, and does not
// return, if it was started as one by a Cluster with Options.Processes. Programs
// and tests that start such clusters call it first of all.
func RunIfMember() {
	text, ok := os.LookupEnv(memberVariable)
	if !ok {
		return
	}
	var c memberConfig
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = serve(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdtest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve is a member until SIGTERM, or until the process that started it is gone.
func serve(c memberConfig) error {
	server, err := c.start(nil)
	if err != nil {
		return err
	}
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGTERM, os.Interrupt)
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent dies
		close(gone)
	}()
	if err := awaitReady(server, c.Name); err != nil {
		return err
	}
	fmt.Println("ready")
	select {
	case <-over:
	case <-gone:
	case err := <-server.Err():
		return err
	}
	server.Close()
	return nil
}

// process is a member in a process of its own.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Reader
}

func startProcess(c memberConfig) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self)} //nolint:gosec // this very program
	p.cmd.Env = append(os.Environ(), memberVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	ownGroup(p.cmd)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *process) ready() error {
	line := make(chan string, 1)
	go func() {
		s, _ := p.lines.ReadString('\n')
		line <- strings.TrimSpace(s)
	}()
	select {
	case s := <-line:
		if s != "ready" {
			return fmt.Errorf("member process ended: %w", p.cmd.Wait())
		}
		return nil
	case <-time.After(startTimeout):
		return fmt.Errorf("member process is not ready after %v", startTimeout)
	}
}

func (p *process) stop(s os.Signal) {
	_ = p.cmd.Process.Signal(s)
	timer := time.AfterFunc(startTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait()
	_ = p.stdin.Close()
}

func awaitReady(server *embed.Etcd, name string) error {
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("member %s: %w", name, err)
	case <-time.After(startTimeout):
		return fmt.Errorf("member %s is not ready after %v", name, startTimeout)
	}
}
