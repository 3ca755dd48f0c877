package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/child"
)

// endPatience is how long a child may take to end in good order.
const endPatience = 30 * time.Second

// process is a child as the parent sees it.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	orders lineWriter
	asked  atomic.Bool   // it was told to end, or killed by us
	ended  chan *ended   // its last report
	gone   chan struct{} // closed when the process is no more; what it told was heard before
}

// spawn starts a child and sets it up. hear is called with each of its reports,
// in turn; lost once, if it ends without having been asked to.
func spawn(role string, s *setup, hear func(report), lost func(error)) (*process, error) {
	cmd, err := child.Command(roleVariable, role)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan *ended, 1), gone: make(chan struct{})}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s process: %w", role, err)
	}
	p.name = fmt.Sprintf("%s process %d", role, cmd.Process.Pid)
	p.orders.w = p.stdin
	go p.listen(out, hear, lost)
	if err := p.send(order{Setup: s}); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// listen hears the child until it is gone.
func (p *process) listen(out io.Reader, hear func(report), lost func(error)) {
	err := eachLine(out, func(line []byte) error {
		r, err := parseReport(line)
		if err != nil {
			return err
		}
		if r.Failed != "" {
			r.Failed = p.name + ": " + r.Failed
		}
		hear(r)
		if r.Ended != nil {
			p.ended <- r.Ended
		}
		return nil
	})
	if err != nil { // it talks nonsense
		_ = p.cmd.Process.Kill()
	}
	err = errors.Join(err, p.cmd.Wait())
	close(p.gone)
	if p.asked.Load() {
		return
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	lost(fmt.Errorf("%s ended though nobody had asked it to: %w", p.name, err))
}

// send gives an order.
func (p *process) send(o order) error {
	if err := p.orders.write(o); err != nil {
		return fmt.Errorf("%s takes no orders: %w", p.name, err)
	}
	return nil
}

// kill ends the process without warning and returns when it is no more.
func (p *process) kill() {
	p.asked.Store(true)
	_ = p.cmd.Process.Kill() // who is gone already is just as well
	_ = p.stdin.Close()
	<-p.gone
}

// end lets the process end in good order, and kills it if that takes too long.
// Its last report is nil if there was none. Nothing is said of a process that is
// gone already: that was told.
func (p *process) end() (*ended, error) {
	select {
	case <-p.gone:
		return nil, nil
	default:
	}
	p.asked.Store(true)
	err := p.send(order{End: true})
	late := time.NewTimer(endPatience)
	defer late.Stop()
	var last *ended
	if err == nil {
		select {
		case last = <-p.ended:
		case <-p.gone:
			err = fmt.Errorf("%s ended before it had closed its instances", p.name)
		case <-late.C:
			err = fmt.Errorf("%s did not end within %v and was killed", p.name, endPatience)
		}
	}
	if err == nil {
		_ = p.stdin.Close()
		select {
		case <-p.gone:
			return last, nil
		case <-late.C:
			err = fmt.Errorf("%s did not exit within %v and was killed", p.name, endPatience)
		}
	}
	p.kill()
	return last, err
}

// used returns the processor time that the process has used in all. It must be
// gone.
func (p *process) used() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}
