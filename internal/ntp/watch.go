// Package ntp measures true time with the Network Time Protocol and tells a
// clock.Clock: several servers, the best of several samples of each, and of the
// servers those that a majority agrees with.
//
// The decisions are pure and take the instant: server.go keeps one server's samples and
// when to ask it again, group.go finds the time that most agree on. query.go and
// watch.go are the shell that has sockets and a goroutine.
//
// Instants are those of the Clock: monotonic, in nanoseconds. An offset is true
// wall time minus the monotonic instant.
package ntp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// patience is how long the first verdict waits for servers.
const patience = time.Second

// kernelEvery is the time between two questions to the kernel.
const kernelEvery = 16 * time.Second

// lookEvery bounds the time until a jump of the system's clock is seen.
const lookEvery = time.Second

// Watch keeps a clock true: it asks servers, and the kernel, and tells the clock
// what they say. Its methods are safe for concurrent use, but Run, which owns
// the rest, is called once. Make one with New.
type Watch struct {
	clock *clock.Clock
	log   *slog.Logger
	ask   func(ctx context.Context, address string) answer

	// Owned by Run.
	group  *group
	jumps  uint32 // of the clock, as last seen
	kernel int64  // when the kernel was last asked
	// decided says that the first verdict is in; patience is until when it may
	// wait for more servers, 0 before the first question.
	decided  bool
	patience int64
	under    int    // questions under way
	blind    bool   // logged: the clock cannot be measured
	liars    string // logged: they contradict the majority

	mu      sync.Mutex
	servers []ServerStatus
	first   chan struct{} // closed when the first verdict is in
}

// New returns a Watch over a clock. Without servers it only asks the kernel.
// every is the time between two questions to a server, from MinInterval to
// MaxInterval; 0 means DefaultInterval.
func New(c *clock.Clock, servers []string, every time.Duration, log *slog.Logger) (*Watch, error) {
	if err := CheckServers(servers); err != nil {
		return nil, err
	}
	every = cmp.Or(every, DefaultInterval)
	if every < MinInterval || every > MaxInterval {
		return nil, fmt.Errorf("NTP interval %v: must be from %v to %v; 0 means %v", every, MinInterval, MaxInterval, DefaultInterval)
	}
	w := &Watch{clock: c, log: log, group: newGroup(servers, every), first: make(chan struct{})}
	if len(servers) == 0 {
		w.decided = true
		close(w.first)
	}
	w.ask = func(ctx context.Context, address string) answer { return query(ctx, c, address) }
	return w, nil
}

// First waits until most of the servers agree on the time, until all have
// answered or failed, or until ctx ends. Run must be running.
func (w *Watch) First(ctx context.Context) {
	select {
	case <-w.first:
	case <-ctx.Done():
	}
}

// Servers returns what is known of each server.
func (w *Watch) Servers() []ServerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.servers)
}

type result struct {
	Question
	answer
}

// Run measures until ctx ends, and until no question is under way.
func (w *Watch) Run(ctx context.Context) {
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	w.askKernel(w.clock.Mono())
	for {
		select {
		case r := <-results:
			w.took(w.clock.Now(), r.Question, r.answer)
			continue
		case <-ctx.Done():
			for ; w.under > 0; w.under-- {
				<-results // ctx ends the question
			}
			return
		case <-timer.C:
		}
		at := w.clock.Now()
		if at.Mono-w.kernel >= int64(kernelEvery) {
			w.askKernel(at.Mono)
		}
		due, next := w.Due(at)
		for _, q := range due {
			go func() { results <- result{q, w.ask(ctx, w.group.servers[q.Server].address)} }()
		}
		timer.Reset(min(lookEvery, max(time.Millisecond, time.Duration(next-at.Mono))))
	}
}

