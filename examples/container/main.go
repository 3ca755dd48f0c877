// Container is a worker for a container platform. It does jobs, each with a permit of
// its own, until the platform sends SIGTERM. Then it hands its share over to the other
// instances without losing a permit. It ends the jobs that it has begun, and exits
// within the grace period.
//
// Settings come from the environment:
//
//	ETCD_ENDPOINTS  addresses separated by commas; default 127.0.0.1:2379
//	PROVIDER        the provider whose limit the worker obeys; default demo/jobs
//	WORKERS         jobs that are done at a time; default 8
//	JOB             how long a job takes; default 20ms
//	GRACE           what the platform allows from SIGTERM to SIGKILL; default 30s
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

func main() {
	// Platforms send SIGTERM; a terminal's Ctrl-C does the same. After the first
	// one signals do again what they always do, so a second one ends the process.
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(terminated, stop)
	s, err := settingsFrom(os.Getenv)
	if err == nil {
		err = serve(terminated, s)
	}
	if err != nil {
		slog.Error("worker failed", "error", err)
		os.Exit(1)
	}
}

// serve works until terminated ends, and then ends in good order.
func serve(terminated context.Context, s settings) error {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: s.endpoints, DialTimeout: 5 * time.Second,
		Logger: coordinator.NewClientLogger(slog.Default()),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := coordinator.Join(terminated, client, coordinator.Options{}) // named after the pod: its host name
	if err != nil {
		return fmt.Errorf("etcd at %v: %w", s.endpoints, err)
	}
	defer session.Close() // nothing more to do after a Leave
	limiter, err := consumer.Open(terminated, session, s.provider, consumer.Options{})
	if err != nil {
		return err
	}
	w := &work{limiter: limiter, s: s}
	w.hurry, w.cut = context.WithCancel(context.Background())
	for range s.workers {
		w.wg.Go(w.jobs)
	}
	if err := limiter.Ready(terminated); err == nil {
		slog.Info("serving", "provider", s.provider)
	}
	<-terminated.Done()
	w.end(session)
	return nil
}

// work is the jobs under way. Jobs begin until the limiter is closed.
type work struct {
	limiter *consumer.Limiter
	s       settings
	wg      sync.WaitGroup
	done    atomic.Int64
	begun   atomic.Int64
	hurry   context.Context // ends when the grace period is nearly over
	cut     context.CancelFunc
}

// jobs does one job after the other. A real worker would fetch them from a
// queue, and acknowledge each when it is done.
func (w *work) jobs() {
	for {
		err := w.limiter.Acquire(w.hurry, consumer.Forever)
		if errors.Is(err, consumer.ErrNoPolicy) { // until an operator sets a limit
			select {
			case <-time.After(time.Second):
				continue
			case <-w.hurry.Done():
				return
			}
		}
		if err != nil {
			return // closed, or in a hurry: no new jobs
		}
		w.begun.Add(1)
		select {
		case <-time.After(w.s.job): // the call to the provider
			w.done.Add(1)
		case <-w.hurry.Done():
			return
		}
	}
}

// end hands the share over and lets the jobs end, within the grace period.
//
// Two deadlines share it. Leave goes on serving until the others take over, and
// must be over early enough for the jobs to end. If it is cut short, nothing is
// exceeded, but the rest of the share in the running windows is lost.
func (w *work) end(session *coordinator.Session) {
	began := time.Now()
	drain := w.s.drain()
	slog.Info("terminated: handing the share over", "grace", w.s.grace, "drain", drain)
	leaving, done := context.WithDeadline(context.Background(), began.Add(w.s.grace-drain))
	defer done()
	if err := session.Leave(leaving); err != nil {
		slog.Warn("the share was not handed over in time", "error", err)
	}
	// The limiter is closed now: jobs that were waiting for a permit get none.
	last := time.AfterFunc(drain/2, w.cut) // the other half is for exiting
	defer last.Stop()
	w.wg.Wait()
	w.cut()
	slog.Info("ended", "after", time.Since(began).Round(time.Millisecond),
		"jobs", w.done.Load(), "broken_off", w.begun.Load()-w.done.Load())
}

// settings are what the environment says.
type settings struct {
	endpoints []string
	provider  string
	workers   int
	job       time.Duration
	grace     time.Duration // from SIGTERM to SIGKILL
}

// minGrace is enough to close a session and exit.
const minGrace = time.Second

// drain is the part of the grace period that is kept for jobs to end: long
// enough for several, and no more than a third.
func (s *settings) drain() time.Duration { return min(5*s.job+2*time.Second, s.grace/3) }

func settingsFrom(env func(string) string) (s settings, err error) {
	s.endpoints = strings.Split(cmp.Or(env("ETCD_ENDPOINTS"), "127.0.0.1:2379"), ",")
	s.provider = cmp.Or(env("PROVIDER"), "demo/jobs")
	workers, job, grace := cmp.Or(env("WORKERS"), "8"), cmp.Or(env("JOB"), "20ms"), cmp.Or(env("GRACE"), "30s")
	s.workers, _ = strconv.Atoi(workers) // 0 with an error
	s.job, _ = time.ParseDuration(job)
	s.grace, _ = time.ParseDuration(grace)
	if s.workers < 1 || s.workers > 10_000 || s.job <= 0 || s.grace < minGrace {
		return s, fmt.Errorf("WORKERS=%s JOB=%s GRACE=%s: write a number from 1 to 10000, a time such as 20ms, and the platform's grace period, at least %v", workers, job, grace, minGrace)
	}
	return s, quota.ValidateProvider(s.provider)
}
