// Package child starts this very program again as a child process that does not
// outlive it.
//
// A child is told its role by a variable in its environment, and looks for it first
// of all. The two talk in JSON objects: a configuration and orders go down the child's
// standard input, reports come up its standard output. The end of the orders asks the
// child to end in good order, and comes also when the parent is gone, however that
// ended. Linux then kills the child too, so that one that is stopped (SIGSTOP) or
// stuck does not stay behind either.
//
// A child is in a process group of its own: Ctrl-C in a terminal reaches the parent
// alone, which ends its children in good order.
package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// RoleVariable holds the role, in the environment of a child.
const RoleVariable = "QUOTIENT_CHILD"

// Be turns this process into a child, and does not return, if it was started as one
// in this role. Programs and tests that start children call it first of all. run gets
// the configuration and the orders, and tells reports, also from several goroutines.
func Be[C, O, R any](role string, run func(c C, orders <-chan O, tell func(R)) error) {
	if os.Getenv(RoleVariable) != role {
		return
	}
	signal.Ignore(os.Interrupt)
	if err := serve(os.Stdin, os.Stdout, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s process %d: %v\n", role, os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve[C, O, R any](in io.Reader, out io.Writer, run func(c C, orders <-chan O, tell func(R)) error) error {
	var mu sync.Mutex
	tell := func(r R) {
		mu.Lock()
		defer mu.Unlock()
		// A parent that is gone hears nothing; the end of its orders says so too.
		_ = json.NewEncoder(out).Encode(r)
	}
	d := json.NewDecoder(in)
	var c C
	if more, err := next(d, &c); !more {
		return err
	}
	orders, broken := make(chan O), make(chan error, 1)
	go func() {
		defer close(orders)
		for {
			var o O
			more, err := next(d, &o)
			if !more {
				broken <- err
				return
			}
			orders <- o
		}
	}()
	err := run(c, orders, tell)
	select {
	case failed := <-broken:
		return errors.Join(err, failed)
	default:
		return err
	}
}

// next reads an object; more is false if there is none. Both ends are the same
// program, so a field that is not known is an error.
func next(d *json.Decoder, into any) (more bool, err error) {
	d.DisallowUnknownFields()
	switch err := d.Decode(into); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("not an object that was expected: %w", err)
	}
	return true, nil
}

// Process is a child as its parent sees it. Its methods are safe for concurrent use.
type Process struct {
	// Name is what the process is, with its id.
	Name string
	// PID is the process's id.
	PID int
	// Gone is closed when the process is no more, and all it told was heard.
	Gone chan struct{}

	cmd   *exec.Cmd
	asked atomic.Bool // it was told to end, or killed by us
	mu    sync.Mutex  // of stdin
	stdin io.WriteCloser
}

// Start starts this program in the role. hear is called with each of its reports, in
// turn; lost once, if it ends without having been asked to. Its standard error is
// ours.
func Start[R any](role string, config any, hear func(R), lost func(error)) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("child: this program cannot be found to be started again: %w", err)
	}
	cmd := exec.Command(self) //nolint:gosec // this very program
	cmd.Stderr = os.Stderr
	return Launch(cmd, role, config, hear, lost)
}

// Launch is like Start, by a command that becomes this program.
func Launch[R any](cmd *exec.Cmd, role string, config any, hear func(R), lost func(error)) (p *Process, err error) {
	cmd.Env = append(os.Environ(), RoleVariable+"="+role)
	p = &Process{cmd: cmd}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	listen := func() error {
		d := json.NewDecoder(out)
		for {
			var r R
			more, err := next(d, &r)
			if !more {
				return err
			}
			hear(r)
		}
	}
	if err := p.start(role, listen, lost); err != nil {
		return nil, err
	}
	return p, p.Send(config)
}

// Run starts another program, which has no orders and is not heard. lost is called as
// by Start.
func Run(cmd *exec.Cmd, lost func(error)) (*Process, error) {
	p := &Process{cmd: cmd}
	return p, p.start(cmd.Path, func() error { return nil }, lost)
}

func (p *Process) start(name string, listen func() error, lost func(error)) error {
	p.Gone = make(chan struct{})
	Tie(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%s process: %w", name, err)
	}
	p.PID = p.cmd.Process.Pid
	p.Name = fmt.Sprintf("%s process %d", name, p.PID)
	go func() {
		err := listen()
		if err != nil { // it talks nonsense
			_ = p.cmd.Process.Kill()
		}
		if err = errors.Join(err, p.cmd.Wait()); err == nil {
			err = errors.New("exit status 0")
		}
		close(p.Gone)
		if !p.asked.Load() {
			lost(fmt.Errorf("%s ended though nobody had asked it to: %w", p.Name, err))
		}
	}()
	return nil
}

// Send gives an order.
func (p *Process) Send(order any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := json.NewEncoder(p.stdin).Encode(order); err != nil {
		return fmt.Errorf("%s takes no orders: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process without warning and returns when it is no more.
func (p *Process) Kill() {
	p.asked.Store(true)
	_ = p.cmd.Process.Kill() // one that is gone already is just as well
	<-p.Gone
}

// Terminate sends the process a SIGTERM, and does not wait for its end. Not on Windows.
func (p *Process) Terminate() error {
	p.asked.Store(true)
	return p.cmd.Process.Signal(syscall.SIGTERM)
}

// Close has the process end in good order, and kills it if that takes longer than
// patience. A process that is gone already is no error: that was told.
func (p *Process) Close(patience time.Duration) error {
	p.asked.Store(true)
	if p.stdin != nil {
		_ = p.stdin.Close() // the end of the orders
	} else {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	_ = p.Resume() // or it cannot obey
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-p.Gone:
		return nil
	case <-late.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %v and was killed", p.Name, patience)
	}
}

// Used returns the processor time that the process has used in all. It must be gone.
func (p *Process) Used() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}
