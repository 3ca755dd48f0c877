package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/examples/kafka-consumer/worker"
	"github.com/quotient-limiter/quotient/internal/child"
)

// memberVariable makes this program one consumer of a demonstration. It holds
// an order.
const memberVariable = "QUOTIENT_EXAMPLE_CONSUMER"

// reportEvery is the time between two reports of a child.
const reportEvery = 250 * time.Millisecond

// order tells a child what the flags, which it has too, do not.
type order struct {
	Name, Topic, Letters, Provider, URL string
	Brokers                             []string
	Endpoints                           []string // of the embedded etcd
}

// report is what a child tells on its standard output, one a line.
type report struct {
	State     string       `json:"state"`
	Share     int64        `json:"share"`
	Instances int          `json:"instances"`
	Member    worker.Stats `json:"member"`
}

// asChild is a consumer of a demonstration, until standard input ends.
func asChild(ctx context.Context, c *config, text string, stdout, stderr io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("%s: %w", memberVariable, err)
	}
	c.name, c.topic, c.letters, c.provider, c.providerURL, c.brokers = o.Name, o.Topic, o.Letters, o.Provider, o.URL, o.Brokers
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent says so, or is gone
		stop()
	}()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("consumer", c.name)
	client, err := c.client(ctx, o.Endpoints, log)
	if err != nil {
		return err
	}
	defer client.Close()
	i, err := c.open(ctx, client, log)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { i.report(stdout, over) })
	err = i.run(ctx)
	close(over)
	reporting.Wait()
	return err
}

// client connects to the etcd of the flags, or to the embedded one.
func (c *config) client(ctx context.Context, embedded []string, log *slog.Logger) (*clientv3.Client, error) {
	if c.etcd != nil {
		// The context that ends this consumer must not end its farewell.
		return c.etcd.Client(context.WithoutCancel(ctx))
	}
	return clientv3.New(clientv3.Config{Endpoints: embedded, DialTimeout: 5 * time.Second, Logger: coordinator.NewClientLogger(log)})
}

// report tells how things stand, until over is closed and once more then.
func (i *instance) report(w io.Writer, over <-chan struct{}) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	out := json.NewEncoder(w)
	for last := false; !last; {
		select {
		case <-tick.C:
		case <-over:
			last = true
		}
		s := i.limiter.Status()
		_ = out.Encode(report{string(s.State), s.Share, s.Instances, i.member.Stats()})
	}
}

// running is a consumer in a process of its own.
type running struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed when the process is gone

	mu struct {
		sync.Mutex
		last   report
		killed bool
		err    error // why the process ended
	}
}

// start starts a consumer with the arguments of this process.
func (o order) start(args []string) (*running, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd, err := child.Command(memberVariable, string(text))
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, args...)
	r := &running{name: o.Name, cmd: cmd, ended: make(chan struct{})}
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	go r.follow(out)
	return r, nil
}

// follow reads the reports until the process is gone.
func (r *running) follow(out io.Reader) {
	for d := json.NewDecoder(out); ; {
		var last report
		if d.Decode(&last) != nil {
			break
		}
		r.mu.Lock()
		r.mu.last = last
		r.mu.Unlock()
	}
	err := r.cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err = err
	close(r.ended)
}

// report returns the last report, and whether the process still runs.
func (r *running) report() (last report, runs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
		return r.mu.last, false
	default:
		return r.mu.last, true
	}
}

// kill ends the process without warning, as a crash would.
func (r *running) kill() error {
	r.mu.Lock()
	r.mu.killed = true
	r.mu.Unlock()
	err := r.cmd.Process.Kill()
	<-r.ended
	return err
}

// leave asks the process to end in good order; wait waits for that.
func (r *running) leave() { _ = r.stdin.Close() }

// wait returns why the process ended, nil if in good order or by kill.
func (r *running) wait(ctx context.Context) error {
	select {
	case <-r.ended:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s does not end: %w", r.name, ctx.Err()), r.kill())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.err != nil && !r.mu.killed {
		return fmt.Errorf("%s: %w", r.name, r.mu.err)
	}
	return nil
}
