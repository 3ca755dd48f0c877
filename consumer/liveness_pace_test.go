package consumer_test

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// paces is a source under whose policies the pace can be changed.
type paces struct {
	feed.Source
	feed.Sink               // of the limiters
	revision  int64         // of the newest change; the source numbers its own
	now       []quota.Limit // of the pace
}

func (s *paces) Subscribe(provider string, create func() feed.Sink) (feed.Sink, func() error, error) {
	_, leave, err := s.Source.Subscribe(provider, func() feed.Sink {
		s.Sink = create()
		return s
	})
	return s.Sink, leave, err
}

func (s *paces) Apply(at clock.Instant, c protocol.Change) {
	s.revision++
	c.Revision = s.revision
	s.Sink.Apply(at, c)
}

// pace puts a pace into the view; nil is none.
func (s *paces) pace(limits []quota.Limit) {
	s.now = limits
	s.Apply(s.Clock().Now(), protocol.Change{Throttle: &protocol.Throttle{Limits: limits}})
}

// pace lets the total of an adaptive policy be another.
func (h *play) pace() {
	if h.newest().Adaptive.Floor == 0 || h.instances == 1 {
		return // a FixedSource forgets the pace when it is set
	}
	h.disturb()
	var limits []quota.Limit
	if h.rng.IntN(4) > 0 {
		for limits = h.randomLimits(); !h.divides(h.asked, limits); {
			limits = h.randomLimits()
		}
	}
	h.paces.pace(limits)
	h.note("pace %v", h.paces.now)
	h.set(now(), underPace(h.asked, h.paces.now))
}

// divides reports whether all instances have the same part of every total.
func (h *play) divides(p quota.Policy, pace []quota.Limit) bool {
	p = underPace(p, pace)
	return !slices.ContainsFunc(append(changed(&p), p.Limits), func(limits []quota.Limit) bool {
		return slices.ContainsFunc(limits, func(l quota.Limit) bool { return l.Permits%h.instances != 0 })
	})
}

// underPace returns a policy with the limits in force under a pace.
func underPace(p quota.Policy, pace []quota.Limit) quota.Policy {
	p = p.Clone()
	for _, limits := range append(changed(&p), p.Limits) {
		for i, l := range limits {
			for _, paced := range pace {
				if p.Adaptive.Floor > 0 && paced.Window == l.Window {
					limits[i].Permits = min(l.Permits, max(paced.Permits, (l.Permits*p.Adaptive.Floor+99)/100))
				}
			}
		}
	}
	return p
}
