package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
)

// workerVariable makes this program a worker; its value is the setup.
const workerVariable = "QUOTIENT_SCALE_WORKER"

const provider = "scale"

// joinPause is how long an instance waits that could not join.
const joinPause = 500 * time.Millisecond

// fleetNice is how far the fleet's processes stand behind etcd's.
const fleetNice = 10

// setup is what a worker must know.
type setup struct {
	Endpoints   []string
	First, Size int // the instances' numbers
	PerClient   int
	Limiters    int // of each instance
	TTL, Probe  time.Duration
	Patience    time.Duration
	Spread      time.Duration
	Profile     string // file; empty for none
	Log         string // file; empty for none
}

// order is one line to a worker, answer its reply.
type order struct {
	Do       string // join, applied or use
	Revision int64  // of the policy, for applied
}

type answer struct {
	Err string `json:",omitempty"`
	// Of join: instants in Unix nanoseconds, one per instance.
	Registered, Ready []int64 `json:",omitempty"`
	Retries           int64   `json:",omitempty"`
	// Of applied: when each instance had applied the policy.
	Applied []int64 `json:",omitempty"`
	// Of use.
	CPU      time.Duration `json:",omitempty"`
	Resident int           `json:",omitempty"`
	Events   int64         `json:",omitempty"` // revisions that the sinks were given
	Listings int64         `json:",omitempty"` // with which histories began
	Applying time.Duration `json:",omitempty"` // in which they took them
}

// worker is the instances of one process.
type worker struct {
	setup
	taps    []*tap
	retries atomic.Int64
	log     *slog.Logger
}

// runIfWorker makes this process a worker, if it was started as one, and does
// not return then.
func runIfWorker() {
	text, ok := os.LookupEnv(workerVariable)
	if !ok {
		return
	}
	var w worker
	err := errors.Join(giveWay(), json.Unmarshal([]byte(text), &w.setup))
	if err == nil {
		err = w.serve(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale: worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve obeys orders until the input ends.
func (w *worker) serve(in io.Reader, out io.Writer) error {
	w.log = slog.New(slog.DiscardHandler)
	if w.Log != "" {
		f, err := os.Create(filepath.Clean(w.Log))
		if err != nil {
			return err
		}
		defer f.Close()
		w.log = slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	enc := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		var a answer
		var err error
		switch o.Do {
		case "join":
			a, err = w.join()
		case "applied":
			a, err = w.applied(o.Revision)
		case "use":
			a, err = w.use()
		default:
			err = fmt.Errorf("unknown order %q", o.Do)
		}
		if err != nil {
			a.Err = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// join opens all instances, at once or in the time told, and returns when all may
// issue permits.
func (w *worker) join() (a answer, err error) {
	if w.Profile != "" {
		f, err := os.Create(filepath.Clean(w.Profile))
		if err != nil {
			return a, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return a, err
		}
		defer pprof.StopCPUProfile()
	}
	clients := make([]*clientv3.Client, (w.Size+w.PerClient-1)/w.PerClient)
	for i := range clients {
		if clients[i], err = clientv3.New(clientv3.Config{Endpoints: w.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}); err != nil {
			return a, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.Patience)
	defer cancel()
	w.taps = make([]*tap, w.Size)
	a.Registered, a.Ready = make([]int64, w.Size), make([]int64, w.Size)
	errs := make(chan error, w.Size)
	var all sync.WaitGroup
	for i := range w.taps {
		all.Go(func() {
			time.Sleep(w.Spread * time.Duration(i) / time.Duration(w.Size))
			t, err := w.open(ctx, clients[i/w.PerClient], i)
			if err == nil {
				if err = t.limiters[0].Ready(ctx); err != nil {
					err = fmt.Errorf("%w: %s", err, t.limiters[0].Status().Problem)
				}
			}
			if err != nil {
				errs <- fmt.Errorf("instance %d: %w", w.First+i, err)
				return
			}
			w.taps[i], a.Registered[i], a.Ready[i] = t, t.registered.Load(), time.Now().UnixNano()
		})
	}
	all.Wait()
	a.Retries = w.retries.Load()
	if failed := len(errs); failed > 0 {
		err = fmt.Errorf("%d of %d instances are not active after %v, one of them: %w", failed, w.Size, w.Patience, <-errs)
	}
	return a, err
}

// open makes one instance; it tries again as long as ctx allows.
func (w *worker) open(ctx context.Context, client *clientv3.Client, i int) (*tap, error) {
	name := fmt.Sprintf("scale-%d", w.First+i)
	log := w.log.With("instance", name)
	for {
		s, err := coordinator.Join(ctx, client, coordinator.Options{Name: name, TTL: w.TTL, Probe: w.Probe, Logger: log})
		if err == nil {
			t := &tap{Source: s}
			for len(t.limiters) < w.Limiters && err == nil {
				var l *consumer.Limiter
				l, err = consumer.Open(ctx, t, provider, consumer.Options{Logger: log})
				t.limiters = append(t.limiters, l)
			}
			return t, err
		}
		w.retries.Add(1)
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(joinPause):
		}
	}
}

// applied waits until all instances have applied the policy of a revision.
func (w *worker) applied(revision int64) (a answer, err error) {
	end := time.Now().Add(w.Patience)
	for _, t := range w.taps {
		for t.policy.Load() < revision {
			if time.Now().After(end) {
				return a, fmt.Errorf("an instance has not applied revision %d after %v", revision, w.Patience)
			}
			time.Sleep(5 * time.Millisecond)
		}
		a.Applied = append(a.Applied, t.appliedAt.Load())
	}
	return a, nil
}

// use returns what this process has used so far.
func (w *worker) use() (answer, error) {
	a := answer{CPU: measure.CPU()}
	self, err := procfs.Self()
	if err != nil {
		return a, err
	}
	stat, err := self.Stat()
	a.Resident = stat.ResidentMemory()
	for _, t := range w.taps {
		a.Events += t.events.Load()
		a.Listings += t.listings.Load()
		a.Applying += time.Duration(t.applying.Load())
	}
	return a, err
}