// took takes an answer that came at the instant at. If the machine slept while
// the question was under way, the sample is worth nothing, but its server has
// answered: one that answers sooner after the sleep is no majority.
func (w *Watch) took(at clock.Instant, q Question, a answer) {
	w.under--
	w.look(at)
	s := w.group.servers[q.Server]
	if a.problem == "" && (q.jumps != w.clock.Jumps() || at.Wall-at.Mono-q.lead >= int64(clock.StepThreshold)) {
		a, s.voter = answer{problem: "the clock jumped meanwhile"}, true
	}
	s.take(at.Mono, a, w.group.every)
	w.conclude(at.Mono, a.problem == "")
}

// conclude lets the clock know what the answers come to; fresh says that there
// is a new one. The first verdict waits until most of the servers agree, so that
// the fastest does not decide alone, but no longer than patience.
func (w *Watch) conclude(now int64, fresh bool) {
	v := w.group.judge(now, w.clock.Offset())
	first := !w.decided && (2*v.votes > len(v.servers) || w.under == 0 || now >= w.patience)
	if w.decided = w.decided || first; !w.decided {
		return
	}
	if v.ok && (fresh || first) {
		w.clock.Adopt(v.estimate)
	}
	w.clock.Note(v.health)
	w.mu.Lock()
	w.servers = v.servers
	w.mu.Unlock()
	w.alarm(v)
	if first {
		close(w.first)
	}
}

func (w *Watch) askKernel(now int64) {
	w.kernel = now
	if w.clock.Skewed() {
		return // the kernel speaks of another clock
	}
	bound, known := Kernel()
	w.clock.Kernel(now, bound, known)
}

// alarm logs what is wrong, once, and when it is over.
func (w *Watch) alarm(v verdict) {
	var liars []string
	for _, s := range v.servers {
		if v.ok && s.Answers && !s.Agrees {
			liars = append(liars, s.Address)
		}
	}
	if bad := v.health.Problem != ""; bad != w.blind {
		w.blind = bad
		if bad {
			w.log.Warn("clock cannot be measured", "problem", v.health.Problem)
		} else {
			w.log.Info("clock is measured again", "servers", v.health.Servers, "agreeing", v.health.Agreeing)
		}
	}
	if now := strings.Join(liars, ", "); now != w.liars {
		w.liars = now
		if now != "" {
			w.log.Warn("NTP servers contradict the majority", "servers", now)
		} else {
			w.log.Info("no NTP server that answers contradicts the majority any more")
		}
	}
}

// Question is a question to a server that is under way.
type Question struct {
	Server int    // its place among those given to New
	jumps  uint32 // of the clock, when it was asked
	lead   int64  // of the system's clock before the monotonic one, then
}

// Due returns the questions to ask at the instant at, and the monotonic instant at
// which to call it next. Questions count as under way until they are answered. Due and
// Answered are for a simulation, which owns the time and the network; others call Run.
func (w *Watch) Due(at clock.Instant) (ask []Question, next int64) {
	if w.patience == 0 {
		w.jumps, w.patience = w.clock.Jumps(), at.Mono+int64(patience)
	}
	w.look(at)
	due, next := w.group.due(at.Mono)
	for _, i := range due {
		w.under++
		ask = append(ask, Question{i, w.jumps, at.Wall - at.Mono})
	}
	if !w.decided && at.Mono >= w.patience {
		w.conclude(at.Mono, false)
	}
	return ask, next
}

// look has the clock see whether the machine slept, before an estimate says where the
// clock is after that. It then forgets the samples of the time before. Without a jump
// nobody observes the clock before the first estimate, which is then taken at once.
func (w *Watch) look(at clock.Instant) {
	if w.decided || w.clock.Jumped(at) {
		w.clock.Observe(at)
	}
	if j := w.clock.Jumps(); j != w.jumps {
		w.jumps = j
		w.group.forget(at.Mono)
	}
}

// Answered takes a server's answer at the instant at: true time less the monotonic clock's
// is offset, to within distance. A problem says why there was none.
func (w *Watch) Answered(at clock.Instant, q Question, offset int64, distance time.Duration, problem string) {
	w.took(at, q, answer{sample: sample{mono: at.Mono, offset: offset, distance: distance}, problem: problem})
}
