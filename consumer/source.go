package consumer

import (
	"math"
	"sync"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Source provides the policies in force and the instances that share them: a
// *coordinator.Session, a *FixedSource, or an instance of package limittest. No other
// module can implement it.
type Source interface{ sealed }

type (
	sealed  = feed.Covered
	covered = feed.Cover[feed.Source]
)

// FixedSource is a source without etcd: one policy for every provider, and this
// process the only instance. It serves tests and programs of a single process. It
// remembers the permits that were issued: a limiter that is closed and opened again
// has only the rest of the window. Its methods are safe for concurrent use. Make one with
// Fixed.
type FixedSource struct {
	covered
	clock *clock.Clock

	mu       sync.Mutex
	policy   *quota.Policy // with its defaults
	revision int64
	sinks    map[string]feed.Sink
}

// Fixed returns a source with the given policy in force. An invalid policy is
// reported by Open.
func Fixed(policy quota.Policy) *FixedSource {
	policy = policy.WithDefaults()
	f := &FixedSource{clock: clock.New(), policy: &policy, revision: 1, sinks: map[string]feed.Sink{}}
	f.covered = feed.Over[feed.Source]((*fixed)(f))
	return f
}

// Set puts another policy in force, as an operator would. A lower limit, a higher one and
// a resume count immediately, other changes from the first window that starts the settle
// time later. An invalid policy is refused and changes nothing.
func (f *FixedSource) Set(policy quota.Policy) error {
	policy = policy.WithDefaults()
	if err := policy.Validate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	f.policy = &policy
	for _, sink := range f.sinks {
		sink.Apply(f.clock.Now(), protocol.Change{Revision: f.revision, Policy: &policy})
	}
	return nil
}

// fixed is a FixedSource as a limiter sees it.
type fixed FixedSource

// Clock implements feed.Source.
func (f *fixed) Clock() *clock.Clock { return f.clock }

// fixedInstance is the one incarnation of a fixed source.
const fixedInstance = "self"

// Subscribe implements feed.Source.
func (f *fixed) Subscribe(provider string, create func() feed.Sink) (sink feed.Sink, leave func() error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.policy.Validate(); err != nil {
		return nil, nil, err
	}
	if sink = f.sinks[provider]; sink == nil {
		sink = create()
		f.sinks[provider] = sink
		// There are no other instances to wait for: the history is as long as it
		// can ever need to be, and the proof never ends.
		now := f.clock.Now()
		long := int64(quota.MaxSettle + 4*quota.MaxWindow)
		began := clock.Instant{Mono: now.Mono - long, Wall: now.Wall - long}
		sink.Reset(began, fixedInstance, protocol.View{
			Revision: f.revision, Policy: f.policy, PolicyRevision: f.revision, Alone: true,
			Instances: []protocol.Instance{{ID: fixedInstance, Name: fixedInstance}},
		})
		sink.Prove(clock.Instant{Mono: math.MaxInt64 / 2, Wall: math.MaxInt64 / 2})
	}
	return sink, func() error { return nil }, nil // whoever comes next gets the same sink
}
