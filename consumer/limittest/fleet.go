// Package limittest lets an application test that it obeys a limit. A Fleet is
// instances that share limits as in production, by the same code and rules. It has no
// etcd, sockets or goroutines, so it runs on the fake clock of testing/synctest. A
// Meter counts calls as a provider would.
//
//	synctest.Test(t, func(t *testing.T) {
//		fleet, err := limittest.New(policy, 3)
//		limiter, err := consumer.Open(ctx, fleet.Instances()[0], "payments/charge", consumer.Options{})
//		...
//	})
//
// Where one instance is enough, consumer.Fixed is simpler.
package limittest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Fleet is a set of instances under one policy, which is every provider's. Its
// methods are safe for concurrent use. Make one with New, inside the bubble.
//
// It differs from a fleet on etcd. Changes reach all instances immediately, and none is
// ever stale. Every instance takes part in every provider, but lends permits only of those
// that it has opened. An ask for permits takes 1 ms, and so does a loan.
// Limiter.Throttled holds back only its own instance.
type Fleet struct {
	clock *clock.Clock

	mu        sync.Mutex
	policy    quota.Policy
	first     protocol.View // before all news
	news      []news        // since then
	instances []*Instance
}

// news is a change of the view and its time.
type news struct {
	at     clock.Instant
	change protocol.Change
}

// New returns a fleet of n instances that joined long ago, so that each has its share
// at once. It returns an error if the policy or n is invalid.
func New(policy quota.Policy, n int) (*Fleet, error) {
	policy = policy.WithDefaults()
	if err := valid(policy); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fmt.Errorf("limittest: a fleet of %d instances: at least 0 are needed", n)
	}
	f := &Fleet{clock: clock.New(), policy: policy}
	f.first = protocol.View{Revision: 1, Policy: &policy, PolicyRevision: 1}
	for range n {
		i := f.newInstance()
		f.first.Instances = append(f.first.Instances, i.key)
		f.instances = append(f.instances, i)
	}
	return f, nil
}

func (f *Fleet) newInstance() *Instance {
	n := len(f.instances)
	name := fmt.Sprintf("instance-%d", n)
	i := &Instance{
		fleet: f, sinks: map[string]feed.Sink{},
		key: protocol.Instance{ID: name + ".1", Name: name},
	}
	i.covered = feed.Over[feed.Source]((*source)(i))
	return i
}

// Instances returns all instances that ever joined, in order, also those that left.
func (f *Fleet) Instances() []*Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.instances)
}

// Set puts another policy in force, as an operator would. A lower limit applies at
// once, and so does a higher one. An invalid policy changes nothing.
func (f *Fleet) Set(policy quota.Policy) error {
	policy = policy.WithDefaults()
	if err := valid(policy); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = policy
	f.publishLocked(protocol.Change{Policy: &policy})
	return nil
}

// Join adds an instance. As in production it announces itself, and has its share
// after the policy's settle time, two clock errors and the rest of a window.
func (f *Fleet) Join() *Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.newInstance()
	i.key.From = protocol.FirstWindow(f.clock.Wall(), &f.policy)
	f.instances = append(f.instances, i)
	f.publishLocked(protocol.Change{Put: []protocol.Instance{i.key}})
	return i
}

// publishLocked appends a change and sends it to every instance.
func (f *Fleet) publishLocked(c protocol.Change) {
	at := f.clock.Now()
	c.Revision = f.first.Revision + int64(len(f.news)) + 1
	f.news = append(f.news, news{at, c})
	for _, i := range f.instances {
		for _, sink := range i.sinks {
			sink.Apply(at, c)
		}
	}
}

// Instance is one process of the fleet: a consumer.Source. Its methods are safe
// for concurrent use.
type Instance struct {
	covered
	fleet *Fleet

	// Guarded by fleet.mu.
	key   protocol.Instance
	gone  bool
	sinks map[string]feed.Sink // by provider
}

// Leave announces the instance's end, as coordinator's Session.Shutdown does: it
// serves until a window begins that is 0.3 s ahead or more, and the others take over
// in that window. It returns at once.
func (i *Instance) Leave() {
	f := i.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.gone || !i.key.Until.IsZero() {
		return
	}
	i.key.Until = protocol.LastWindow(f.clock.Wall(), &f.policy)
	for _, sink := range i.sinks {
		sink.Announce(i.key.Until.UnixNano())
	}
	f.publishLocked(protocol.Change{Put: []protocol.Instance{i.key}})
}

