// Package told is a source of views, for tests: it tells a limiter what the test says, without etcd.
package told

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Source has one limiter. Make one with New.
type Source struct {
	Sink  feed.Sink // the limiter's, once it was opened
	clock *clock.Clock
}

// New returns a source with a clock of its own.
func New() *Source { return &Source{clock: clock.New()} }

// Clock returns the source's clock.
func (s *Source) Clock() *clock.Clock { return s.clock }

// Subscribe makes the limiter's sink.
func (s *Source) Subscribe(_ string, create func() feed.Sink) (feed.Sink, func() error, error) {
	s.Sink = create()
	return s.Sink, func() error { s.Sink.Close(); return nil }, nil
}

// Tell has the instance be the only one under a policy, nil if there is none, since so long.
func (s *Source) Tell(p *quota.Policy, since time.Duration) {
	at := s.clock.Now()
	at.Mono -= int64(since)
	s.Sink.Reset(at, "w.1.1", protocol.View{Revision: 40, Policy: p, PolicyRevision: 40, Instances: []protocol.Instance{{ID: "w.1.1"}}})
}

// Prove has what was told be proved now.
func (s *Source) Prove() { s.Sink.Prove(s.clock.Now()) }
