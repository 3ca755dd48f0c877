package main

import (
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// tap is a source that notes what passes through to the limiters, which share
// one sink.
type tap struct {
	consumer.Source
	limiters []*consumer.Limiter
	inner    feed.Sink // of all of them; they are opened one after the other

	registered atomic.Int64 // Unix nanoseconds of the first listing that has this instance
	listings   atomic.Int64
	events     atomic.Int64 // revisions
	applying   atomic.Int64 // nanoseconds that the limiters took for them
	appliedAt  atomic.Int64 // Unix nanoseconds, for the newest policy
	policy     atomic.Int64 // its revision; written after appliedAt
}

// Subscribe implements consumer.Source.
func (t *tap) Subscribe(provider string, create func() feed.Sink) (feed.Subscription, error) {
	sub, err := t.Source.Subscribe(provider, func() feed.Sink {
		t.inner = create()
		return &tappedSink{t.inner, t}
	})
	return &tapped{sub, t.inner}, err
}

// tapped is a subscription whose sink is the limiter's own.
type tapped struct {
	feed.Subscription
	inner feed.Sink
}

func (t *tapped) Sink() feed.Sink { return t.inner }

type tappedSink struct {
	feed.Sink
	tap *tap
}

func (s *tappedSink) Reset(at clock.Instant, self string, v protocol.View) {
	s.Sink.Reset(at, self, v)
	now := time.Now().UnixNano()
	s.tap.registered.CompareAndSwap(0, now)
	s.tap.listings.Add(1)
	s.tap.appliedAt.Store(now) // who registers anew finds the policy there
	s.tap.policy.Store(v.PolicyRevision)
}

func (s *tappedSink) Apply(at clock.Instant, c protocol.Change) {
	began := time.Now()
	s.Sink.Apply(at, c)
	now := time.Now()
	s.tap.events.Add(1)
	s.tap.applying.Add(int64(now.Sub(began)))
	if c.Policy != nil {
		s.tap.appliedAt.Store(now.UnixNano())
		s.tap.policy.Store(c.Revision)
	}
}
