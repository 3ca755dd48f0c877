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
	"time"
)

// Process is a child as its parent sees it. The two talk in JSON objects over the
// child's standard input and output: orders of type O go down, reports of type R
// come up. Its methods are safe for concurrent use.
type Process[O, R any] struct {
	// Name is what the process is, with its id.
	Name string
	// Gone is closed when the process is no more, and all it told was heard.
	Gone chan struct{}

	cmd   *exec.Cmd
	asked atomic.Bool // it was told to end, or killed by us
	mu    sync.Mutex  // of stdin
	stdin io.WriteCloser
}

// Start starts this program as a child, with the variable set in its environment.
// hear is called with each of its reports, in turn; lost once, if it ends without
// having been asked to.
func Start[O, R any](variable, value string, hear func(R), lost func(error)) (*Process[O, R], error) {
	cmd, err := Command(variable, value)
	if err != nil {
		return nil, err
	}
	p := &Process[O, R]{cmd: cmd, Gone: make(chan struct{})}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s process: %w", value, err)
	}
	p.Name = fmt.Sprintf("%s process %d", value, cmd.Process.Pid)
	go p.listen(out, hear, lost)
	return p, nil
}

// listen hears the child until it is gone.
func (p *Process[O, R]) listen(out io.Reader, hear func(R), lost func(error)) {
	err := each(out, func(r R) error { hear(r); return nil })
	if err != nil { // it talks nonsense
		_ = p.cmd.Process.Kill()
	}
	err = errors.Join(err, p.cmd.Wait())
	close(p.Gone)
	if p.asked.Load() {
		return
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	lost(fmt.Errorf("%s ended though nobody had asked it to: %w", p.Name, err))
}

// Send gives an order.
func (p *Process[O, R]) Send(o O) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return fmt.Errorf("%s takes no orders: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process without warning and returns when it is no more.
func (p *Process[O, R]) Kill() {
	p.asked.Store(true)
	_ = p.cmd.Process.Kill() // one that is gone already is just as well
	_ = p.stdin.Close()
	<-p.Gone
}

// End gives the last order, waits until done is closed, which hear does at the last
// report, and lets the process exit. It kills the process if that takes longer than
// patience. A process that is gone already is no error: that was told.
func (p *Process[O, R]) End(last O, done <-chan struct{}, patience time.Duration) error {
	select {
	case <-p.Gone:
		return nil
	default:
	}
	p.asked.Store(true)
	err := p.Send(last)
	late := time.NewTimer(patience)
	defer late.Stop()
	if err == nil {
		select {
		case <-done:
			_ = p.stdin.Close()
		case <-p.Gone:
			return fmt.Errorf("%s ended before it was done", p.Name)
		case <-late.C:
			err = fmt.Errorf("%s did not end within %v and was killed", p.Name, patience)
		}
	}
	if err == nil {
		select {
		case <-p.Gone:
			return nil
		case <-late.C:
			err = fmt.Errorf("%s did not exit within %v and was killed", p.Name, patience)
		}
	}
	p.Kill()
	return err
}

// Used returns the processor time that the process has used in all. It must be
// gone.
func (p *Process[O, R]) Used() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Serve is the child's side: it obeys orders until the parent has no more, or is
// gone, or one fails. tell may be used by several goroutines, also after obey has
// returned. Ctrl-C in a terminal is for the parent.
func Serve[O, R any](obey func(o O, tell func(R)) error) error {
	signal.Ignore(os.Interrupt)
	return serve(os.Stdin, os.Stdout, obey)
}

func serve[O, R any](in io.Reader, out io.Writer, obey func(o O, tell func(R)) error) error {
	var mu sync.Mutex
	tell := func(r R) {
		mu.Lock()
		defer mu.Unlock()
		// A parent that is gone hears nothing; the end of its orders says so too.
		_ = json.NewEncoder(out).Encode(r)
	}
	return each(in, func(o O) error { return obey(o, tell) })
}

// each reads objects until there are no more, or f fails. Both ends are the same
// program, so a field that is not known is an error.
func each[T any](r io.Reader, f func(T) error) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	for {
		var t T
		if err := d.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("not an object that was expected: %w", err)
		}
		if err := f(t); err != nil {
			return err
		}
	}
}