// Kill ends the instance as a crash does, once its lease has ended too: its
// limiters are closed, and the others have its share after the settle time.
func (i *Instance) Kill() {
	f := i.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.gone {
		return
	}
	i.gone = true
	for _, sink := range i.sinks {
		sink.Close()
	}
	clear(i.sinks)
	f.publishLocked(protocol.Change{Deleted: []string{i.key.ID}})
}

type covered = feed.Cover[feed.Source]

// source is an Instance as a limiter sees it.
type source Instance

// Clock implements feed.Source.
func (i *source) Clock() *clock.Clock { return i.fleet.clock }

// errGone is returned by consumer.Open on an instance that was killed.
var errGone = errors.New("limittest: the instance was killed: join another one")

// Subscribe implements feed.Source.
func (i *source) Subscribe(provider string, create func() feed.Sink) (sink feed.Sink, leave func() error, err error) {
	f := i.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.gone {
		return nil, nil, errGone
	}
	if sink = i.sinks[provider]; sink == nil {
		sink = create()
		i.sinks[provider] = sink
		f.catchUpLocked(sink, (*Instance)(i))
		sink.Carry(&carrier{fleet: f, provider: provider, number: slices.Index(f.instances, (*Instance)(i))})
	}
	return sink, func() error { return nil }, nil // later limiters of the provider get the same sink
}

// catchUpLocked sends a new sink the news that the instance would have seen: a view
// that is old enough, and the changes since.
func (f *Fleet) catchUpLocked(sink feed.Sink, i *Instance) {
	long := int64(quota.MaxSettle + 4*quota.MaxWindow)
	sink.Reset(clock.Instant{Mono: -long, Wall: f.clock.WallAt(-long)}, i.key.ID, f.first)
	for _, n := range f.news {
		sink.Apply(n.at, n.change)
	}
	if !i.key.Until.IsZero() {
		sink.Announce(i.key.Until.UnixNano())
	}
	sink.Prove(clock.Instant{Mono: math.MaxInt64 / 2, Wall: math.MaxInt64 / 2})
}

// carryTime is how long an ask takes, or a loan.
const carryTime = time.Millisecond

// carrier brings what one instance asks and lends of one provider to the instances that have opened
// it. No two messages arrive at one instant, or the runtime would draw their order by lot: each
// instance's arrive at nanoseconds of its own, a microsecond apart.
type carrier struct {
	fleet    *Fleet
	provider string
	number   int // of the instance

	mu   sync.Mutex
	last time.Time // when its latest message arrives
}

// arrives returns how long the next message takes.
func (c *carrier) arrives() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	at := now.Add(carryTime).Truncate(time.Microsecond).Add(time.Duration(c.number+1) % time.Microsecond)
	if !at.After(c.last) {
		at = c.last.Add(time.Microsecond)
	}
	c.last = at
	return at.Sub(now)
}

// Tell implements feed.Carrier.
func (c *carrier) Tell(self, guest string, loan protocol.Note) {
	c.send(func(id string) bool { return id == guest }, func(s feed.Sink) { s.Borrow(self, loan) })
}

// Ask implements feed.Carrier.
func (c *carrier) Ask(self string, all []protocol.Request) {
	for _, r := range all {
		c.send(func(id string) bool { return id == r.Host || r.Host == "" && id != self }, func(s feed.Sink) { s.Asked(self, r.Note) })
	}
}

// send has some instances hear of an ask or a loan, later: who sends holds locks.
func (c *carrier) send(to func(id string) bool, hear func(feed.Sink)) {
	time.AfterFunc(c.arrives(), func() {
		sinks := map[string]feed.Sink{}
		c.fleet.mu.Lock()
		for _, i := range c.fleet.instances {
			if sink := i.sinks[c.provider]; sink != nil && to(i.key.ID) {
				sinks[i.key.ID] = sink
			}
		}
		c.fleet.mu.Unlock()
		for _, id := range slices.Sorted(maps.Keys(sinks)) { // in the same order each time
			hear(sinks[id])
		}
	})
}

var _ consumer.Source = (*Instance)(nil)

// valid reports why a policy, with its defaults, cannot be tested with.
func valid(policy quota.Policy) error {
	err := policy.Validate()
	if err == nil && len(protocol.Long(&policy))+len(protocol.Long(&quota.Policy{Limits: policy.Keys.Limits})) > 0 {
		err = fmt.Errorf("limits of more than %v, and of calls in flight, need an etcd", quota.MaxWindow)
	}
	if err != nil {
		return fmt.Errorf("limittest: %w", err)
	}
	return nil
}
