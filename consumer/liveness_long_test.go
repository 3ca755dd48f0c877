package consumer_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// longHistory is what a history of TestLivenessOfPatience has more if it has a long limit, of the provider or of a key:
// of hours, fixed or sliding, with or without pacing, or in flight.
type longHistory struct {
	answers time.Duration // after so long etcd answers; 0: no limit is long
	begins  time.Duration // how long after the beginning of a long window the fleet begins
	first   bool          // it is the first instance of a fleet, whose share begins soon
	// gaveBack says of each call of the newest play whether another instance has given permits back while it waited or in
	// the ten seconds before, in which an instance that has found nothing left does not ask again. Nobody told it that.
	gaveBack []bool
}

// longCall is what a call of such a history has more.
type longCall struct {
	lasts time.Duration // it is under way for so long, which counts where a limit is in flight
	costs int64         // it has cost so many permits more than it took
}

// makeLong gives the history a long limit. There nobody joins, for the modelled etcd has no registrations.
func (h *patienceHistory) makeLong(r *rand.Rand) {
	h.joins = 0
	h.answers = time.Duration(20+r.IntN(131)) * time.Millisecond
	h.begins = time.Duration(r.Int64N(int64(2 * time.Minute)))
	if r.IntN(2) == 0 {
		h.instances = 1
		h.first = r.IntN(2) == 0
	}
	h.policy.Lend = []string{"", "off"}[r.IntN(2)]
	total := h.policy.Limits[0].Permits
	long := quota.Limit{Permits: total * int64(1+r.IntN(8)), Window: []time.Duration{2 * time.Minute, time.Hour}[r.IntN(2)], Sliding: r.IntN(2) == 0}
	kind := r.IntN(5)
	switch kind {
	case 0, 1:
		h.policy.Keys.Limits = append(h.policy.Keys.Limits, long)
	case 2:
		h.policy.Keys.Limits = []quota.Limit{long}
	case 3:
		h.policy.Limits = append(h.policy.Limits, long)
	case 4:
		h.policy.Limits = []quota.Limit{{Permits: total, Window: time.Minute, InFlight: true}}
		h.policy.Critical, h.policy.Pacing = 0, ""
	}
	debts, bursts := r.IntN(3) == 0, r.IntN(2) == 0
	for i := range h.calls {
		c := &h.calls[i]
		c.instance %= h.instances
		if kind < 3 {
			c.key = r.IntN(4) > 0
		}
		if bursts { // several come together
			c.at -= c.at % (h.window / 2)
		}
		if bursts || r.IntN(2) == 0 {
			c.n = 1
		}
		c.lasts = time.Duration(r.Int64N(int64(h.window)))
		if debts && r.IntN(8) == 0 {
			c.costs = 1 + r.Int64N(3)
		}
	}
}

// longNews reports whether a call of such a history was refused since nothing was left of a long limit, and another instance
// has given permits back, which nobody could know before.
func (h *patienceHistory) longNews(refused error, i int) bool {
	var limited consumer.LimitError
	long := errors.As(refused, &limited) && (limited.InFlight || limited.Window.Length > quota.MaxWindow)
	return long && h.answers > 0 && h.gaveBack[i]
}

// open opens the limiters of such a fleet, and returns what ends it.
func (h *patienceHistory) open(t *testing.T, all []*consumer.Limiter) (end func()) {
	f := consumer.NewLongFleet(t, h.policy, h.instances, h.first, h.answers)
	copy(all, f.Limiters)
	began := time.Now()
	return func() {
		f.End()
		h.gaveBack = make([]bool, len(h.calls))
		for i, c := range h.calls {
			at := began.Add(c.at + time.Duration(i))
			h.gaveBack[i] = f.GaveBack(c.instance, at.Add(-10*time.Second), at.Add(c.wait))
		}
	}
}

// end ends a call that was served.
func (c *patientCall) end(t *testing.T, p consumer.Permit) {
	if c.costs > 0 {
		if err := p.Settle(c.n + c.costs); err != nil {
			t.Error(err)
		}
	}
	if c.lasts > 0 {
		time.AfterFunc(c.lasts, p.Done)
	}
}
