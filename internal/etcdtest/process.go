package etcdtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quotient-limiter/quotient/internal/child"
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
	cmd      *exec.Cmd
	stdin    io.Closer     // nil for a binary
	lines    *bufio.Reader // nil for a binary
	url      string        // for clients
	stopping atomic.Bool   // it was told to end
	ended    chan struct{} // closed when it has; err is set before
	err      error
}

// startProcess starts a member. If it ends without having been told to, onExit
// is called.
func startProcess(c memberConfig, onExit func(error)) (*process, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &process{url: c.Client, ended: make(chan struct{})}
	if p.cmd, err = child.Command(memberVariable, string(text)); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(out)
	return p, p.start(onExit)
}

// start starts the process, and looks out for its end.
func (p *process) start(onExit func(error)) error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
		if !p.stopping.Load() {
			onExit(p.err)
		}
	}()
	return nil
}

func (p *process) ready() error {
	if p.lines == nil {
		return p.healthy()
	}
	line := make(chan string, 1)
	go func() {
		s, _ := p.lines.ReadString('\n')
		line <- strings.TrimSpace(s)
	}()
	select {
	case s := <-line:
		if s == "ready" {
			return nil
		}
		<-p.ended // it closed its standard output
		if p.err != nil {
			return fmt.Errorf("member process ended: %w", p.err)
		}
		return errors.New("member process ended before it was ready")
	case <-time.After(startTimeout):
		return fmt.Errorf("member process is not ready after %v", startTimeout)
	}
}

func (p *process) stop(s os.Signal) {
	p.stopping.Store(true)
	_ = p.cmd.Process.Signal(s)
	wake(p.cmd.Process)
	timer := time.AfterFunc(startTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.ended
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
}

func awaitReady(server *server, name string) error {
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("member %s: %w", name, err)
	case <-time.After(startTimeout):
		return fmt.Errorf("member %s is not ready after %v", name, startTimeout)
	}
}
