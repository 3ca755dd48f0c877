package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// together is how many instances of a process join or leave at a time.
	together = 16
	// joinPause is how long an instance that could not join waits before it tries
	// again.
	joinPause = 500 * time.Millisecond
)

// instance is one of the fleet.
type instance struct {
	member
	session *coordinator.Session
	limiter *consumer.Limiter
	slot    int
	served  atomic.Bool // it has been active

	// As last seen, guarded by the worker's mutex.
	firstLoans    int64
	firstLoanTime time.Duration
}

// join opens instances in the slots, some at a time.
func (w *Worker) join(slots []int, retry bool) {
	w.busy.Go(func() {
		var group errgroup.Group
		group.SetLimit(together)
		for _, slot := range slots {
			group.Go(func() error { w.enter(slot, retry); return nil })
		}
		_ = group.Wait() // each has told what went wrong
	})
}

func (w *Worker) enter(slot int, retry bool) {
	in, err := w.open(slot)
	for err != nil && (retry || errors.Is(err, coordinator.ErrUnreachable)) && w.ctx.Err() == nil {
		select {
		case <-time.After(joinPause):
			in, err = w.open(slot)
		case <-w.ctx.Done():
		}
	}
	if w.ctx.Err() != nil && err != nil {
		return
	}
	if err != nil {
		w.tell(Report{Failed: fmt.Sprintf("instance %d did not join: %v", slot, err)})
		return
	}
	w.mu.Lock()
	w.slots[slot], w.all[in] = in, true
	w.mu.Unlock()
	in.member.limiter, in.member.slot = fleetLimiter{in.limiter, keysOf(in.limiter, w.c.Keys)}, slot
	in.calls = load.NewProcess(w.c.Arrival, w.c.Seed, slot, w.c.Instances)
	w.generators[slot%len(w.generators)].add(&in.member)
	w.busy.Go(func() {
		if in.limiter.Ready(w.ctx) == nil {
			w.ready.Add(1)
			in.served.Store(true)
		}
	})
}

func (w *Worker) open(slot int) (*instance, error) {
	// Changes of state show in the table; their log would tear it apart.
	log := slog.New(slog.DiscardHandler)
	ctx := w.ctx
	if w.c.Ahead != 0 {
		ctx = clock.With(ctx, clock.NewSkewed(func(int64) time.Duration { return w.c.Ahead }))
	}
	session, err := coordinator.Join(ctx, w.client, coordinator.Options{
		Name: fmt.Sprintf("loadgen-%d", slot), Prefix: w.c.Etcd.Prefix, NTP: w.c.NTP, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	limiter, err := consumer.Open(w.ctx, w.trace.Wrap(session), w.provider, consumer.Options{Logger: log})
	if err != nil {
		_ = session.Close() // err tells more
		return nil, err
	}
	return &instance{session: session, limiter: limiter, slot: slot}, nil
}

// replace lets the slot's instance leave in good order and another join at once:
// the one serves until the other takes over.
func (w *Worker) replace(slot int) {
	w.mu.Lock()
	in := w.slots[slot]
	delete(w.slots, slot)
	w.mu.Unlock()
	if in == nil {
		return
	}
	w.busy.Go(func() {
		err := in.session.Shutdown(w.ctx)
		in.gone.Store(true)
		_ = in.limiter.Close() // the session is closed, so nothing is left to fail
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, in)
		switch {
		case w.ctx.Err() != nil: // cut short by the end of the run
		case err == nil:
			w.announced++
		default:
			w.unannounced++
		}
	})
	w.join([]int{slot}, true)
}

// exceeded returns by how much an instance's clock, which wall reads, is further from
// the provider's than its guard; 0 if it is not. The provider's clock is the system's.
// A delay between the readings errs in favour of the instance.
func exceeded(p *quota.Policy, wall func() int64) time.Duration {
	if !config.GuardCovers(p) {
		return 0
	}
	before := time.Now().UnixNano()
	at := wall()
	after := time.Now().UnixNano()
	return max(0, time.Duration(max(before-at, at-after))-p.Guard)
}
