package consumer

import (
	"math"
	"sync"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// Source tells limiters what is in force and who shares it. A
// *coordinator.Session is one, a *FixedSource another. The methods speak of
// internal types: implementations live in this module.
type Source interface {
	// Subscribe makes this process an instance of the provider.
	Subscribe(provider string, create func() feed.Sink) (feed.Subscription, error)
	// Clock returns the clock by which the source tells the time.
	Clock() *clock.Clock
}

// FixedSource is a source without etcd: one policy for every provider, and this
// process the only instance. It serves tests and programs of a single process.
type FixedSource struct {
	clock *clock.Clock

	mu       sync.Mutex
	policy   quota.Policy
	err      error // why policy cannot be used
	revision int64
	subs     map[string]*fixedSubscription
}

// Fixed returns a source with the given policy in force. An invalid policy is
// reported by Open.
func Fixed(policy quota.Policy) *FixedSource {
	f := &FixedSource{clock: clock.New(), revision: 1, subs: map[string]*fixedSubscription{}}
	f.policy = policy.WithDefaults()
	f.err = f.policy.Validate()
	return f
}

// Set puts another policy in force, as an operator would: less binds at once,
// more from the first window that starts the policy's settle time later. An
// invalid policy is refused and changes nothing.
func (f *FixedSource) Set(policy quota.Policy) error {
	policy = policy.WithDefaults()
	if err := policy.Validate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	f.policy, f.err = policy, nil
	for _, s := range f.subs {
		p := policy
		s.sink.Apply(f.clock.Now(), quota.Change{Revision: f.revision, Policy: &p})
	}
	return nil
}

// Clock implements Source.
func (f *FixedSource) Clock() *clock.Clock { return f.clock }

// fixedInstance is the one incarnation of a fixed source.
const fixedInstance = "self"

// Subscribe implements Source.
func (f *FixedSource) Subscribe(provider string, create func() feed.Sink) (feed.Subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if s := f.subs[provider]; s != nil {
		s.users++
		return &fixedHandle{sub: s}, nil
	}
	s := &fixedSubscription{source: f, provider: provider, sink: create(), users: 1}
	f.subs[provider] = s
	policy := f.policy
	// Alone there is nobody to wait for: the history is as long as it can ever
	// need to be, and the proof never ends.
	now := f.clock.Now()
	began := clock.Instant{Mono: now.Mono - int64(quota.MaxSettle+4*quota.MaxWindow), Wall: now.Wall}
	s.sink.Reset(began, fixedInstance, quota.View{
		Revision: f.revision, Policy: &policy, PolicyRevision: f.revision,
		Instances: []quota.Instance{{ID: fixedInstance, Name: fixedInstance, Weight: 1}},
	})
	s.sink.Prove(clock.Instant{Mono: math.MaxInt64 / 2, Wall: math.MaxInt64 / 2})
	return &fixedHandle{sub: s}, nil
}

// fixedSubscription is a provider's place, shared by all that opened it.
type fixedSubscription struct {
	source   *FixedSource
	provider string
	sink     feed.Sink
	users    int // guarded by source.mu
}

// fixedHandle is one user's part of it.
type fixedHandle struct {
	sub  *fixedSubscription
	once sync.Once
}

// Sink implements feed.Subscription.
func (h *fixedHandle) Sink() feed.Sink { return h.sub.sink }

// Close implements feed.Subscription.
func (h *fixedHandle) Close() error {
	h.once.Do(func() {
		f := h.sub.source
		f.mu.Lock()
		defer f.mu.Unlock()
		if h.sub.users--; h.sub.users == 0 {
			delete(f.subs, h.sub.provider)
			h.sub.sink.Close()
		}
	})
	return nil
}
