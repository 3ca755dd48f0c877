package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is a process that calls.
type process struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	ready  chan struct{}
	heard  chan []int64 // all its calls, when it has ended
	killed bool
}

// run is a limiter in use.
type run struct {
	peer   *contender
	n      int
	tools  *tools
	server *service
	all    []*process
	moved  int
	calls  []int64
	once   sync.Once
}

// join starts a process.
func (r *run) join() error {
	share := r.peer.limit(r.n)
	cmd := exec.Command(os.Args[0], "-caller", r.peer.name, "-limit", fmt.Sprint(share), "-server", r.server.address(len(r.all))) //nolint:gosec,noctx // this program; it ends with its input
	if r.peer.kind == java {
		cmd = exec.Command("java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", r.tools.classpath, "bench.Caller", r.peer.name, fmt.Sprint(share)) //nolint:gosec,noctx // the same
	}
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	told, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, orders: orders, ready: make(chan struct{}), heard: make(chan []int64, 1)}
	go p.hear(told)
	r.all = append(r.all, p)
	return nil
}

// hear hears what a process tells, until it is gone.
func (p *process) hear(told io.Reader) {
	var calls []int64
	var once sync.Once
	in, word := bufio.NewReader(told), make([]byte, 8)
	for {
		if _, err := io.ReadFull(in, word); err != nil {
			break
		}
		if at := int64(binary.LittleEndian.Uint64(word)); at == 0 {
			once.Do(func() { close(p.ready) })
		} else {
			calls = append(calls, at)
		}
	}
	p.heard <- calls
}

// ready waits until all processes are ready.
func (r *run) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, p := range r.all {
		select {
		case <-p.ready:
		case <-ctx.Done():
			return errors.New("a process is not ready")
		}
	}
	return nil
}

// load tells all processes their loads. One has 80% of the calls, the others have equal parts.
func (r *run) load() {
	var alive []*process
	for _, p := range r.all {
		if !p.killed {
			alive = append(alive, p)
		}
	}
	wanted := 1.5 * float64(*limit)
	for i, p := range alive {
		part := 0.2 / float64(len(alive)-1)
		if i == r.moved%len(alive) {
			part = 0.8
		}
		p.order("load", part*wanted)
	}
}

func (p *process) order(word string, value float64) {
	// One that is gone is found by its end.
	_, _ = fmt.Fprintf(p.orders, "%s %g\n", word, value)
}

// loadUntil lets time pass, and moves the load every 3 s.
func (r *run) loadUntil(ctx context.Context, at time.Time) {
	r.load()
	for now := time.Now(); now.Before(at) && ctx.Err() == nil; now = time.Now() {
		select {
		case <-ctx.Done():
		case <-time.After(min(at.Sub(now), 3*time.Second)):
		}
		if time.Until(at) > time.Second {
			r.moved++
			r.load()
		}
	}
}

// kill kills a process.
func (r *run) kill(i int) {
	_ = r.all[i].cmd.Process.Kill()
	r.all[i].killed = true
	r.load()
}

// lower halves the limit.
func (r *run) lower(ctx context.Context) error {
	if r.server.lower != nil {
		return r.server.lower(ctx, *limit/2)
	}
	for _, p := range r.all {
		p.order("limit", float64(r.peer.limit(r.n)/2))
	}
	return nil
}

// end ends the processes, and returns their calls.
func (r *run) end() (calls []int64, err error) {
	r.once.Do(func() {
		for _, p := range r.all {
			_ = p.orders.Close()
		}
		for i, p := range r.all {
			late := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
			r.calls = append(r.calls, <-p.heard...)
			if failed := p.cmd.Wait(); failed != nil && !p.killed {
				err = errors.Join(err, fmt.Errorf("process %d: %w", i, failed))
			}
			late.Stop()
		}
	})
	return r.calls, err
}
